"""Cleaning up after endings, and finding what a crash left unannounced (L5, L6, L8)."""

from __future__ import annotations

from dalsegno.model.effect import LeaveContext, StoreOutput
from dalsegno.model.transition import ReadyToken, Stale
from dalsegno.testing.contract.build import (
    RUN,
    arrive,
    barrier,
    cancel,
    deadline,
    finish,
    last,
    start,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


async def sweep_all(stack: ContractStack, limit: int = 500) -> int:
    """Sweeps until nothing is left; returns how many rows went."""
    total = 0
    while gone := await stack.ledger.sweep(limit):
        assert gone <= limit
        total += gone
    return total


class LedgerSweep(Topic):
    guarantees = frozenset(("L5", "L8"))
    needs = frozenset(("commit", "sweep"))

    async def test_l5_sweep_leaves_running_executions_alone(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0)))
        before = await stack.picture()

        assert await sweep_all(stack) == 0
        assert await stack.picture() == before

    async def test_l5_sweep_removes_tokens_and_barriers_but_not_the_result(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(
            step(leases["a"], StoreOutput("out", b"1"), arrive(barrier(), 0), LeaveContext("", "0", b"x"))
        )
        await stack.apply(step(leases["b"], finish("FAILED", b'"why"')))

        assert await sweep_all(stack) > 0

        found = await stack.ledger.inspect(RUN)
        assert found is not None
        assert (found.tokens, found.barriers) == ((), ())
        assert (found.execution.state, found.execution.output) == ("FAILED", b'"why"')
        assert await stack.ledger.outputs(RUN, ["out"]) == {"out": b"1"}
        assert await stack.ledger.slots(RUN, barrier().id) == []
        assert [left.data for left in await stack.ledger.left(RUN, "")] == [b"x"]  # part of its final context

    async def test_l5_sweep_goes_in_chunks(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(token(f"t{number:02}") for number in range(35))))
        await stack.apply(cancel())

        chunks = []
        while gone := await stack.ledger.sweep(10):
            chunks.append(gone)

        assert max(chunks) <= 10
        assert sum(chunks) >= 35
        assert await stack.tokens() == {}

    async def test_l5_sweep_records_live_nodes_as_cancelled(self, stack: ContractStack) -> None:
        leases = await stack.begin(
            token("running", node="x"),
            token("sleeping", node="y", due=9e9),
            token("a"),
            deadline("timeout", 9e9),
        )
        await stack.apply(step(leases["a"], arrive(barrier(), 0)))
        await stack.apply(cancel())

        await sweep_all(stack, 2)

        events = await stack.events()
        cancelled = {(found.node, found.token) for found in events if found.kind == "NodeCancelled"}
        assert cancelled == {("x", "running"), ("y", "sleeping"), ("merge", "join-merge")}

    async def test_l8_sweep_continues_the_numbering(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, *(token(f"t{number}") for number in range(7))))
        await stack.apply(cancel())

        await sweep_all(stack, 3)

        events = await stack.events()
        assert [found.seq for found in events] == list(range(1, 10))
        assert [found.kind for found in events[2:]] == ["NodeCancelled"] * 7
        assert (await stack.execution()).seq == 9

    async def test_l5_sweep_of_a_finished_chain_records_nothing(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.apply(step(lease, last()))
        before = await stack.events()

        await sweep_all(stack)

        assert await stack.events() == before

    async def test_l5_sweep_late_commits_are_still_finished(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], finish()))
        await sweep_all(stack)
        before = await stack.picture()

        late = step(leases["b"], token("c"))
        assert await stack.commit(late, step(leases["a"], finish()), cancel()) == [Stale("finished")] * 3
        assert await stack.picture() == before
        assert await stack.take() == {}

    async def test_l5_sweep_restart_under_the_same_id_is_refused(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(cancel())
        await sweep_all(stack)

        [outcome] = await stack.commit(start(RUN, token("a")))

        assert type(outcome).__name__ == "AlreadyApplied"
        assert await stack.take() == {}


class LedgerReconciling(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "sweep"))

    async def test_l6_nothing_stuck_untouched_executions_are_found_in_id_order(
        self, stack: ContractStack
    ) -> None:
        for name in ("run-c", "run-a", "run-b"):
            await stack.apply(start(name, token("t")))
        stack.clock.advance(300)
        now = stack.clock.now()

        assert await stack.ledger.untouched(now - 299, "", 10) == (("run-a", "run-b", "run-c"), "")
        assert await stack.ledger.untouched(now - 299, "", 2) == (("run-a", "run-b"), "run-b")
        assert await stack.ledger.untouched(now - 299, "run-b", 2) == (("run-c",), "")
        assert await stack.ledger.untouched(now - 301, "", 10) == ((), "")

    async def test_l6_nothing_stuck_a_look_is_bounded_by_what_it_passes_over(
        self, stack: ContractStack
    ) -> None:
        """However few are quiet, no look walks through all the others."""
        await stack.apply(start("run-d", token("t")))
        stack.clock.advance(300)
        for name in ("run-a", "run-b", "run-c"):
            await stack.apply(start(name, token("t")))
        before = stack.clock.now() - 10

        assert await stack.ledger.untouched(before, "", 2) == ((), "run-b")
        assert await stack.ledger.untouched(before, "run-b", 2) == (("run-d",), "run-d")
        assert await stack.ledger.untouched(before, "run-d", 2) == ((), "")

    async def test_l6_nothing_stuck_untouched_passes_over_ended_and_touched_ones(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(
            start("run-ended", token("a")), start("run-moved", token("b")), start("run-stuck", token("c"))
        )
        leases = await stack.take()
        stack.clock.advance(300)
        await stack.apply(cancel("run-ended"), step(leases["b"], token("b2")))

        assert await stack.ledger.untouched(stack.clock.now() - 10, "", 10) == (("run-stuck",), "")

    async def test_l6_nothing_stuck_ready_tokens_can_be_announced_again(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a", priority=2), token("b", queue="gpu"), token("c", due=9e9)))

        ready = await stack.ledger.ready(RUN)
        assert set(ready) == {ReadyToken("a", RUN, "default", 2), ReadyToken("b", RUN, "gpu", 0)}

        await stack.claim(queues=["gpu"])
        assert await stack.ledger.ready(RUN) == (ReadyToken("a", RUN, "default", 2),)
