"""L5: an execution ends exactly once; later commits change nothing.

* CancelTokens removes the tokens at the named nodes of one scope, and the scopes that they hold open below (L5).
* The sweep cleans up after endings, and finds ready tokens that a crash left unannounced (L5, L6, L8).
"""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.model.barrier import LeftView
from dalsegno.model.effect import CancelTokens, LeaveContext, StoreOutput
from dalsegno.model.execution import EndState
from dalsegno.model.transition import Applied, Park, ReadyToken, Stale
from dalsegno.testing.contract.builders import (
    RUN,
    arrive,
    barrier,
    cancel,
    command,
    deadline,
    event,
    finish,
    last,
    last_of_item,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import item, open_split
from dalsegno.testing.contract.stack import ContractStack, Topic


class LedgerEnding(Topic):
    """Finishing, and effects after it."""

    guarantees = frozenset(("L5",))

    @pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "CANCELLED"])
    async def test_l5_one_ending_records_state_output_and_time(
        self, stack: ContractStack, state: EndState
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, finish(state, b'"result"'), events=[event()]))

        assert applied.ended == state
        execution = await stack.execution()
        assert (execution.state, execution.output) == (state, b'"result"')
        assert execution.ended_at == stack.clock.now()
        assert (await stack.kinds())[-1] == f"Execution{state.capitalize()}"

    async def test_l5_one_ending_late_commit_is_finished(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], finish()))
        before = await stack.picture()

        late = step(leases["b"], token("c"), StoreOutput("x", b"1"), finish("FAILED"), events=[event()])
        assert await stack.commit(late) == [Stale("finished")]

        assert await stack.picture() == before
        assert await stack.ledger.outputs(RUN, ["x"]) == {}

    async def test_l5_one_ending_second_cancel_is_finished(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(cancel())
        before = await stack.picture()

        assert await stack.commit(cancel()) == [Stale("finished")]
        assert await stack.picture() == before

    async def test_l5_one_ending_arrival_from_outside_after_the_end(self, stack: ContractStack) -> None:
        await stack.begin(token("a"))
        await stack.apply(cancel())
        before = await stack.picture()

        assert await stack.commit(command(RUN, token("new"), events=[event()])) == [Stale("finished")]
        assert await stack.picture() == before

    async def test_l5_one_ending_claims_find_nothing_of_an_ended_execution(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"))
        await stack.apply(step(leases["a"], token("b"), token("c")))
        await stack.apply(cancel())

        assert await stack.take() == {}

    async def test_l5_one_ending_of_two_in_one_batch_the_first_wins(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        first, second = await stack.commit(step(leases["a"], finish()), step(leases["b"], finish("FAILED")))

        assert isinstance(first, Applied)
        assert second == Stale("finished")
        assert (await stack.execution()).state == "COMPLETED"
        assert (await stack.kinds()).count("ExecutionCompleted") == 1

    async def test_l5_one_ending_of_many_concurrent_ones_exactly_one_applies(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(*(token(f"t{number}") for number in range(8)))

        outcomes = await asyncio.gather(*(stack.commit(step(lease, finish())) for lease in leases.values()))

        assert sorted(type(outcome).__name__ for [outcome] in outcomes) == ["Applied"] + ["Stale"] * 7
        assert await stack.kinds() == ["ExecutionStarted", "ExecutionCompleted"]


class LedgerEndIfLast(Topic):
    """Ending by count: the last branch finishes, or makes the finisher ready."""

    guarantees = frozenset(("L5",))

    async def test_l5_end_if_last_alone_finishes_without_another_hop(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, last()))

        assert applied.ended == "COMPLETED"
        assert applied.ready == ()
        assert await stack.ledger.left(RUN, "") == []
        assert (await stack.execution()).output == b'"done"'

    async def test_l5_end_if_last_leaves_its_context_while_others_live(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))

        [applied] = await stack.apply(step(leases["a"], last("0", b"of a")))

        assert applied.ended is None
        assert applied.ready == ()
        assert await stack.ledger.left(RUN, "") == [LeftView("0", b"of a")]
        assert (await stack.execution()).state == "RUNNING"

    async def test_l5_end_if_last_unites_in_a_finisher_when_something_was_left(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["b"], last("1", b"of b")))

        [applied] = await stack.apply(step(leases["a"], last("0", b"of a")))

        assert applied.ended is None
        assert [ready.token for ready in applied.ready] == ["finish"]
        assert await stack.ledger.left(RUN, "") == [LeftView("0", b"of a"), LeftView("1", b"of b")]
        lease = (await stack.take())["finish"]
        assert lease.kind == "finish"
        assert (await stack.execution()).live == 1
        [finished] = await stack.apply(step(lease, finish()))
        assert finished.ended == "COMPLETED"

    async def test_l5_end_if_last_two_leaves_in_one_batch_make_one_finisher(
        self, stack: ContractStack
    ) -> None:
        leases = await stack.begin(token("a"), token("b"))

        first, second = await stack.apply(step(leases["a"], last("0")), step(leases["b"], last("1")))

        assert first.ended is None
        assert second.ended is None
        assert set(await stack.take()) == {"finish"}
        assert [left.key for left in await stack.ledger.left(RUN, "")] == ["0", "1"]

    async def test_l5_end_if_last_without_a_known_ending_makes_the_finisher_ready(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, last("0", b"of a", output=None)))

        assert applied.ended is None
        assert set(await stack.take()) == {"finish"}
        assert await stack.ledger.left(RUN, "") == [LeftView("0", b"of a")]

    async def test_l5_end_if_last_with_nothing_to_leave_still_ends(self, stack: ContractStack) -> None:
        """The last arrival of a run was dropped. No branch left a context, but the execution must still finish."""
        lease = (await stack.begin(token("a")))["a"]

        await stack.apply(step(lease, last(left=None, output=None)))

        assert set(await stack.take()) == {"finish"}
        assert await stack.ledger.left(RUN, "") == []

    async def test_l5_end_if_last_counts_what_the_same_commit_spawned(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, last("0", b"of a"), token("b")))

        assert applied.ended is None
        assert [ready.token for ready in applied.ready] == ["b"]

    async def test_l5_end_if_last_ignores_tokens_that_hold_nothing_open(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("timeout", kind="deadline", due=9e9, live=False))

        [applied] = await stack.apply(step(leases["a"], last()))

        assert applied.ended == "COMPLETED"

    async def test_l5_end_if_last_parked_tokens_hold_the_execution_open(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("sleeper", due=9e9))

        [applied] = await stack.apply(step(leases["a"], last()))

        assert applied.ended is None

    async def test_l5_end_if_last_does_not_end_what_its_own_step_has_ended(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, finish("FAILED", b'"bad"'), last()))

        assert applied.ended == "FAILED"
        assert (await stack.execution()).output == b'"bad"'
        assert await stack.kinds() == ["ExecutionStarted", "ExecutionFailed"]

    async def test_l5_end_if_last_sees_contexts_left_earlier_in_the_same_commit(
        self, stack: ContractStack
    ) -> None:
        lease = (await stack.begin(token("a")))["a"]

        [applied] = await stack.apply(step(lease, LeaveContext("", "5", b"x"), last("6", b"y")))

        assert applied.ended is None
        assert [left.key for left in await stack.ledger.left(RUN, "")] == ["5", "6"]


async def sweep_all(stack: ContractStack, limit: int = 500) -> int:
    """Sweep until nothing is left; return the number of removed rows."""
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
        """However few executions are quiet, a scan visits at most ``limit`` of the others."""
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
        assert set(ready) == {ReadyToken("a", RUN, "default", 2, "a"), ReadyToken("b", RUN, "gpu", 0, "b")}

        await stack.claim(queues=["gpu"])
        assert await stack.ledger.ready(RUN) == (ReadyToken("a", RUN, "default", 2, "a"),)


class LedgerCancelling(Topic):
    guarantees = frozenset(("L5",))
    needs = frozenset(("commit", "cancelling"))

    async def test_l5_cancel_drops_ready_parked_and_leased_tokens(self, stack: ContractStack) -> None:
        leases = await stack.begin(
            token("winner"), token("running", node="x"), token("sleeping", node="y", due=9e9)
        )
        await stack.apply(step(leases["winner"], token("next", priority=1), token("ready", node="z")))

        await stack.apply(step((await stack.claim(1))[0], CancelTokens("", ("x", "y", "z")), token("stays")))

        assert set(await stack.take()) == set(await stack.tokens()) == {"stays"}
        assert (await stack.execution()).live == 1
        assert await stack.commit(step(leases["running"], token("late"))) == [Stale("fence")]

    async def test_l5_cancel_records_each_dropped_token(self, stack: ContractStack) -> None:
        leases = await stack.begin(
            token("winner"), token("running", node="x"), token("sleeping", node="y", due=9e9)
        )

        await stack.apply(step(leases["winner"], CancelTokens("", ("x", "y")), events=[event()]))

        cancelled = [found for found in await stack.events() if found.kind == "NodeCancelled"]
        assert {(found.node, found.token) for found in cancelled} == {("x", "running"), ("y", "sleeping")}
        assert [found.seq for found in await stack.events()] == [1, 2, 3, 4]

    async def test_l5_cancel_spares_other_nodes_other_scopes_and_itself(self, stack: ContractStack) -> None:
        items = await open_split(stack, 2)

        await stack.apply(step(items[0], token("next", item(0)), CancelTokens(item(0), ("work",))))

        assert set(await stack.tokens()) == {"join-collect", "item:1", "next"}
        assert set(await stack.take()) == {"next"}

    async def test_l5_cancel_spares_the_canceller_that_parks(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a", node="x"), token("b", node="x"))

        await stack.apply(step(leases["a"], CancelTokens("", ("x",)), park=Park(9e9, b"", 2)))

        assert {name: found.state for name, found in (await stack.tokens()).items()} == {"a": "parked"}
        assert (await stack.execution()).live == 1

    async def test_l5_cancel_of_a_waiting_join_cancels_its_barrier(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"), token("winner"))
        await stack.apply(step(leases["a"], arrive(barrier(), 0)))

        await stack.apply(step(leases["winner"], CancelTokens("", ("merge",))))

        assert (await stack.barriers())["merge"].state == "cancelled"
        [applied] = await stack.apply(step(leases["b"], arrive(barrier(), 1)))
        assert applied.ready == ()
        assert (await stack.kinds())[-1] == "ArrivalDropped"
        assert (await stack.execution()).live == 0

    async def test_l5_cancel_of_an_aggregator_closes_its_items(self, stack: ContractStack) -> None:
        *items, winner = await open_split(stack, 2, also=(token("winner"),))

        await stack.apply(step(winner, CancelTokens("", ("collect",)), token("next")))

        assert await stack.commit(step(items[0], last_of_item(item(0)))) == [Stale("scope")]
        assert set(await stack.take()) == {"next"}
        assert (await stack.execution()).live == 1

    async def test_l5_cancel_lets_the_canceller_be_the_last(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("winner"), token("loser", node="x"))

        [applied] = await stack.apply(step(leases["winner"], CancelTokens("", ("x",)), last()))

        assert applied.ended == "COMPLETED"

    async def test_l5_cancel_of_nobody_changes_nothing(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("winner"), token("other"))

        await stack.apply(step(leases["winner"], CancelTokens("", ("absent",))))

        assert set(await stack.tokens()) == {"other"}
        assert await stack.kinds() == ["ExecutionStarted"]
