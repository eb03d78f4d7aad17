"""L9: a transition touches only its own execution; claims are fair and can exclude a workflow.

Workers learn which runs have become useless (L4, L5).
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from dalsegno.model.effect import CancelTokens, EndScope, LeaveContext, StoreOutput
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.limits import Allowance
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Applied, Stale, Transition
from dalsegno.testing.contract.builders import (
    RUN,
    arrive,
    barrier,
    cancel,
    event,
    finish,
    finisher,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.ledger.ending import sweep_all
from dalsegno.testing.contract.ledger.leases import lose
from dalsegno.testing.contract.ledger.machines import T1, end_script, moved
from dalsegno.testing.contract.script_builders import (
    ask_to_end,
    item,
    new_script,
    open_split,
    resume_id,
    resume_token,
    suspend,
    task,
    tasks,
)
from dalsegno.testing.contract.stack import ALL_QUEUES, ContractStack, Topic


class LedgerIsolation(Topic):
    guarantees = frozenset(("L9",))

    async def test_l9_isolation_nothing_of_another_execution_can_be_read(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        lease = (await stack.take())["a"]
        await stack.apply(
            step(
                lease,
                StoreOutput("out", b"secret"),
                LeaveContext("", "0", b"secret"),
                arrive(barrier(), 0, b"s"),
            )
        )

        assert await stack.ledger.outputs("run-b", ["out"]) == {}
        assert await stack.ledger.left("run-b", "") == []
        assert await stack.ledger.slots("run-b", barrier().id) == []
        assert await stack.ledger.outputs("run-a", ["out", "no-such"]) == {"out": b"secret"}

    async def test_l9_isolation_outputs_of_the_same_id_do_not_meet(self, stack: ContractStack) -> None:
        await stack.apply(
            start("run-a", StoreOutput("out", b"of a")), start("run-b", StoreOutput("out", b"of b"))
        )

        assert await stack.ledger.outputs("run-a", ["out"]) == {"out": b"of a"}
        assert await stack.ledger.outputs("run-b", ["out"]) == {"out": b"of b"}

    async def test_l9_isolation_a_token_cannot_be_consumed_in_anothers_name(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        lease = (await stack.take())["a"]

        assert await stack.commit(Transition("run-b", (), (), "a", lease.fence)) == [Stale("unknown")]
        assert set(await stack.tokens("run-a")) == {"a"}
        assert set(await stack.tokens("run-b")) == {"b"}

    async def test_l9_isolation_cancelling_one_leaves_the_other(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        before = await stack.picture("run-b")

        await stack.apply(cancel("run-a"))

        assert await stack.picture("run-b") == before
        assert set(await stack.take()) == {"b"}

    async def test_l9_isolation_batches_at_once_do_not_put_each_other_off(self, stack: ContractStack) -> None:
        """Starts, steps and endings: a process sends the next batch while the one before is in flight."""
        groups = [[f"run-{group}-{number}" for number in range(5)] for group in range(4)]

        async def commit_all(batches: list[list[Transition]]) -> None:
            answers = await asyncio.gather(*(stack.ledger.commit(batch) for batch in batches))
            for outcome in (outcome for outcomes in answers for outcome in outcomes):
                assert isinstance(outcome, Applied)

        await commit_all([[start(run, token(f"{run}-a")) for run in runs] for runs in groups])
        leases = await stack.take()
        await commit_all(
            [
                [step(leases[f"{run}-a"], token(f"{run}-b"), events=[event()]) for run in runs]
                for runs in groups
            ]
        )
        leases = await stack.take()
        await commit_all([[step(leases[f"{run}-b"], finish()) for run in runs] for runs in groups])

        for run in (run for runs in groups for run in runs):
            assert (await stack.execution(run)).state == "COMPLETED"
            assert [found.seq for found in await stack.events(run)] == [1, 2, 3]

    async def test_l9_isolation_of_what_does_not_exist(self, stack: ContractStack) -> None:
        assert await stack.ledger.inspect("nowhere") is None
        assert await stack.ledger.outputs("nowhere", ["x"]) == {}
        assert await stack.ledger.left("nowhere", "") == []
        assert await stack.ledger.slots("nowhere", "x") == []
        assert await stack.ledger.ready("nowhere") == ()


class LedgerClaims(Topic):
    guarantees = frozenset(("L9",))

    async def test_l9_claims_take_higher_priority_first_then_age(self, stack: ContractStack) -> None:
        for name, priority in (("old-low", -5), ("old", 0), ("new", 0), ("urgent", 7), ("new-low", -5)):
            await stack.apply(start(f"run-{name}", token(name, priority=priority)))
            stack.clock.advance(1)

        order = [lease.token for lease in await stack.claim()]

        assert order == ["urgent", "old", "new", "old-low", "new-low"]

    async def test_l9_claims_order_across_queues(self, stack: ContractStack) -> None:
        for name, queue in (("t1", "system"), ("t2", "default"), ("t3", "system")):
            await stack.apply(start(f"run-{name}", token(name, queue=queue)))
            stack.clock.advance(1)

        assert [lease.token for lease in await stack.claim()] == ["t1", "t2", "t3"]

    async def test_l9_claims_take_only_from_the_queues_they_name(self, stack: ContractStack) -> None:
        await stack.apply(
            start("run-1", token("a", queue="mail"), token("b", queue="gpu"), token("c", queue="default"))
        )

        assert {lease.token for lease in await stack.claim(queues=["gpu", "mail"])} == {"a", "b"}
        assert await stack.claim(queues=["gpu", "absent"]) == []
        assert await stack.claim(queues=[]) == []

    async def test_l9_claims_take_at_most_the_limit_oldest_first(self, stack: ContractStack) -> None:
        for number in range(6):
            await stack.apply(start(f"run-{number}", token(f"t{number}")))
            stack.clock.advance(1)

        assert [lease.token for lease in await stack.claim(2)] == ["t0", "t1"]
        assert [lease.token for lease in await stack.claim(2)] == ["t2", "t3"]
        assert [lease.token for lease in await stack.claim(9)] == ["t4", "t5"]

    async def test_l9_claims_a_wide_fan_out_does_not_overtake_what_waits(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("wide")))["wide"]
        await stack.apply(start("run-small", token("patient")))
        stack.clock.advance(1)
        await stack.apply(step(lease, *(token(f"t{number:03}") for number in range(200))))

        assert [lease.token for lease in await stack.claim(1)] == ["patient"]

    async def test_l9_claims_tell_everything_about_the_token(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(definition="hash-7"), token("a", data=b"\x00\xff", priority=3)))
        stack.clock.advance(1)

        [lease] = await stack.claim()

        assert (lease.token, lease.execution, lease.scope, lease.kind, lease.node) == (
            "a",
            "run-1",
            "",
            "node",
            "a",
        )
        assert (lease.data, lease.queue, lease.priority, lease.live) == (b"\x00\xff", "default", 3, True)
        assert (lease.fence, lease.attempt, lease.losses, lease.reason) == (1, 1, 0, "")
        assert (lease.definition, lease.epoch, lease.ready_at) == ("hash-7", 0, stack.clock.now() - 1)

    async def test_l9_claims_show_in_the_tokens_view(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1", token("a"), token("b", due=9e9)))
        await stack.claim(worker="me")

        tokens = await stack.tokens()

        assert (tokens["a"].state, tokens["a"].owner, tokens["a"].fence) == ("leased", "me", 1)
        assert (tokens["b"].state, tokens["b"].owner, tokens["b"].due) == ("parked", None, 9e9)

    async def test_l9_claims_leave_no_trace_in_history(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, token("b"), events=[event()]))
        before = await stack.events()

        await stack.take()

        assert await stack.events() == before


class LedgerObsoleteLeases(Topic):
    guarantees = frozenset(("L4", "L5"))
    needs = frozenset(("commit", "leases", "cancelling", "pausing", "sweep", "scripts"))

    async def test_l5_lease_of_a_running_or_paused_execution_is_of_use(self, stack: ContractStack) -> None:
        leases = list((await stack.begin(token("a"), token("b"))).values())
        assert await stack.ledger.obsolete(leases) == []
        assert await stack.ledger.obsolete([]) == []

        await stack.apply(pause())

        assert await stack.ledger.obsolete(leases) == []

    async def test_l5_leases_are_obsolete_once_their_execution_has_ended(self, stack: ContractStack) -> None:
        await stack.apply(start("run-a", token("a")), start("run-b", token("b")))
        leases = await stack.take()
        await stack.apply(cancel("run-a"))

        assert await stack.ledger.obsolete(list(leases.values())) == [leases["a"]]

        await sweep_all(stack)
        assert await stack.ledger.obsolete(list(leases.values())) == [leases["a"]]
        strange = replace(leases["b"], execution="no-such")
        assert await stack.ledger.obsolete([strange, leases["b"]]) == [strange]

    async def test_l4_lease_is_obsolete_once_the_token_was_lost_or_handed_back(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.ledger.release("w1", [leases["b"]])
        assert await stack.ledger.obsolete(list(leases.values())) == [leases["b"]]

        await lose(stack)
        again = (await stack.take("w2"))["a"]

        assert await stack.ledger.obsolete([leases["a"], again]) == [leases["a"]]

    async def test_l5_lease_is_obsolete_once_its_token_was_consumed_or_cancelled(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("winner"), token("loser", node="x"), token("other"))

        await stack.apply(step(leases["winner"], CancelTokens("", ("x",)), token("next")))

        assert await stack.ledger.obsolete(list(leases.values())) == [leases["winner"], leases["loser"]]

    async def test_l5_leases_in_an_item_that_was_halted_are_obsolete_and_those_below_it(
        self, stack: ContractStack
    ) -> None:
        items = await open_split(stack, 2)
        *inner, sibling = await open_split(stack, 2, parent=items[0], also=(token("sibling", item(0)),))
        assert await stack.ledger.obsolete([*inner, sibling, items[1]]) == []

        await stack.apply(step(sibling, EndScope(item(0), b"halted")))

        assert await stack.ledger.obsolete([*inner, items[1]]) == inner

    async def test_l5_task_that_was_handed_over_goes_on(self, stack: ContractStack) -> None:
        await suspend(stack, task("t1"), task("last", queue="last"))
        lease = (await tasks(stack))["t1"]
        await end_script(stack)

        assert await stack.ledger.obsolete([lease, moved(lease)]) == []

        await stack.apply(cancel(T1))
        assert await stack.ledger.obsolete([lease, moved(lease)]) == [lease, moved(lease)]


def begin(workflow: str, *tokens: NewToken, kind: ExecutionKind = "graph") -> Transition:
    """Create an execution whose id is its workflow's name."""
    return start(new_execution(workflow, workflow=workflow, kind=kind), *tokens)


async def claim_others(
    stack: ContractStack, *pass_over: str, limit: int = 100, only_long: bool = True
) -> list[str]:
    leases = await stack.ledger.claim_others("w1", ALL_QUEUES, limit, pass_over, only_long=only_long)
    return [lease.token for lease in leases]


class LedgerPassedOver(Topic):
    guarantees = frozenset(("L4", "L5", "L9"))
    needs = frozenset(("commit", "leases", "limits", "scripts", "pausing"))

    async def test_l9_others_are_claimed_by_priority_then_age(self, stack: ContractStack) -> None:
        await stack.apply(begin("hog", *[token(f"h{number}", priority=9) for number in range(20)]))
        for number in range(3):
            stack.clock.advance(1)
            await stack.apply(begin(f"o{number}", token(f"t{number}")))
        await stack.apply(begin("urgent", token("first", priority=1)))

        assert await claim_others(stack, "hog", limit=2) == ["first", "t0"]
        assert await claim_others(stack, "hog", "o1") == ["t2"]
        assert await claim_others(stack, "hog") == ["t1"]
        assert await claim_others(stack, "hog") == []

    async def test_l9_everything_of_a_workflow_can_be_passed_over(self, stack: ContractStack) -> None:
        await stack.apply(
            begin("hog", token("node"), token("end", kind="finish"), token("gone", kind="closed"))
        )
        await stack.apply(begin("other", token("theirs", kind="finish")))

        assert await claim_others(stack, "hog", only_long=False) == ["theirs"]
        assert sorted(await claim_others(stack, "hog")) == ["end", "gone"]

    async def test_l9_what_becomes_ready_later_is_found(self, stack: ContractStack) -> None:
        await stack.apply(begin("hog", *[token(f"h{number}") for number in range(20)]))
        for number in range(5):
            assert await claim_others(stack, "hog") == []
            await stack.apply(begin(f"o{number}", token(f"t{number}")))
            assert await claim_others(stack, "hog") == [f"t{number}"]
            stack.clock.advance(0.4)

    async def test_l9_whatever_makes_a_token_claimable_it_is_found_at_once(
        self, stack: ContractStack
    ) -> None:
        now = stack.clock.now()
        sleeping, paused = begin("sleeping", token("s", due=now + 5)), begin("paused", token("p"))
        await stack.apply(begin("hog", token("h")), begin("other", token("o")), paused, sleeping)
        await stack.apply(pause("paused"))
        [lease] = await stack.ledger.claim_others("w2", ALL_QUEUES, 10, ["hog"])
        assert lease.execution == "other"
        assert await claim_others(stack, "hog") == []

        await stack.ledger.release("w2", [lease])
        [lease] = await stack.ledger.claim_others("w2", ALL_QUEUES, 10, ["hog"])
        assert await claim_others(stack, "hog") == []

        await stack.ledger.expire(("w2",))
        assert await claim_others(stack, "hog") == ["o"]
        assert await claim_others(stack, "hog") == []

        await stack.apply(resume("paused"))
        assert await claim_others(stack, "hog") == ["p"]
        assert await claim_others(stack, "hog") == []

        stack.clock.advance(6)
        await stack.ledger.wake()
        assert await claim_others(stack, "hog") == ["s"]

    async def test_l9_those_passed_over_keep_their_places(self, stack: ContractStack) -> None:
        await stack.apply(begin("hog", token("h0"), token("h1")))
        stack.clock.advance(1)
        await stack.apply(begin("other", token("o0")))
        assert await claim_others(stack, "hog", "other") == []

        assert [lease.token for lease in await stack.claim(2)] == ["h0", "h1"]

    async def test_l4_lease_of_another_is_as_good_as_a_claimed_one(self, stack: ContractStack) -> None:
        await stack.apply(begin("hog", token("h")), begin("other", token("o")))
        [lease] = await stack.ledger.claim_others("w1", ALL_QUEUES, 10, ["hog"])

        assert (lease.execution, lease.definition, lease.fence) == ("other", "hash-of-orders", 1)
        assert (await stack.tokens("other"))["o"].owner == "w1"
        await stack.apply(step(lease, finish()))
        assert (await stack.execution("other")).state == "COMPLETED"

    async def test_l9_bookkeeping_and_metered_turns_are_not_passed_over(self, stack: ContractStack) -> None:
        ticking = token("t", kind="deadline", node="", live=False)
        await stack.apply(begin("hog", token("h"), finisher(), ticking))
        for kind in ("script", "python"):
            await stack.apply(start(replace(new_script(kind), workflow="hog", kind=kind), resume_token(kind)))

        claimed = await claim_others(stack, "hog")

        assert set(claimed) == {"t", finisher().id, resume_id(0, "script")}
        assert await claim_others(stack) == [resume_id(0, "python"), "h"]

    async def test_l9_a_python_workflow_that_was_asked_to_end_is_not_passed_over(
        self, stack: ContractStack
    ) -> None:
        new = replace(new_script("python"), workflow="hog", kind="python")
        await stack.apply(start(new, resume_token("python")))
        assert await claim_others(stack, "hog") == []

        await stack.apply(ask_to_end("python"))

        assert await claim_others(stack, "hog") == [resume_id(0, "python")]

    async def test_l9_others_in_the_line_of_a_key_go_past_those_that_wait_there(
        self, stack: ContractStack
    ) -> None:
        two = Allowance(concurrency=2)
        holders = [token(f"h{number}", key="gmail", allows=two) for number in range(3)]
        await stack.apply(begin("hog", *holders))
        stack.clock.advance(1)
        others = [token(f"o{number}", key="gmail", allows=two) for number in range(3)]
        await stack.apply(begin("other", *others), begin("plain", token("p")))

        found = await stack.ledger.claim_others("w1", ALL_QUEUES, 1, ["hog"])
        found += await stack.ledger.claim_others("w1", ALL_QUEUES, 10, ["hog"])
        found += await stack.ledger.claim_others("w1", ALL_QUEUES, 10, ["hog"])
        assert sorted(lease.token for lease in found) == ["o0", "o1", "p"], "the key has two slots"

        by_name: dict[str, Lease] = {lease.token: lease for lease in found}
        await stack.apply(step(by_name["o0"], token("done")))
        assert [lease.token for lease in await stack.claim(10)] == ["h0", "done"]

    async def test_l5_paused_and_ended_executions_are_passed_over(self, stack: ContractStack) -> None:
        await stack.apply(begin("hog", token("h")), begin("a", token("a")), begin("b", token("b")))
        await stack.apply(pause("a"), cancel("b"), start(RUN, token("c")))

        assert await claim_others(stack, "hog") == ["c"]
