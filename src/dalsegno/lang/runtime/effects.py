"""The protocol between a machine and its driver: effects and awaitables outwards, outcomes inwards.

The machine does no I/O. It requests work by effects, says what it waits for, and receives outcomes. Scripts and Python
workflows share the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

LeafKind: TypeAlias = Literal["task", "workflow", "timer", "signal"]
GroupKind: TypeAlias = Literal["all", "any", "race", "all_settled"]


class ErrorValue(Struct, frozen=True, omit_defaults=True):
    """An error as a value: a script catches it, and a failed machine ends with it."""

    code: str
    message: str
    type: str | None = None
    """The Python exception's class name, for failures of tasks; if None, it reads as ``code``."""
    data: Any = None
    stack: tuple[str, ...] = ()
    """Frames of the program, innermost first, as ``name (file:line)``."""
    classes: tuple[str, ...] = ()
    """Qualified class names along the exception's MRO, most derived first; empty for errors of the language."""
    args: tuple[Any, ...] = ()
    """Plain arguments of that exception."""
    attributes: dict[str, Any] | None = None
    """Its plain attributes, such as those set by a custom constructor."""
    traceback: str | None = None
    """The task's traceback, for people. Programs cannot read it, and it does not count for equality."""


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
    """Start a child execution. ``detached``: it has no waiter and outlives its parent (``Workflow.start``)."""

    id: str
    name: str
    inputs: Any
    options: Mapping[str, Any] = {}
    detached: bool = False


class StartTimer(Struct, frozen=True):
    id: str
    due: float


class AwaitSignal(Struct, frozen=True):
    """Wait for a signal. At ``due`` the driver answers with a ``TimeoutError``; None: never."""

    id: str
    name: str
    due: float | None = None


class Cancel(Struct, frozen=True):
    """Stop the task, child or timer behind this promise; its result is no longer needed."""

    id: str
    kind: LeafKind = "task"


class SetTags(Struct, frozen=True):
    """Change tags of the execution itself: a text sets the tag, None removes it."""

    tags: Mapping[str, str | None]


class Reply(Struct, frozen=True):
    """Answer a request with a value or, with ``error``, refuse it."""

    id: str
    name: str
    value: Any = None
    error: str | None = None


class Checkpoint(Struct, frozen=True):
    """Keep the machine as it is at the next await, under a name."""

    name: str


class Publish(Struct, frozen=True):
    """Publish a value of the execution itself: of each key the newest one is shown."""

    key: str
    value: Any


class WriteStream(Struct, frozen=True):
    """Append chunks to a stream of the execution itself. ``closes``: nothing follows."""

    stream: str
    chunks: list[Any]
    closes: bool = False


Effect: TypeAlias = (
    StartTask
    | StartWorkflow
    | StartTimer
    | AwaitSignal
    | Cancel
    | SetTags
    | Publish
    | WriteStream
    | Reply
    | Checkpoint
)


LONGEST_CHECKPOINT = 200
"""Characters of a checkpoint's name."""


def checked_checkpoint(name: object) -> str:
    """Return the name of a checkpoint. Raises ValueError."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError("the name of a checkpoint must be a text that is not empty")
    if len(name) > LONGEST_CHECKPOINT:
        raise ValueError(f"the name of a checkpoint has at most {LONGEST_CHECKPOINT} characters")
    if name.strip().isdecimal():
        raise ValueError(f"a checkpoint cannot be called {name!r}: numbers name turns")
    if not name.isprintable():
        raise ValueError("the name of a checkpoint may have no line breaks or other control characters")
    return name


APPROVAL = "node:approval"
"""The task of an approval. It is parked until a decision is made or its program can no longer reach it."""


@lru_cache(maxsize=1024)
def asks_people(name: str | None) -> bool:
    """Return whether a task's promise is one of a decision.

    In Python workflows the name also contains the form's class.
    """
    return name is not None and name.startswith(APPROVAL) and name.partition(" ")[0] == APPROVAL


_NODE = "node:"


def display_name(task: str) -> str:
    """Return a task's name as its author knows it: ``approval``, or ``node http`` for a node of the library."""
    if asks_people(task):
        return APPROVAL.removeprefix(_NODE)
    node = task.removeprefix(_NODE)
    return f"node {node}" if node and node != task else task


TIME_LIMITED = "time-limited"
"""The shape of an await inside ``with timeout(…)``.

It is a race of the awaited promise with the timers of the time limits.
"""


class Awaitable(Struct, frozen=True):
    """What a suspended machine waits for.

    Leaves have an ``id``; groups have ``items``, and ``keys`` if they were created from an object. ``shape`` is the
    form of a group's result in the program.
    """

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
    """Return the id of a promise. Promises are numbered in order of creation; a snapshot keeps only the number."""
    return f"{PROMISE_PREFIX}{number}"


@lru_cache(maxsize=4096)
def promise_number(id: str) -> int:
    """Return the number of a promise.

    It is cached: a step of a script asks several times, and most scripts make few promises.
    """
    return int(id[len(PROMISE_PREFIX) :])
