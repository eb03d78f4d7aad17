"""A recorded turn as people see it: what woke it, what it changed, what it asked for, and where it stopped.

A turn runs from one stop of a machine to the next. A view compares the machine's states at both stops; no code of the
program runs. Values are bounded: a view of any turn can be sent and shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.scripts.turn import describe
from dalsegno.lang.runtime.effects import ErrorValue, LeafKind, Ok, Outcome
from dalsegno.lang.runtime.machine_state import FrameState, MachineState, PromiseState

MOST_BYTES = 8 * 1024
"""Bytes of JSON up to which a value is shown whole."""
SHOWN_BYTES = 1024
"""Bytes shown of a longer one."""
MOST_VARIABLES = 200
MOST_FRAMES = 50
"""Functions shown of a deep recursion: the innermost."""
MOST_PROMISES = 100
"""Promises shown of those that a turn settled or made."""
MOST_MESSAGE = 2_000

NO_PREDECESSOR = "the turn before is not kept, so what this one changed, received and asked for is not known"

Change = Literal["", "added", "changed", "dropped"]
"""``dropped``: it has left its scope, or the program does not read it any more and it is not stored."""
TurnState = Literal["suspended", "completed", "failed", "cancelled"]
"""How a turn ended. All but ``suspended`` ended the execution."""


class ShownValue(Struct, frozen=True):
    """A value of at most ``MOST_BYTES``. Of a longer one ``value`` is the beginning of its JSON, as text."""

    value: Any = None
    size: int = 0
    """Bytes of the whole JSON, if it is not shown whole."""


class VariableView(Struct, frozen=True):
    name: str
    now: ShownValue | None = None
    """None if it was dropped."""
    change: Change = ""
    before: ShownValue | None = None
    """For a changed or dropped one."""


class FrameView(Struct, frozen=True):
    function: str
    line: int
    source: str
    variables: tuple[VariableView, ...] = ()


class SettledPromise(Struct, frozen=True):
    """A promise whose outcome the turn received."""

    promise: int
    kind: LeafKind
    name: str = ""
    result: ShownValue | None = None
    error: dict[str, Any] | None = None


class MadePromise(Struct, frozen=True):
    """A promise that the turn made: what it asked for."""

    promise: int
    kind: LeafKind
    name: str = ""
    due: float | None = None
    execution: str = ""
    """The execution of a workflow that it started."""
    input: ShownValue | None = None


class TurnSummary(Struct, frozen=True):
    """A turn in a list."""

    number: int
    at: float
    line: int
    source: str = ""
    awaits: str = ""
    """What it then waited for, in a few words."""
    checkpoint: str = ""
    """The name that the program gave to the stop."""
    state: TurnState = "suspended"


class TurnPage(Struct, frozen=True):
    """Turns of one execution, in the order that was asked for."""

    turns: tuple[TurnSummary, ...]
    next: int | None
    """The first turn of the next page."""
    total: int
    """Number of all turns that are kept."""


class TurnView(Struct, frozen=True):
    """One turn in full."""

    number: int
    at: float
    state: TurnState
    line: int
    source: str = ""
    awaits: str = ""
    checkpoint: str = ""
    functions: tuple[FrameView, ...] = ()
    """Innermost first."""
    is_before: bool = False
    """The functions are those before the turn: it ended the program."""
    received: tuple[SettledPromise, ...] = ()
    received_count: int = 0
    asked: tuple[MadePromise, ...] = ()
    asked_count: int = 0
    output: ShownValue | None = None
    error: dict[str, Any] | None = None
    missing: str = ""
    """What a view lacks, and why."""

    def changed(self, name: str) -> bool:
        """Return whether the turn changed a variable of this name in one of its functions."""
        return any(one.change and one.name == name for frame in self.functions for one in frame.variables)


def bounded(value: Any) -> ShownValue:
    raw = _encoded(value)
    if len(raw) <= MOST_BYTES:
        return ShownValue(value)
    return ShownValue(raw[:SHOWN_BYTES].decode(errors="ignore"), len(raw))


def frame_views(
    before: MachineState | None, after: MachineState, source: Callable[[int], str]
) -> tuple[FrameView, ...]:
    """Return the functions of the later state, innermost first, with what has changed in their variables."""
    earlier = before.frames if before is not None else ()
    found = []
    for depth, frame in list(enumerate(after.frames))[-MOST_FRAMES:]:
        other = earlier[depth] if depth < len(earlier) else None
        known = other.variables if other is not None and other.function == frame.function else {}
        found.append(
            FrameView(frame.function, frame.line, source(frame.line).strip(), _compared(known, frame))
        )
    return tuple(reversed(found))


def unchanged_views(state: MachineState, source: Callable[[int], str]) -> tuple[FrameView, ...]:
    """Return the functions of a state without a comparison."""
    return frame_views(state, state, source)


def _compared(earlier: Mapping[str, Any], frame: FrameState) -> tuple[VariableView, ...]:
    found = [_variable(name, value, earlier) for name, value in frame.variables.items()]
    found += [
        VariableView(name, None, "dropped", bounded(value))
        for name, value in earlier.items()
        if name not in frame.variables
    ]
    return tuple(found[:MOST_VARIABLES])


def _variable(name: str, value: Any, earlier: Mapping[str, Any]) -> VariableView:
    if name not in earlier:
        return VariableView(name, bounded(value), "added")
    if _encoded(earlier[name]) == _encoded(value):
        return VariableView(name, bounded(value))
    return VariableView(name, bounded(value), "changed", bounded(earlier[name]))


def settled_views(
    before: MachineState, outcomes: Iterable[tuple[int, Outcome | None]]
) -> tuple[SettledPromise, ...]:
    """Return the outcomes that a turn received, in their order. None: one that is not kept."""
    promises = by_number(before)
    return tuple(
        [
            _settled(promises.get(number, PromiseState(number, "task")), outcome)
            for number, outcome in islice(outcomes, MOST_PROMISES)
        ]
    )


def _settled(promise: PromiseState, outcome: Outcome | None) -> SettledPromise:
    seen = SettledPromise(promise.number, promise.kind, promise.name or "")
    if outcome is None:
        return seen
    if isinstance(outcome, Ok):
        return replace(seen, result=bounded(outcome.value))
    return replace(seen, error=error_view(outcome.error))


def turn_view(
    summary: TurnSummary,
    before: MachineState | None,
    after: MachineState,
    source: Callable[[int], str],
    outcomes: Sequence[tuple[int, Outcome | None]] = (),
    made: Sequence[MadePromise] = (),
) -> TurnView:
    """Compare the states before and after a turn. ``before`` is None for the first turn, and for one whose
    predecessor is not kept. ``made``: what it asked for.
    """
    is_comparable = before is not None or summary.number == 1
    line = after.line or summary.line
    return TurnView(
        number=summary.number,
        at=summary.at,
        state=summary.state,
        line=line,
        source=source(line).strip(),
        awaits=describe(after.awaiting) if after.awaiting is not None else summary.awaits,
        checkpoint=summary.checkpoint,
        functions=frame_views(before, after, source) if is_comparable else unchanged_views(after, source),
        received=settled_views(before, outcomes) if before is not None else (),
        received_count=len(outcomes),
        asked=tuple(made[:MOST_PROMISES]),
        asked_count=len(made_numbers(before, after)) if is_comparable else 0,
        missing="" if is_comparable else NO_PREDECESSOR,
    )


def made_numbers(before: MachineState | None, after: MachineState) -> range:
    """Return the numbers of the promises that a turn made."""
    return range(before.made if before is not None else 0, after.made)


def error_view(error: ErrorValue) -> dict[str, Any]:
    """Return an error without its traceback and its data, which may be large."""
    seen: dict[str, Any] = {"code": error.code, "message": error.message[:MOST_MESSAGE]}
    if error.type is not None:
        seen["type"] = error.type
    if error.stack:
        seen["stack"] = list(error.stack)
    return seen


def by_number(state: MachineState) -> dict[int, PromiseState]:
    return {one.number: one for one in state.promises}


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)
