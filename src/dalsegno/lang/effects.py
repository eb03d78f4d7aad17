"""What a machine and its driver say to each other: effects and awaitables outwards, outcomes inwards.

The machine does no I/O. It asks for things by effect, says what it waits for, and is told how they went. The same words
serve scripts and Python workflows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

LeafKind: TypeAlias = Literal["task", "workflow", "timer", "signal"]
GroupKind: TypeAlias = Literal["all", "any", "race", "all_settled"]


class ErrorValue(Struct, frozen=True, omit_defaults=True):
    """An error as a value: what a script catches, and what a failed machine ends with."""

    code: str
    message: str
    type: str | None = None
    """The Python exception's class name, for failures of tasks; without one it reads as ``code``."""
    data: Any = None
    stack: tuple[str, ...] = ()
    """Frames of the program, innermost first, as ``name (file:line)``."""
    classes: tuple[str, ...] = ()
    """Qualified class names along the exception's MRO, most derived first; empty for errors of the language."""
    args: tuple[Any, ...] = ()
    """Plain arguments of that exception."""
    attributes: dict[str, Any] | None = None
    """Its plain attributes: what a constructor of its own has made of its arguments."""
    traceback: str | None = None
    """Where a task raised it, for people. No program sees it, and two errors are equal whatever it says."""


class Ok(Struct, frozen=True):
    value: Any = None


class Err(Struct, frozen=True):
    error: ErrorValue


Outcome: TypeAlias = Ok | Err


class StartTask(Struct, frozen=True):
    """Run a task by name; ``node:<type>`` runs a node of the library with ``inputs`` as its parameters."""

    id: str
    name: str
    inputs: Any
    options: Mapping[str, Any] = {}


class StartWorkflow(Struct, frozen=True):
    """Start a child execution. ``detached``: nobody waits for it, and it outlives its parent (``Workflow.start``)."""

    id: str
    name: str
    inputs: Any
    options: Mapping[str, Any] = {}
    detached: bool = False


class StartTimer(Struct, frozen=True):
    id: str
    due: float


class AwaitSignal(Struct, frozen=True):
    """``due``: when the driver is to answer with a ``TimeoutError``; None: never."""

    id: str
    name: str
    due: float | None = None


class Cancel(Struct, frozen=True):
    """Stop the task, child or timer behind this promise; nobody is interested any more."""

    id: str
    kind: LeafKind = "task"


class SetTags(Struct, frozen=True):
    """Change tags of the execution itself: a text replaces what the tag said, None takes the tag away."""

    tags: Mapping[str, str | None]


Effect: TypeAlias = StartTask | StartWorkflow | StartTimer | AwaitSignal | Cancel | SetTags


APPROVAL = "node:approval"
"""The task that asks people something: while nobody has decided, it is parked. It goes with its program."""


def asks_people(name: str | None) -> bool:
    """Whether a promise of a task is one of a decision. Python's names go on with the class of the form."""
    return name is not None and name.partition(" ")[0] == APPROVAL


TIME_LIMITED = "time-limited"
"""The shape of an await inside ``with timeout(…)``: a race of what is awaited with the timers of the time limits."""


class Awaitable(Struct, frozen=True):
    """What a suspended machine waits for. Leaves have an ``id``; groups have ``items``, and ``keys`` where they were
    made from an object. ``shape`` says how a group's result looks to the program."""

    kind: LeafKind | GroupKind
    id: str = ""
    name: str | None = None
    due: float | None = None
    items: tuple[Awaitable, ...] = ()
    keys: tuple[str, ...] | None = None
    shape: str = ""


class WaitingSignal(Struct, frozen=True):
    """A promise of a signal that the machine can still reach."""

    id: str
    name: str
    due: float | None = None


PROMISE_PREFIX = "p"


def promise_id(number: int) -> str:
    """Promises are numbered in the order of their making; the number is all a snapshot keeps of an id."""
    return f"{PROMISE_PREFIX}{number}"


@lru_cache(maxsize=4096)
def promise_number(id: str) -> int:
    """Remembered: a step of a script asks several times, and most scripts make few promises."""
    return int(id[len(PROMISE_PREFIX) :])
