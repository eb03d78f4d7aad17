"""What a turn received, from its history: used where the journal has no record of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dalsegno.adapters.memory import MemoryArchive, MemoryBlobs, MemoryStore
from dalsegno.core.graph.step_input import Result
from dalsegno.core.scripts.token_bodies import failed, succeeded
from dalsegno.engine.journal.received_outcomes import Received, ReceivedOutcomes, events_between
from dalsegno.engine.scripts.advance import ResumeInputs
from dalsegno.lang.runtime.effects import Err, ErrorValue, LeafKind, Ok
from dalsegno.lang.runtime.machine_state import MachineState, PromiseState
from dalsegno.model.event import Event, EventKind
from dalsegno.model.ids import promise_token_id
from dalsegno.model.machine import Completion, SignalView
from dalsegno.testing.clock import FakeClock

EXECUTION = "e" * 32


def waiting(*promises: tuple[LeafKind, str | None, float | None]) -> MachineState:
    found = [PromiseState(number, *each) for number, each in enumerate(promises)]
    return MachineState((), None, len(found), tuple(found))


def event(seq: int, kind: EventKind, promise: int | None = None, node: str = "", data: Any = None) -> Event:
    token = promise_token_id(EXECUTION, promise) if promise is not None else None
    raw = msgspec.json.encode(data) if data is not None else None
    return Event(EXECUTION, seq, kind, node, "", float(seq), raw, token)


@pytest.fixture
def finder() -> ReceivedOutcomes:
    store = MemoryStore()
    archive = MemoryArchive(store, FakeClock())
    return ReceivedOutcomes(archive, ResumeInputs(archive, MemoryBlobs(store)), EXECUTION)


async def found(
    finder: ReceivedOutcomes,
    state: MachineState,
    events: list[Event],
    known: tuple[Completion, ...] = (),
    mailbox: tuple[SignalView, ...] = (),
) -> list[Received]:
    return await finder.find(state, known, (), mailbox, events, until=100.0)


async def test_results_and_errors_of_tasks_come_from_their_events(finder: ReceivedOutcomes) -> None:
    state = waiting(("task", "charge", None), ("task", "ship", None), ("task", "print", None))
    error = {"message": "no address", "code": "TASK_FAILED", "type": "ValueError", "details": {"zip": 1}}
    events = [
        event(1, "TaskFailed", 1, "ship", {"attempt": 1, "line": 3, "error": error}),
        event(2, "TaskCompleted", 0, "charge", {"attempt": 1, "line": 3, "output": [1, {"a": None}]}),
        event(3, "TaskCompleted", 9, "other", {"output": 1}),
    ]
    first, second = await found(finder, state, events)
    assert first == Received(
        1, Err(ErrorValue("TASK_FAILED", "no address", "ValueError", {"zip": 1})), is_new=True
    )
    assert second == Received(0, Ok([1, {"a": None}]), is_new=True)


async def test_a_result_that_the_history_does_not_hold_is_unknown(finder: ReceivedOutcomes) -> None:
    state = waiting(("task", "charge", None), ("task", "ship", None))
    events = [
        event(1, "TaskCompleted", 0, "charge", {"attempt": 1}),
        event(2, "TaskCompleted", 1, "ship", {"output_ref": "gone"}),
    ]
    assert [one.outcome for one in await found(finder, state, events)] == [None, None]


async def test_a_result_of_null_is_a_result(finder: ReceivedOutcomes) -> None:
    events = [event(1, "TaskCompleted", 0, "charge", {"output": None})]
    [only] = await found(finder, waiting(("task", "charge", None)), events)
    assert only.outcome == Ok(None)


async def test_timers_fire_by_their_events_or_by_their_times(finder: ReceivedOutcomes) -> None:
    state = waiting(
        ("timer", None, 50.0), ("timer", None, 70.0), ("timer", None, 101.0), ("signal", "go", 60.0)
    )
    events = [event(1, "TimerFired", 1), event(2, "TimerFired", 3, "go", {"signal": True})]
    received = {one.number: one.outcome for one in await found(finder, state, events)}
    assert (received[0], received[1], 2 in received) == (Ok(None), Ok(None), False)
    timeout = received[3]
    assert isinstance(timeout, Err)
    assert timeout.error.code == "TimeoutError"


async def test_signals_go_to_the_oldest_promise_of_their_name(finder: ReceivedOutcomes) -> None:
    state = waiting(("signal", "go", None), ("signal", "go", None), ("signal", "stop", None))
    held = SignalView("s1", "go", succeeded(0, Result(b'"held"')).data, 1)
    events = [
        event(1, "SignalReceived", None, "go", {"payload": {"n": 1}}),
        event(2, "SignalReceived", None, "go", {"payload": 3}),
    ]
    received = {one.number: one.outcome for one in await found(finder, state, events, mailbox=(held,))}
    assert received == {0: Ok("held"), 1: Ok({"n": 1})}


async def test_what_was_known_before_keeps_its_order_and_is_not_new(finder: ReceivedOutcomes) -> None:
    state = waiting(("task", "a", None), ("task", "b", None))
    known = (
        failed(1, ErrorValue("X", "x")),
        msgspec.structs.replace(succeeded(0, Result(b"5")), number=7),
    )
    late = [event(1, "TaskCompleted", 0, "a", {"output": 6})]
    assert await found(finder, state, late, known=known) == [
        Received(1, Err(ErrorValue("X", "x")), is_new=False),
        Received(0, Ok(5), is_new=False),
    ]


async def test_events_of_a_time_are_found_by_bisection() -> None:
    class Archive:
        asked = 0

        async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
            self.asked += 1
            return [event(seq, "LogWritten") for seq in range(after + 1, min(after + limit, 10_000) + 1)]

    archive = Archive()
    events = await events_between(archive, EXECUTION, 10_000, 7_000.0, 7_003.0)  # type: ignore[arg-type]
    assert [one.seq for one in events] == [7_001, 7_002, 7_003]
    assert archive.asked < 20
