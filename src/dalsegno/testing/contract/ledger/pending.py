"""Executions that wait to begin: by their time or by a trigger, whichever comes first, and once (L1, L5, L6).

An execution that is triggered with another input while a limit delays it begins once, with that input.
"""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.model.effect import BeginExecution, CreateExecution, WakeMachine
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import AlreadyApplied, Applied, Stale, Transition
from dalsegno.testing.contract.builders import (
    RUN,
    cancel,
    command,
    deadline,
    event,
    finish,
    new_execution,
    pause,
    resume,
    start,
    step,
    token,
)
from dalsegno.testing.contract.script_builders import ask_to_end, new_script, resume_id, resume_token, signal
from dalsegno.testing.contract.stack import ContractStack, Topic

STARTED = event("ExecutionStarted", "")


def start_token(due: float) -> NewToken:
    return token("start", kind="start", node="", queue=SYSTEM_QUEUE, due=due, live=False)


def submit(execution: str = RUN, due: float | None = None, *, script: bool = False) -> Transition:
    new = new_script(execution) if script else new_execution(execution)
    later = [start_token(due)] if due is not None else []
    submitted = event("ExecutionSubmitted", "")
    return command(execution, CreateExecution(new, pending=True), *later, events=[submitted])


def trigger(execution: str = RUN, *first: NewToken, input: bytes | None = None) -> Transition:
    return command(execution, BeginExecution(input), *(first or [token("a")]), events=[STARTED])


def begin_in_time(lease: Lease) -> Transition:
    return step(lease, BeginExecution(), token("a"), events=[STARTED])


class LedgerPending(Topic):
    guarantees = frozenset(("L1", "L5", "L6", "L8"))
    needs = frozenset(("commit", "time", "pausing", "pending"))

    async def test_l6_submitted_execution_waits_and_nothing_runs(self, stack: ContractStack) -> None:
        await stack.apply(submit())

        assert (await stack.execution()).state == "PENDING"
        assert await stack.take() == {}
        assert await stack.kinds() == ["ExecutionSubmitted"]

    async def test_l6_trigger_begins_with_the_starts_own_tokens(self, stack: ContractStack) -> None:
        await stack.apply(submit())

        [applied] = await stack.apply(trigger(RUN, token("a"), token("b")))

        assert {ready.token for ready in applied.ready} == {"a", "b"}
        assert (await stack.execution()).state == "RUNNING"
        assert (await stack.execution()).live == 2
        assert set(await stack.take()) == {"a", "b"}

    async def test_l8_history_of_a_submitted_execution_has_no_gap(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(trigger())
        await stack.apply(step((await stack.take())["a"], finish()))

        events = await stack.events()

        assert [each.seq for each in events] == [1, 2, 3]
        assert [each.kind for each in events] == [
            "ExecutionSubmitted",
            "ExecutionStarted",
            "ExecutionCompleted",
        ]

    async def test_l1_submit_twice_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        before = await stack.picture()

        assert await stack.commit(submit(), start(RUN, token("a"))) == [AlreadyApplied(), AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_second_trigger_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(trigger())
        before = await stack.picture()

        assert await stack.commit(trigger(RUN, token("other"), input=b"2")) == [AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_trigger_of_an_ordinary_start_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(start(RUN, token("a")))

        assert await stack.commit(trigger()) == [AlreadyApplied()]

    async def test_l6_triggers_input_replaces_the_submitted_one(self, stack: ContractStack) -> None:
        await stack.apply(submit(), submit("run-2"))
        await stack.apply(trigger(input=b'{"n":2}'), trigger("run-2"))

        assert (await stack.execution()).input == b'{"n":2}'
        assert (await stack.execution("run-2")).input == b"{}"

    async def test_l6_triggers_input_and_submission_in_one_batch(self, stack: ContractStack) -> None:
        outcomes = await stack.commit(submit(), trigger(input=b"7"))

        assert all(isinstance(outcome, Applied) for outcome in outcomes)
        assert (await stack.execution()).input == b"7"
        assert (await stack.execution()).state == "RUNNING"

    async def test_l6_delayed_start_begins_when_its_time_comes(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 60
        [submitted] = await stack.apply(submit(due=due))
        assert submitted.next_due == due
        assert await stack.take() == {}

        stack.clock.set(due)
        assert [ready.token for ready in (await stack.ledger.wake()).ready] == ["start"]
        assert (await stack.execution()).state == "PENDING"
        await stack.apply(begin_in_time((await stack.take())["start"]))

        assert (await stack.execution()).state == "RUNNING"
        assert set(await stack.take()) == {"a"}

    async def test_l1_clock_that_jumps_back_begins_nothing_twice(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 60
        await stack.apply(submit(due=due))
        stack.clock.set(due + 5)
        await stack.ledger.wake()
        await stack.apply(begin_in_time((await stack.take())["start"]))
        stack.clock.set(due - 30)
        await stack.ledger.wake()
        stack.clock.set(due + 10)

        assert (await stack.ledger.wake()).ready == ()
        assert set(await stack.take()) == {"a"}
        assert (await stack.kinds()).count("ExecutionStarted") == 1

    async def test_l1_trigger_before_its_time_drops_the_timer(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 60
        await stack.apply(submit(due=due))
        await stack.apply(trigger())
        stack.clock.set(due)

        assert (await stack.ledger.wake()).ready == ()
        assert set(await stack.take()) == {"a"}

    async def test_l1_trigger_while_its_time_is_being_served_wins_or_loses_whole(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(submit(due=stack.clock.now() + 1), submit("run-2", stack.clock.now() + 1))
        stack.clock.advance(1)
        await stack.ledger.wake()
        first, second = sorted(await stack.claim(), key=lambda lease: lease.execution)

        await stack.apply(trigger())
        assert await stack.commit(begin_in_time(first)) == [Stale("fence")]
        await stack.apply(begin_in_time(second))
        assert await stack.commit(trigger("run-2")) == [AlreadyApplied()]

        assert await stack.kinds() == ["ExecutionSubmitted", "ExecutionStarted"]
        assert await stack.kinds("run-2") == ["ExecutionSubmitted", "ExecutionStarted"]
        assert (await stack.execution("run-2")).live == 1

    async def test_l1_copy_of_the_begin_is_already_applied(self, stack: ContractStack) -> None:
        await stack.apply(submit(due=stack.clock.now() + 1))
        stack.clock.advance(1)
        await stack.ledger.wake()
        lease = (await stack.take())["start"]
        await stack.apply(begin_in_time(lease))

        assert await stack.commit(begin_in_time(lease)) == [AlreadyApplied()]

    async def test_l5_pending_execution_can_be_cancelled(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 60
        await stack.apply(submit(due=due))

        [applied] = await stack.apply(cancel())
        stack.clock.set(due)

        assert applied.ended == "CANCELLED"
        assert (await stack.ledger.wake()).ready == ()
        assert await stack.take() == {}
        assert await stack.commit(trigger(), cancel()) == [Stale("finished"), Stale("finished")]
        assert await stack.kinds() == ["ExecutionSubmitted", "ExecutionCancelled"]

    async def test_l6_pending_execution_cannot_be_paused(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        before = await stack.picture()

        assert await stack.commit(pause(), resume()) == [Stale("pending"), AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l6_begun_execution_can_be_paused_and_resumed(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(trigger())
        await stack.apply(pause())
        assert await stack.take() == {}
        await stack.apply(resume())

        assert set(await stack.take()) == {"a"}

    async def test_l6_timeout_counts_from_the_begin(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        stack.clock.advance(1000)

        [begun] = await stack.apply(trigger(RUN, token("a"), deadline("timeout", stack.clock.now() + 5)))

        assert begun.next_due == stack.clock.now() + 5

    async def test_l6_trigger_keeps_tokens_for_its_worker(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        asking = command(RUN, BeginExecution(), token("a"), events=[STARTED])

        [applied] = await stack.apply(
            Transition(RUN, asking.effects, asking.events, keep=("a",), worker="w1")
        )

        assert applied.kept == ("a",)

    async def test_l6_trigger_of_what_is_not_there(self, stack: ContractStack) -> None:
        assert await stack.commit(trigger("nowhere")) == [Stale("unknown")]

    async def test_l6_a_thousand_due_at_once_begin_once_each(self, stack: ContractStack) -> None:
        due = stack.clock.now() + 60
        names = [f"run-{number:04}" for number in range(1000)]
        await stack.apply(*(submit(name, due) for name in names))
        stack.clock.set(due)
        while (await stack.ledger.wake()).ready:
            pass
        leases = await stack.claim(1000)
        await stack.apply(*(begin_in_time(lease) for lease in leases))

        assert sorted(lease.execution for lease in leases) == names
        assert sorted(lease.execution for lease in await stack.claim(2000)) == names


class LedgerPendingReconciling(Topic):
    guarantees = frozenset(("L6",))
    needs = frozenset(("commit", "time", "sweep", "leases", "pending"))

    async def test_l6_pending_is_found_among_the_untouched(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        stack.clock.advance(400)

        assert await stack.ledger.untouched(stack.clock.now() - 300, "", 10) == ((RUN,), "")

    async def test_l6_begin_lost_with_its_worker_is_done_by_another(self, stack: ContractStack) -> None:
        await stack.apply(submit(due=stack.clock.now() + 1))
        stack.clock.advance(1)
        await stack.ledger.wake()
        late = (await stack.take())["start"]
        await stack.ledger.expire(dead=["w1"])

        await stack.apply(begin_in_time((await stack.take("w2"))["start"]))

        assert await stack.commit(begin_in_time(late)) == [AlreadyApplied()]
        assert (await stack.kinds()).count("ExecutionStarted") == 1

    async def test_l6_cancelled_pending_is_swept_without_a_word(self, stack: ContractStack) -> None:
        await stack.apply(submit(due=stack.clock.now() + 60))
        await stack.apply(cancel())
        while await stack.ledger.sweep():
            pass

        assert await stack.tokens() == {}
        assert await stack.kinds() == ["ExecutionSubmitted", "ExecutionCancelled"]


class LedgerPendingScripts(Topic):
    guarantees = frozenset(("L5", "L6"))
    needs = frozenset(("commit", "scripts", "pending"))

    async def test_l6_pending_script_has_a_machine_that_nothing_resumes(self, stack: ContractStack) -> None:
        await stack.apply(submit(script=True))

        assert await stack.commit(command(RUN, WakeMachine())) == [AlreadyApplied()]
        await stack.apply(signal("go"))

        assert await stack.take() == {}
        assert (await stack.execution()).state == "PENDING"

    async def test_l6_signals_that_came_before_are_there_when_it_begins(self, stack: ContractStack) -> None:
        await stack.apply(submit(script=True))
        await stack.apply(signal("go"))

        await stack.apply(trigger(RUN, resume_token()))

        assert set(await stack.take()) == {resume_id(0)}
        machine = await stack.ledger.machine(RUN)
        assert machine is not None
        assert [each.id for each in machine.signals] == ["go"]

    async def test_l5_pending_script_is_cancelled_at_once(self, stack: ContractStack) -> None:
        await stack.apply(submit(script=True))

        [applied] = await stack.apply(ask_to_end())

        assert applied.ended == "CANCELLED"
        assert await stack.take() == {}


class DurablePending(Topic):
    guarantees = frozenset(("L1", "L6"))
    needs = frozenset(("commit", "time", "archive", "pending", "durable"))

    async def test_l6_crash_between_submit_and_trigger_loses_nothing(self, stack: ContractStack) -> None:
        await stack.apply(submit())

        again = await stack.reopen()
        assert (await again.execution()).state == "PENDING"
        await again.apply(trigger(input=b"2"))
        once_more = await again.reopen()

        assert (await once_more.execution()).state == "RUNNING"
        assert (await once_more.execution()).input == b"2"
        assert await once_more.commit(trigger()) == [AlreadyApplied()]

    async def test_l6_delayed_start_survives_a_crash(self, stack: ContractStack) -> None:
        await stack.apply(submit(due=stack.clock.now() + 60))

        again = await stack.reopen()
        stack.clock.advance(60)

        assert [ready.token for ready in (await again.ledger.wake()).ready] == ["start"]
        await again.apply(begin_in_time((await again.take())["start"]))
        assert (await again.execution()).state == "RUNNING"


class SharedPending(Topic):
    guarantees = frozenset(("L1",))
    needs = frozenset(("commit", "time", "pending", "shared"))

    @pytest.mark.parametrize("first", [0, 1])
    async def test_l1_two_processes_trigger_one_begins(self, stack: ContractStack, first: int) -> None:
        other = await stack.second()
        await stack.apply(submit())
        assert (await other.execution()).state == "PENDING"

        sides = (stack, other) if first == 0 else (other, stack)
        outcomes = await asyncio.gather(*(side.commit(trigger()) for side in sides))

        kinds = sorted(type(outcome).__name__ for [outcome] in outcomes)
        assert kinds == ["AlreadyApplied", "Applied"]
        assert (await stack.kinds()).count("ExecutionStarted") == 1


def line_up(input: bytes, name: str = "triggered") -> Transition:
    """Triggered with another input while a limit delays it."""
    waiting = token(name, kind="start", node="", queue=SYSTEM_QUEUE, live=False)
    return command(RUN, BeginExecution(input, in_line=name), waiting)


class LedgerPendingInLine(Topic):
    guarantees = frozenset(("L1", "L6"))
    needs = frozenset(("commit", "time", "archive", "pending"))

    async def test_l6_another_input_waits_in_line_with_the_token_that_will_begin_it(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(submit())

        [applied] = await stack.apply(line_up(b"2"))

        assert [ready.token for ready in applied.ready] == ["triggered"]
        assert ((await stack.execution()).state, (await stack.execution()).input) == ("PENDING", b"2")
        await stack.apply(begin_in_time((await stack.take())["triggered"]))
        assert ((await stack.execution()).state, (await stack.execution()).input) == ("RUNNING", b"2")
        assert set(await stack.take()) == {"a"}

    async def test_l1_whoever_was_to_begin_it_with_the_old_input_comes_too_late(
        self, stack: ContractStack
    ) -> None:
        await stack.apply(submit(due=stack.clock.now() + 1))
        stack.clock.advance(1)
        await stack.ledger.wake()
        lease = (await stack.take())["start"]
        await stack.apply(line_up(b"2"))

        assert await stack.commit(begin_in_time(lease)) == [Stale("fence")]
        assert (await stack.execution()).state == "PENDING"
        assert set(await stack.take()) == {"triggered"}

    async def test_l1_second_input_in_line_changes_nothing(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(line_up(b"2"))
        before = await stack.picture()

        assert await stack.commit(line_up(b"3"), line_up(b"2")) == [AlreadyApplied(), AlreadyApplied()]
        assert await stack.picture() == before

    async def test_l1_nothing_stands_in_line_behind_what_has_begun(self, stack: ContractStack) -> None:
        await stack.apply(submit())
        await stack.apply(trigger())

        assert await stack.commit(line_up(b"2")) == [AlreadyApplied()]
        assert (await stack.execution()).input == b"{}"
        assert set(await stack.take()) == {"a"}
