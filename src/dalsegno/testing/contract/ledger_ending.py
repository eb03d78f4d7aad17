"""L5: an execution ends exactly once; what comes later changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.model.barrier import LeftView
from dalsegno.model.effect import LeaveContext, StoreOutput
from dalsegno.model.execution import EndState
from dalsegno.model.transition import Applied, Stale
from dalsegno.testing.contract.build import (
    RUN,
    cancel,
    command,
    event,
    finish,
    last,
    step,
    token,
)
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class LedgerEnding(Topic):
    """Finishing, and what may come after it."""

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
        """The last arrival of a run was dropped: nobody left anything, yet somebody must finish."""
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
