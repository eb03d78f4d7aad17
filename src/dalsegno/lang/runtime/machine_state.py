"""The state of a machine as plain data, for people: its running functions, their variables, and its promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from dalsegno.lang.runtime.effects import Awaitable, LeafKind
from dalsegno.lang.runtime.promises import Promise


class FrameState(Struct, frozen=True):
    """One running function."""

    function: str
    line: int
    """Where it waits, or where it has called the next function."""
    variables: dict[str, Any]
    """Its variables that have a value, as JSON; those without a JSON form as text."""


class PromiseState(Struct, frozen=True):
    """A promise that the machine can still reach."""

    number: int
    kind: LeafKind
    name: str | None = None
    due: float | None = None


class MachineState(Struct, frozen=True):
    frames: tuple[FrameState, ...]
    """Outermost first."""
    awaiting: Awaitable | None
    made: int
    """Number of promises created so far: the number of the next one."""
    promises: tuple[PromiseState, ...] = ()
    """In order of creation."""

    @property
    def line(self) -> int:
        """Return the line of the innermost function; 0 if none runs."""
        return self.frames[-1].line if self.frames else 0


def promise_states(promises: Iterable[Promise]) -> tuple[PromiseState, ...]:
    """Return each promise once, in order of creation."""
    found = {one.number: PromiseState(one.number, one.kind, one.name, one.due) for one in promises}
    return tuple([found[number] for number in sorted(found)])
