"""A turn: one run of a machine from a stop to the next await that cannot be resolved yet, as plain data.

Its wake condition says when the suspended machine is worth resuming, computed from what it awaits and what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from dalsegno.core.scripts.token_bodies import AwaitedExecution, EarlierCall, StoredInput
from dalsegno.errors import LimitExceeded
from dalsegno.lang.runtime.effects import (
    TIME_LIMITED,
    Awaitable,
    ErrorValue,
    Ok,
    Outcome,
    SetTags,
    asks_people,
    promise_number,
)
from dalsegno.lang.runtime.effects import Effect as Request
from dalsegno.lang.runtime.promises import ranges, shown_name
from dalsegno.model.effect import AppendChunks, Effect, PublishValues, ReplaceTags
from dalsegno.model.machine import CancelReason, Completion, Ranges, TakenSignal, Wake
from dalsegno.model.search import MOST_TAGS

TurnStatus = Literal["suspended", "completed", "failed"]


class Turn(Struct, gc=False):
    """The result of one run of a machine."""

    status: TurnStatus
    version: int
    """Version of the machine that ran."""
    read: int
    requests: Sequence[tuple[Request, bytes]] = ()
    """The machine's requests, with their encoded inputs if they have any."""
    kinds: frozenset[type[Request]] = frozenset()
    """The types of the machine's requests."""
    snapshot: bytes = b""
    reachable: Ranges = ()
    wake: Wake = Wake()
    line: int = 0
    awaited: str = ""
    limits: tuple[float, ...] = ()
    """When the time limits around its await expire."""
    output: bytes = b"null"
    error: ErrorValue | None = None
    settled: Completion | None = None
    taken: tuple[TakenSignal, ...] = ()
    cancel: CancelReason = ""
    interrupted: bool = False
    weight: int = 0
    """Bytes that the machine takes while it waits: its snapshot and its blobs."""
    blobs: frozenset[str] = frozenset()
    """Blob names in the snapshot."""
    cut_short: bool = False
    """It failed without its handlers of errors: by a limit, or because its state cannot be stored."""
    raised: Ranges | None = None
    """For a turn that failed: the promises in awaits that raised; None: not known."""
    raises_again: bool = False
    """It failed with an error that it was handling before."""
    kept: bytes | None = None
    """For a turn that failed: its machine before it, for another execution."""
    is_unfinished: bool = False
    """A clean-up failed or was not reached: a dead letter is written."""
    exact: bool = False
    """Nothing may have arrived since ``read``: what is kept would lack it."""
    begun: tuple[EarlierCall, ...] = ()
    """The calls that the next turn may make again."""
    made_before: Sequence[tuple[Request, bytes]] = ()
    """Requests that were made before the execution was retried."""
    taken_up: Sequence[AwaitedExecution] = ()
    """The executions that run calls which were made before the execution was retried."""
    grace_ends: float | None = None
    """When a clean-up is cut off."""
    carried: Sequence[Effect] = ()
    """Waits taken over from another execution."""
    tags: ReplaceTags | None = None
    """Changed tags of the execution."""
    checkpoint: str = ""
    """The name under which the machine is kept."""
    published: PublishValues | None = None
    appended: Sequence[AppendChunks] = ()
    """What it writes to streams of the execution, its log among them."""
    input_bytes: int = 0
    """Bytes of the inputs of what it requested."""
    stored: Mapping[str, StoredInput] | None = None
    """Inputs of tasks that are in blobs, by the ids of their promises."""
    dropped: tuple[str, ...] = ()
    """Tokens of timers that nothing waits for any more."""


LEAVES = frozenset(("task", "workflow", "timer", "signal"))

_GROUPS = {"all": "all", "all_settled": "all", "any": "first success", "race": "race"}
"""Names of groups that fit both scripts and Python."""

Verdict = Literal["ok", "failed"] | None
"""None: still pending."""


def decided(awaiting: Awaitable, known: Mapping[str, Outcome]) -> Verdict:
    """Return the verdict on what the machine awaits, from what is known."""
    if awaiting.kind in LEAVES:
        outcome = known.get(awaiting.id)
        return None if outcome is None else "ok" if isinstance(outcome, Ok) else "failed"
    verdicts = [decided(item, known) for item in awaiting.items]
    match awaiting.kind:
        case "all":
            return "failed" if "failed" in verdicts else None if None in verdicts else "ok"
        case "any":
            return "ok" if "ok" in verdicts else None if None in verdicts else "failed"
        case "race":
            return next((verdict for verdict in verdicts if verdict is not None), None)
        case _:
            return None if None in verdicts else "ok"


def leaf_ids(awaiting: Awaitable) -> set[str]:
    """Return the ids of all leaves, without recursion."""
    return {leaf.id for leaf in leaves_of(awaiting)}


def leaves_of(awaiting: Awaitable) -> list[Awaitable]:
    found: list[Awaitable] = []
    waiting = [awaiting]
    while waiting:
        one = waiting.pop()
        if one.kind in LEAVES:
            found.append(one)
        else:
            waiting.extend(one.items)
    return found


def wake_of(awaiting: Awaitable, known: Mapping[str, Outcome], signals: tuple[str, ...]) -> Wake:
    """Return the condition under which a machine suspended here is resumed.

    Nested groups are evaluated after every completion in them; flat ones are counted.
    """
    if awaiting.id:
        number = promise_number(awaiting.id)
        return Wake(1, signals=signals, due=awaiting.due, awaited=((number, number + 1),))
    due = _first_due(awaiting, known)
    unresolved = {leaf.id for leaf in leaves_of(awaiting) if leaf.id not in known}
    awaited = ranges({promise_number(name) for name in unresolved})
    nested = any(item.kind not in LEAVES for item in awaiting.items)
    if nested or awaiting.kind == "race":
        return Wake(1, signals=signals, due=due, awaited=awaited)
    need = max(len(unresolved), 1)
    return Wake(need, awaiting.kind == "all", awaiting.kind == "any", signals, due, awaited)


def _first_due(awaiting: Awaitable, known: Mapping[str, Outcome]) -> float | None:
    dues = [leaf.due for leaf in leaves_of(awaiting) if leaf.due is not None and leaf.id not in known]
    return min(dues, default=None)


def without_limits(awaiting: Awaitable) -> tuple[Awaitable, tuple[float, ...]]:
    """Return what the program itself awaits, and when the time limits around its await expire."""
    if awaiting.shape != TIME_LIMITED:
        return awaiting, ()
    wanted, *limits = awaiting.items
    return wanted, tuple(sorted({limit.due for limit in limits if limit.due is not None}))


def describe(awaiting: Awaitable) -> str:
    """Describe in a word what is awaited, for the history and for people."""
    awaiting, limits = without_limits(awaiting)
    return f"{_describe(awaiting)}, with a time limit" if limits else _describe(awaiting)


def _describe(awaiting: Awaitable) -> str:
    if awaiting.items:
        return f"{_GROUPS[awaiting.kind]} of {len(awaiting.items)}"
    if awaiting.kind == "task" and asks_people(awaiting.name):
        return "approval"
    return shown_name(awaiting.kind, awaiting.name)


def merge_tags(asked: Iterable[SetTags]) -> dict[str, str | None]:
    """Merge the changes of several calls in one turn; None removes a tag."""
    found: dict[str, str | None] = {}
    for each in asked:
        found.update(each.tags)
    return found


def changed_tags(before: Iterable[tuple[str, str]], asked: Mapping[str, str | None]) -> ReplaceTags | None:
    """Return the change of tags; None if there is no difference."""
    had = tuple(before)
    kept = [(name, tag) for name, tag in had if name not in asked]
    tags = tuple(sorted([*kept, *((name, tag) for name, tag in asked.items() if tag is not None)]))
    if len(tags) > max(MOST_TAGS, len(had)):
        raise LimitExceeded(
            f"set_tags(): the execution would have {len(tags)} tags; the limit is {MOST_TAGS}. "
            "Remove some with None, or keep the data in a task"
        )
    if tags == tuple(sorted(had)):
        return None
    gone = tuple(tag for tag in had if tag not in tags)
    return ReplaceTags(tags, gone, tuple(tag for tag in tags if tag not in had))
