"""Messages between executions: endings in the outbox, results delivered to promises and to parked tokens."""

from __future__ import annotations

from dalsegno.model.effect import DeliverToToken, EndScope, WriteOutbox
from dalsegno.model.machine import Completion
from dalsegno.model.transition import AlreadyApplied, Park, Stale, Transition
from dalsegno.ports.ledger import OutboxEntry
from dalsegno.testing.contract.builders import (
    RUN,
    cancel,
    command,
    event,
    last,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import (
    delivered,
    item,
    machine_of,
    new_script,
    open_split,
    resume_id,
    resume_lease,
    resume_token,
    resumes,
    save,
    suspend,
)
from dalsegno.testing.contract.stack import ContractStack, Topic


class LedgerNotices(Topic):
    """The outbox entry of an ending."""

    guarantees = frozenset(("L2", "L5"))
    needs = frozenset(("commit", "scripts"))

    async def test_l2_ending_owes_a_notice_in_the_same_commit(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(notify=b"\x00for the parent"), token("a")))
        assert await stack.ledger.outbox() == []

        [applied] = await stack.apply(step((await stack.take())["a"], last()))

        assert applied.owes
        notice = OutboxEntry(f"{RUN}/ended", RUN, "ended", b"\x00for the parent")
        assert await stack.ledger.outbox() == [notice]

    async def test_every_kind_of_ending_owes_it(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution("cancelled", notify=b"1"), token("a")))
        await stack.apply(start(new_script("script", notify=b"2"), resume_token("script")))

        await stack.apply(cancel("cancelled"), cancel("script"))

        assert [entry.id for entry in await stack.ledger.outbox()] == ["cancelled/ended", "script/ended"]

    async def test_execution_without_notify_owes_nothing(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))
        [applied] = await stack.apply(cancel())

        assert not applied.owes
        assert await stack.ledger.outbox() == []

    async def test_l5_notice_is_owed_once(self, stack: ContractStack) -> None:
        await stack.apply(start(new_execution(notify=b""), token("a")))
        await stack.apply(cancel())
        await stack.ledger.delivered([f"{RUN}/ended"])

        assert await stack.commit(cancel()) == [Stale("finished")]
        assert await stack.ledger.outbox() == []

    async def test_outbox_keeps_the_order_in_which_it_was_written(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        for name, owed in (("a", "zay"), ("b", "bcx")):
            entries = [WriteOutbox(entry, "start", b"") for entry in owed]
            [applied] = await stack.apply(step(leases[name], *entries))
            assert applied.owes
        await stack.ledger.delivered(["z", "x"])
        await stack.apply(command(RUN, WriteOutbox("m", "start", b"")))

        assert [entry.id for entry in await stack.ledger.outbox()] == ["a", "y", "b", "c", "m"]


class LedgerDeliveries(Topic):
    """Results of children, delivered at least once."""

    guarantees = frozenset(("L1", "L2", "L5"))
    needs = frozenset(("commit", "scripts"))

    async def test_l2_result_of_a_child_settles_its_promise(self, stack: ContractStack) -> None:
        await suspend(stack)

        [applied] = await stack.apply(command(RUN, delivered(1, b"42"), events=[event("ChildEnded")]))

        assert [found.token for found in applied.ready] == [resume_id(1)]
        assert (await machine_of(stack)).completions == (Completion(1, True, b"42", 1),)

    async def test_l1_result_that_comes_twice_counts_once(self, stack: ContractStack) -> None:
        await suspend(stack, need=2)
        result = command(RUN, delivered(1), events=[event("ChildEnded")])
        await stack.apply(result)
        before = await stack.picture()

        assert await stack.commit(result) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_result_that_comes_twice_in_one_batch_counts_once(self, stack: ContractStack) -> None:
        await suspend(stack, need=2)
        result = command(RUN, delivered(1), events=[event("ChildEnded")])

        outcomes = await stack.commit(result, result)

        assert [type(outcome).__name__ for outcome in outcomes] == ["Applied", "AlreadyApplied"]
        assert await resumes(stack) == []

    async def test_result_that_was_read_and_is_kept_does_not_count_again(self, stack: ContractStack) -> None:
        await suspend(stack)
        result = command(RUN, delivered(1))
        await stack.apply(result)
        await stack.apply(step(await resume_lease(stack, 1), save(1, 1)))

        assert await stack.commit(result) == [AlreadyApplied()]
        assert await resumes(stack) == []

    async def test_l5_result_for_an_ended_parent_is_stale(self, stack: ContractStack) -> None:
        await suspend(stack)
        await stack.apply(cancel())

        assert await stack.commit(command(RUN, delivered(1))) == [Stale("finished")]


def deliver(name: str, awaits: str = "child:c1", data: bytes = b"42") -> Transition:
    return command(RUN, DeliverToToken(name, awaits, data), events=[event("ChildEnded")])


def wait_for_child(due: float | None = None) -> Park:
    return Park(due, b"waiting", 1, awaits="child:c1")


class LedgerArrivals(Topic):
    """Deliveries to graphs: a token parked for a child."""

    guarantees = frozenset(("L1", "L2", "L5"))
    needs = frozenset(("commit", "pausing", "time", "scripts"))

    async def test_l2_result_of_a_child_wakes_its_token(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child()))

        [applied] = await stack.apply(deliver("a", data=b"\x0042"))

        assert [ready.token for ready in applied.ready] == ["a"]
        lease = (await stack.take())["a"]
        assert (lease.reason, lease.data) == ("arrival", b"waiting")
        assert await stack.ledger.outputs(RUN, ["a/arrival"]) == {"a/arrival": b"\x0042"}

    async def test_l1_result_that_comes_again_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child()))
        await stack.apply(deliver("a"))
        before = await stack.picture()

        assert await stack.commit(deliver("a", data=b"other")) == [AlreadyApplied()]
        assert await stack.picture() == before
        assert await stack.ledger.outputs(RUN, ["a/arrival"]) == {"a/arrival": b"42"}

    async def test_result_for_whoever_waits_for_something_else_changes_nothing(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"), token("c"))
        await stack.apply(
            step(leases["a"], park=wait_for_child()), step(leases["b"], park=Park(None, b"", 1))
        )

        for late in (deliver("a", "child:c2"), deliver("b"), deliver("c"), deliver("absent")):
            assert await stack.commit(late) == [AlreadyApplied()]
        assert await stack.take() == {}

    async def test_result_that_comes_after_the_timeout_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child(stack.clock.now() + 5)))
        stack.clock.advance(5)
        await stack.ledger.wake()

        assert await stack.commit(deliver("a")) == [AlreadyApplied()]
        assert (await stack.take())["a"].reason == "timer"

    async def test_signal_does_not_wake_a_token_that_waits_for_a_child(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child()))

        assert await stack.commit(deliver("a", "signal:c1")) == [AlreadyApplied()]
        assert (await stack.tokens())["a"].awaits == "child:c1"

    async def test_result_during_a_pause_is_held(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child()))
        await stack.apply(pause())

        [applied] = await stack.apply(deliver("a"))
        assert (applied.ready, await stack.take()) == ((), {})
        await stack.apply(resume())

        assert (await stack.take())["a"].reason == "arrival"

    async def test_l5_result_for_a_token_of_an_ended_item_changes_nothing(self, stack: ContractStack) -> None:
        first, _second, sibling = await open_split(stack, 2, also=(token("sibling", item(0)),))
        await stack.apply(step(first, park=wait_for_child()))
        await stack.apply(step(sibling, EndScope(item(0), b"1")))

        assert await stack.commit(deliver(first.token)) == [AlreadyApplied()]

    async def test_l5_result_for_an_ended_graph_is_stale(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], park=wait_for_child()))
        await stack.apply(cancel())

        assert await stack.commit(deliver("a")) == [Stale("finished")]
