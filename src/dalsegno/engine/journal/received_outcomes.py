"""The outcomes that a recorded turn received: from the machine before it, and from the history.

A history holds results up to a few KiB, and refers to larger ones in blobs. One that it neither holds nor refers to is
missing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import decode_value
from dalsegno.engine.scripts.advance import ResumeInputs
from dalsegno.errors import NotFound
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok, Outcome, promise_id
from dalsegno.lang.runtime.machine_state import MachineState, PromiseState
from dalsegno.model.event import Event
from dalsegno.model.ids import child_execution_id, promise_token_id
from dalsegno.model.machine import Completion, SignalView
from dalsegno.ports.archive import Archive

EVENTS_AT_ONCE = 500
MOST_EVENTS = 5_000
"""Events that are read around one turn."""
MARGIN = 5.0
"""Seconds by which the clocks of processes may differ."""

NOTHING = Raw(b"")


class TaskEnd(Struct, frozen=True):
    """The data of an event about a task's end, as far as it says how the task ended."""

    error: dict[str, Any] | None = None
    output: Raw = NOTHING
    output_ref: str | None = None


class ChildEnd(Struct, frozen=True):
    execution: str = ""


class SignalData(Struct, frozen=True):
    payload: Raw = NOTHING


class TimeLimit(Struct, frozen=True):
    signal: bool = False


class Received(Struct, frozen=True):
    """An outcome that the program could use in a turn."""

    number: int
    outcome: Outcome | None
    """None: it is not kept."""
    is_new: bool
    """It arrived after the turn before."""


class ReceivedOutcomes:
    """Finds the outcomes that were known to one machine when it ran."""

    def __init__(self, archive: Archive, reading: ResumeInputs, execution: str) -> None:
        self._archive = archive
        self._reading = reading
        self._execution = execution

    async def find(
        self,
        before: MachineState,
        known: Sequence[Completion],
        arrived: Sequence[Completion],
        mailbox: Sequence[SignalView],
        events: Sequence[Event],
        until: float,
    ) -> list[Received]:
        """Return the outcomes of the promises of ``before``, in their order. ``known`` and ``mailbox``: when that
        machine stopped; ``arrived``: later. ``events``: from there to the end of the turn, if it is not known what
        arrived. ``until``: the time of the turn.
        """
        found: dict[int, Received] = {}
        new = frozenset([one.promise for one in arrived])
        for one in sorted((*known, *arrived), key=lambda each: each.number):
            outcome = await self._kept(one)
            found.setdefault(one.promise, Received(one.promise, outcome, is_new=one.promise in new))
        promises = {one.number: one for one in before.promises}
        tokens = {promise_token_id(self._execution, number): number for number in promises}
        children = {
            child_execution_id(self._execution, promise_id(one.number)): one.number
            for one in before.promises
            if one.kind == "workflow"
        }
        for event in events:
            number = tokens.get(event.token or "")
            if number is None and event.kind == "ChildEnded" and event.data is not None:
                number = children.get(_child_end.decode(event.data).execution)
            if number is not None and number not in found and (ends := await self._ended(event)) is not None:
                found[number] = Received(number, ends[0], is_new=True)
        await self._add_signals(found, promises, mailbox, events)
        for timer in before.promises:
            if timer.kind == "timer" and timer.due is not None and timer.due <= until:
                found.setdefault(timer.number, Received(timer.number, Ok(None), is_new=True))
        return [each for number, each in found.items() if number in promises]

    async def _kept(self, completion: Completion) -> Outcome | None:
        try:
            return await self._reading.outcome(self._execution, completion)
        except NotFound:
            return None

    async def _ended(self, event: Event) -> tuple[Outcome | None] | None:
        """Return the outcome that an event tells of, which may be unknown; None if it tells of none."""
        match event.kind:
            case "TaskCompleted" | "TaskFailed":
                return (await self._task(_task_end.decode(event.data or b"{}")),)
            case "TimerFired":
                limit = _time_limit.decode(event.data or b"{}")
                return (Err(_no_signal(event.node)) if limit.signal else Ok(None),)
            case "ChildEnded":
                return (await self._child(_child_end.decode(event.data or b"{}").execution),)
        return None

    async def _task(self, end: TaskEnd) -> Outcome | None:
        if end.error is not None:
            return Err(error_of_object(end.error))
        if end.output != NOTHING:
            return Ok(decode_value(end.output))
        if end.output_ref is None:
            return None
        return await self._kept(Completion(0, True, b"b" + end.output_ref.encode()))

    async def _child(self, execution: str) -> Outcome | None:
        view = await self._archive.execution(execution)
        if view is None:
            return None
        if view.state == "COMPLETED":
            return Ok(decode_value(view.output or b"null"))
        return Err(error_of_object(decode_value(view.error or b"{}")))

    async def _add_signals(
        self,
        found: dict[int, Received],
        promises: Mapping[int, PromiseState],
        mailbox: Sequence[SignalView],
        events: Sequence[Event],
    ) -> None:
        """Give the oldest signal of a name to the oldest promise of that name, as the turn did."""
        waiting = [one for one in promises.values() if one.kind == "signal" and one.number not in found]
        arrived: dict[str, list[Outcome | None]] = {}
        for signal in mailbox:
            outcome = await self._kept(Completion(0, True, signal.data))
            arrived.setdefault(signal.name, []).append(outcome)
        for event in events:
            if event.kind == "SignalReceived":
                payload = _signal.decode(event.data or b"{}").payload
                outcome = Ok(decode_value(payload)) if payload != NOTHING else None
                arrived.setdefault(event.node, []).append(outcome)
        for one in waiting:
            if queue := arrived.get(one.name or ""):
                found[one.number] = Received(one.number, queue.pop(0), is_new=True)


async def events_between(
    archive: Archive, execution: str, last: int, start: float, end: float
) -> list[Event]:
    """Return the events of an execution from ``start`` to ``end``, by their times. ``last``: the newest number."""
    found: list[Event] = []
    after = await _first_after(archive, execution, last, start - MARGIN)
    while len(found) < MOST_EVENTS:
        page = await archive.events(execution, after, EVENTS_AT_ONCE)
        found += [event for event in page if start < event.at <= end]
        if len(page) < EVENTS_AT_ONCE or page[-1].at > end + MARGIN:
            break
        after = page[-1].seq
    return found


async def _first_after(archive: Archive, execution: str, last: int, moment: float) -> int:
    """Return the number of an event such that all later than ``moment`` come after it, by bisection."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        page = await archive.events(execution, middle, 1)
        if page and page[0].at < moment:
            low = middle + 1
        else:
            high = middle
    return low


def started_child(event: Event) -> str:
    """Return the execution of an event about a child, or an empty text."""
    return _child_end.decode(event.data).execution if event.data is not None else ""


def _no_signal(name: str) -> ErrorValue:
    return ErrorValue("TimeoutError", f"no signal '{name}' arrived in time")


def error_of_object(data: Mapping[str, Any]) -> ErrorValue:
    """Return the error that an error object shows."""
    known = {name: value for name, value in data.items() if name in ErrorValue.__struct_fields__}
    known.setdefault("data", data.get("details"))
    known.setdefault("code", "Error")
    known.setdefault("message", "")
    return msgspec.convert(known, ErrorValue, strict=False)


_task_end = msgspec.json.Decoder(TaskEnd)
_child_end = msgspec.json.Decoder(ChildEnd)
_signal = msgspec.json.Decoder(SignalData)
_time_limit = msgspec.json.Decoder(TimeLimit)
