"""M1 to M4: concurrency and rate limits.

* M1, M2: slots by key are held by leases and by nothing else.
* M3, M4: starts are paced by key, and keys take turns.
* Lengths of the queues, for inspection.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.model.effect import DropTokens, EndScope, OpenBarrier, OpenScope
from dalsegno.model.limits import Allowance, Rate
from dalsegno.model.token import Lease
from dalsegno.model.transition import Park, ReadyToken, Stale
from dalsegno.ports.ledger import QueueView
from dalsegno.testing.contract.builders import (
    RUN,
    aggregator,
    cancel,
    command,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.stack import ContractStack, Topic

ONE, TWO = Allowance(concurrency=1), Allowance(concurrency=2)
LEASE = 60.0


def names(leases: Iterable[Lease]) -> list[str]:
    return [lease.token for lease in leases]


async def fill(
    stack: ContractStack, key: str, count: int, allows: Allowance | None = ONE, **where: object
) -> None:
    """Start ``count`` executions with one token of this key each: ``key-0``, ``key-1`` …"""
    for number in range(count):
        name = f"{key}-{number}"
        await stack.apply(start(f"run-{name}", token(name, key=key, allows=allows, **where)))  # type: ignore[arg-type]


class LedgerLimits(Topic):
    guarantees = frozenset(("M1",))
    needs = frozenset(("commit", "limits", "leases"))

    async def test_m1_bounded_by_what_the_token_allows(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, TWO)

        assert names(await stack.claim()) == ["mail-0", "mail-1"]
        assert await stack.claim(worker="w2") == []

    async def test_m1_bounded_by_what_operators_set(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, TWO)
        await stack.limits.set("mail", ONE)

        assert names(await stack.claim()) == ["mail-0"]
        await stack.limits.set("mail", Allowance(concurrency=3))
        assert names(await stack.claim(worker="w2")) == ["mail-1", "mail-2"]

    async def test_m1_bounded_by_nothing_once_the_rule_is_removed(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, None)
        await stack.limits.set("mail", Allowance(concurrency=0))
        assert await stack.claim() == []

        assert await stack.limits.remove("mail")
        assert not await stack.limits.remove("mail")

        assert names(await stack.claim()) == ["mail-0", "mail-1", "mail-2"]

    async def test_m1_bounded_although_the_queues_differ(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a", key="mail", allows=ONE, queue="one")))
        await stack.apply(start("run-b", token("b", key="mail", allows=ONE, queue="two")))

        [lease] = await stack.claim(queues=("one", "two"))
        assert await stack.claim(queues=("one", "two"), worker="w2") == []
        await stack.apply(step(lease))
        assert names(await stack.claim(queues=("two",))) == ["b"]

    async def test_m1_bounded_for_leases_by_name(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, TWO)
        ready = [ReadyToken(f"mail-{number}", f"run-mail-{number}", "default", 0) for number in range(3)]

        assert len(await stack.ledger.lease("w1", ready)) == 2
        assert await stack.ledger.lease("w2", ready) == []
        assert await stack.claim() == []

    async def test_m1_bounded_although_the_spawner_asks_to_keep(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 1)
        await stack.apply(start("run-x", token("x")))
        leases = await stack.take()

        spawned = token("y", key="mail", allows=ONE)
        [applied] = await stack.apply(step(leases["x"], spawned, keep=["y"], worker="w1"))

        assert applied.kept == ()
        assert await stack.claim() == []

    async def test_m1_bounded_when_an_operator_lowers_it(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 4, Allowance(concurrency=3))
        leases = await stack.claim()
        await stack.limits.set("mail", ONE)

        await stack.apply(step(leases[0]), step(leases[1]))
        assert await stack.claim() == []
        await stack.apply(step(leases[2]))
        assert names(await stack.claim()) == ["mail-3"]

    async def test_limit_shows_what_is_in_use(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, TWO)
        await stack.limits.set("quiet", Allowance(5, Rate(10, 1.0)))
        await stack.claim()

        mail, quiet = await stack.limits.page()
        assert (mail.key, mail.in_use, mail.waiting) == ("mail", 2, 1)
        assert (quiet.key, quiet.rule, quiet.in_use) == ("quiet", Allowance(5, Rate(10, 1.0)), 0)
        assert await stack.limits.page(after="mail") == [quiet]
        assert (await stack.limits.get("mail")).in_use == 2

    async def test_inspection_shows_the_limit_a_ready_token_waits_for(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        await stack.claim()

        found = await stack.ledger.inspect("run-mail-1")
        assert found is not None
        [view] = found.limits
        assert (view.key, view.bound, view.in_use, view.waiting) == ("mail", ONE, 1, 1)


class LedgerSlots(Topic):
    guarantees = frozenset(("M2", "M1"))
    needs = frozenset(("commit", "limits", "leases", "time", "pausing", "scripts"))

    async def test_m2_given_back_with_the_commit_and_announced(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        assert await stack.claim() == []

        [applied] = await stack.apply(step(lease))

        assert [ready.token for ready in applied.ready] == ["mail-1"]
        assert names(await stack.claim()) == ["mail-1"]

    async def test_m2_given_back_while_it_is_parked(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        await stack.apply(step(lease, park=Park(stack.clock.now() + 10, b"", 1)))

        [other] = await stack.claim()
        assert names([other]) == ["mail-1"]
        stack.clock.advance(11)
        await stack.ledger.wake()
        assert await stack.claim() == []
        await stack.apply(step(other))
        assert names(await stack.claim()) == ["mail-0"]

    async def test_m2_given_back_when_it_is_handed_back(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        assert await stack.claim(worker="w2") == []

        await stack.ledger.release("w1", [lease])

        assert len(await stack.claim(worker="w2")) == 1
        assert await stack.claim(worker="w3") == []

    async def test_m2_given_back_when_its_worker_is_gone(self, stack: ContractStack) -> None:
        stack.ledger.heartbeat("w1", LEASE)
        await fill(stack, "mail", 2)
        [lost] = await stack.claim()
        assert await stack.claim(worker="w2") == []
        stack.clock.advance(LEASE + 1)
        stack.ledger.heartbeat("w2", LEASE)

        assert [ready.token for ready in await stack.ledger.expire()] == ["mail-0"]

        [again] = await stack.claim(worker="w2")
        assert await stack.claim(worker="w3") == []
        # The worker that was presumed dead returns: its commit is refused and frees nothing.
        assert await stack.commit(step(lost)) == [Stale("fence")]
        assert await stack.claim(worker="w3") == []
        await stack.apply(step(again))
        assert len(await stack.claim(worker="w3")) == 1

    async def test_m2_given_back_by_a_late_hand_back_only_once(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lost] = await stack.claim()
        await stack.ledger.expire(dead=["w1"])
        [again] = await stack.claim(worker="w2")

        await stack.ledger.release("w1", [lost])

        assert await stack.claim(worker="w3") == []
        await stack.apply(step(again))

    async def test_m2_given_back_when_its_execution_ends(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        assert await stack.claim() == []

        [applied] = await stack.apply(cancel(lease.execution))

        assert [ready.token for ready in applied.ready] == ["mail-1"]
        [other] = await stack.claim()
        assert names([other]) == ["mail-1"]
        assert await stack.commit(step(lease)) == [Stale("finished")]
        assert (await stack.limits.get("mail")).in_use == 1

    async def test_m2_given_back_when_the_token_is_dropped(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        assert await stack.claim() == []

        [applied] = await stack.apply(command(lease.execution, DropTokens((lease.token,))))

        assert [ready.token for ready in applied.ready] == ["mail-1"]
        assert names(await stack.claim()) == ["mail-1"]

    async def test_m2_given_back_by_the_late_commit_of_a_closed_scope(self, stack: ContractStack) -> None:
        spec = aggregator(expected=1)
        inside = token("inside", "/0", key="mail", allows=ONE)
        await stack.apply(
            start("run-a", OpenBarrier(spec), OpenScope("/0", spec.id, 0), inside), start("run-b", token("b"))
        )
        leases = await stack.take()
        await fill(stack, "mail", 1)
        assert await stack.claim() == []
        await stack.apply(command("run-a", EndScope("/0", b"1")))

        [late] = await stack.commit(step(leases["inside"]))

        assert isinstance(late, Stale)
        assert late.reason == "scope"
        assert [ready.token for ready in late.ready] == ["mail-0"]
        assert "mail-0" in names(await stack.claim())

    async def test_m2_given_back_by_the_late_commit_of_an_execution_only_once(
        self, stack: ContractStack
    ) -> None:
        """The ending may not have seen a lease of the same moment, so the late commit names the next token, too."""
        await fill(stack, "mail", 3)
        [lease] = await stack.claim()
        await stack.apply(cancel(lease.execution))

        [late] = await stack.commit(step(lease))

        assert isinstance(late, Stale)
        assert (late.reason, [ready.token for ready in late.ready]) == ("finished", ["mail-1"])
        assert names(await stack.claim()) == ["mail-1"]
        assert await stack.commit(step(lease)) == [Stale("finished")]
        assert await stack.claim(worker="w2") == []
        assert (await stack.limits.get("mail")).in_use == 1

    async def test_m1_bounded_over_pause_and_resume(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2)
        [lease] = await stack.claim()
        await stack.apply(pause("run-mail-1"))
        await stack.apply(resume("run-mail-1"))
        assert await stack.claim() == []
        await stack.apply(pause("run-mail-1"))
        await stack.apply(step(lease))
        assert await stack.claim() == []
        await stack.apply(resume("run-mail-1"))
        assert names(await stack.claim()) == ["mail-1"]


class SharedLimits(Topic):
    guarantees = frozenset(("M1", "M2"))
    needs = frozenset(("commit", "limits", "leases", "shared"))

    async def test_m1_bounded_over_processes(self, stack: ContractStack) -> None:
        other = await stack.second()
        await fill(stack, "mail", 3)

        [lease] = await stack.claim()
        assert await other.claim(worker="w2") == []
        await stack.apply(step(lease))
        [lease] = await other.claim(worker="w2")
        assert await stack.claim() == []
        await stack.limits.set("mail", TWO)
        assert names(await other.claim(worker="w2")) == ["mail-2"]

    async def test_m2_given_back_by_another_process(self, stack: ContractStack) -> None:
        other = await stack.second()
        await fill(stack, "mail", 2)
        await stack.claim()
        assert await other.claim(worker="w2") == []

        await other.ledger.expire(dead=["w1"])

        assert len(await other.claim(worker="w2")) == 1
        assert await stack.claim(worker="w3") == []


class LedgerRates(Topic):
    guarantees = frozenset(("M3",))
    needs = frozenset(("commit", "limits", "leases", "time"))

    async def test_m3_paced_in_any_period(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 6, Allowance(rate=Rate(2, 10.0)))
        assert names(await stack.claim(limit=1)) == ["mail-0"]
        stack.clock.advance(6)
        assert names(await stack.claim()) == ["mail-1"]

        stack.clock.advance(3.9)
        assert await stack.claim() == []
        stack.clock.advance(0.1)
        assert names(await stack.claim()) == ["mail-2"]
        assert await stack.claim() == []
        stack.clock.advance(6)
        assert names(await stack.claim()) == ["mail-3"]

    async def test_m3_paced_by_starts_not_by_ends(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        [lease] = await stack.claim()
        await stack.apply(step(lease))

        assert await stack.claim() == []

    async def test_m3_paced_token_is_woken_when_its_time_comes(self, stack: ContractStack) -> None:
        openings: list[float] = []
        stack.limits.on_opening(openings.append)
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        began = stack.clock.now()
        await stack.claim()

        assert openings == [began + 10]
        woken = await stack.ledger.wake()
        assert (woken.ready, woken.next_due) == ((), began + 10)
        stack.clock.advance(10)
        woken = await stack.ledger.wake()
        assert [ready.token for ready in woken.ready] == ["mail-1"]
        assert names(await stack.claim()) == ["mail-1"]

    async def test_m3_paced_by_what_operators_set(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 3, Allowance(rate=Rate(1, 10.0)))
        await stack.claim()
        await stack.limits.set("mail", Allowance(rate=Rate(2, 10.0)))

        assert names(await stack.claim()) == ["mail-1"]
        assert await stack.claim() == []
        view = await stack.limits.get("mail")
        assert view.opens_at == stack.clock.now() + 10

    async def test_m3_paced_leases_by_name(self, stack: ContractStack) -> None:
        await fill(stack, "mail", 2, Allowance(rate=Rate(1, 10.0)))
        ready = [ReadyToken(f"mail-{number}", f"run-mail-{number}", "default", 0) for number in range(2)]

        assert names(await stack.ledger.lease("w1", ready)) == ["mail-0"]
        assert await stack.claim() == []
        stack.clock.advance(10)
        assert names(await stack.ledger.lease("w1", ready)) == ["mail-1"]


class LedgerTurns(Topic):
    guarantees = frozenset(("M4",))
    needs = frozenset(("commit", "limits", "leases"))

    async def test_m4_in_turns_although_one_key_has_many(self, stack: ContractStack) -> None:
        await fill(stack, "a", 4, None)
        stack.clock.advance(1)
        await fill(stack, "b", 2, None)
        await fill(stack, "c", 1, None)

        order = [(await stack.claim(limit=1))[0].token for _ in range(7)]

        assert order == ["a-0", "b-0", "c-0", "a-1", "b-1", "a-2", "a-3"]

    async def test_m4_in_turns_within_one_claim(self, stack: ContractStack) -> None:
        await fill(stack, "a", 3, None)
        await fill(stack, "b", 3, None)

        assert names(await stack.claim(limit=4)) == ["a-0", "b-0", "a-1", "b-1"]

    async def test_m4_in_turns_after_priorities(self, stack: ContractStack) -> None:
        await fill(stack, "a", 2, None)
        await fill(stack, "b", 2, None, priority=5)
        await stack.apply(start("run-x", token("x", priority=3)))
        await stack.apply(start(new_execution("run-y"), token("y")))

        assert names(await stack.claim()) == ["b-0", "b-1", "x", "a-0", "a-1", "y"]

    async def test_m4_in_turns_with_tokens_that_have_no_key_by_age(self, stack: ContractStack) -> None:
        for name, key in (("x0", None), ("k0", "k"), ("x1", None), ("k1", "k"), ("x2", None)):
            await stack.apply(start(f"run-{name}", token(name, key=key)))
            stack.clock.advance(1)

        order = [(await stack.claim(limit=1))[0].token for _ in range(5)]

        assert order == ["x0", "k0", "x1", "k1", "x2"]

    async def test_m4_in_turns_past_keys_without_room(self, stack: ContractStack) -> None:
        for number in range(50):
            await fill(stack, f"full{number}", 3)
        assert len(await stack.claim()) == 50
        stack.clock.advance(1)
        await fill(stack, "free", 1)
        await stack.apply(start("run-x", token("x")))

        assert names(await stack.claim(limit=5)) == ["free-0", "x"]

    async def test_m4_in_turns_a_more_urgent_token_of_a_full_key_goes_first(
        self, stack: ContractStack
    ) -> None:
        await fill(stack, "mail", 3)
        [lease] = await stack.claim()
        assert await stack.claim() == []
        await stack.apply(start("run-urgent", token("urgent", key="mail", allows=ONE, priority=9)))

        await stack.apply(step(lease))

        assert names(await stack.claim()) == ["urgent"]


class LedgerQueues(Topic):
    """Counting changes nothing, and is correct at any moment."""

    guarantees = frozenset(("L9",))
    needs = frozenset(("commit", "leases"))

    async def test_l9_queues_show_what_is_ready_since_when_and_what_is_leased(
        self, stack: ContractStack
    ) -> None:
        began = stack.clock.now()
        await stack.apply(start(RUN, token("a"), token("b"), token("c", queue="other"), token("z", due=9e9)))
        assert await stack.ledger.queues() == [
            QueueView("default", 2, 0, began),
            QueueView("other", 1, 0, began),
        ]

        [lease] = await stack.claim(1)
        assert await stack.ledger.queues() == [
            QueueView("default", 1, 1, began),
            QueueView("other", 1, 0, began),
        ]

        await stack.apply(step(lease))
        assert await stack.ledger.queues() == [
            QueueView("default", 1, 0, began),
            QueueView("other", 1, 0, began),
        ]

    async def test_l9_queues_with_limit_keys_are_counted_together_with_the_others(
        self, stack: ContractStack
    ) -> None:
        began = stack.clock.now()
        await stack.apply(start(RUN, token("a"), token("b", key="k")))
        assert await stack.ledger.queues() == [QueueView("default", 2, 0, began)]

    async def test_l9_queues_of_each_kind_are_all_found_and_in_order(self, stack: ContractStack) -> None:
        began = stack.clock.now()
        keys = {"b": None, "d": "k", "a": "k", "c": None, "e": "j"}
        await stack.apply(
            start(
                RUN, *(token(f"{name}{n}", queue=name, key=key) for name, key in keys.items() for n in (1, 2))
            )
        )
        assert await stack.ledger.queues() == [QueueView(name, 2, 0, began) for name in "abcde"]

    async def test_l9_empty_queues_are_not_shown(self, stack: ContractStack) -> None:
        assert await stack.ledger.queues() == []
