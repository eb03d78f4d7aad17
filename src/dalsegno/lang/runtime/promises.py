"""Promises as values, and the rules by which a group is settled.

A leaf is one external operation (task, child, timer, signal), known by its number. A group joins promises and exists
only inside the machine. `settle` decides a promise from the outcomes known so far, *in the order in which they
happened*. The ledger records that order, so ``any`` and ``race`` give the same result in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

from dalsegno.lang.runtime.effects import (
    Awaitable,
    Err,
    ErrorValue,
    GroupKind,
    LeafKind,
    Ok,
    Outcome,
    promise_id,
)
from dalsegno.model.machine import request_in

ALWAYS = -1
"""The place in the order of a value that was settled from the start."""


class Labelled:
    """Something to await that a program may label: the compiler finds the label in the source."""

    __slots__ = ()

    def named(self, label: str) -> Self:
        """Label the await, so that it is found again in another version of the program."""
        if not isinstance(label, str):
            raise TypeError(f"a label must be a text, not {type(label).__name__}")
        return self


class Promise(Labelled):
    """A leaf. Two handles of one promise are equal: its number is its identity."""

    __slots__ = ("due", "kind", "name", "number", "type")

    def __init__(
        self,
        number: int,
        kind: LeafKind,
        name: str | None = None,
        due: float | None = None,
        type: str | None = None,
    ) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.due = due
        self.type = type
        """What a Python workflow wants a signal's payload to be, as text."""

    @property
    def id(self) -> str:
        return promise_id(self.number)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Promise) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("promise", self.number))

    def __repr__(self) -> str:
        return f"<promise {self.id} of {self.kind} {self.name or ''}>"


class Settled(Labelled):
    """A plain value given in place of a promise."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Group(Labelled):
    """Joined promises.

    ``items`` are in the order given; ``keys`` are set if they came from an object; ``shape`` is as in `Awaitable`.
    ``size`` counts the leaves, ``depth`` the nested groups, so that the creator of a group can limit both.
    """

    __slots__ = ("cancel", "depth", "items", "keys", "kind", "shape", "size")

    def __init__(
        self,
        kind: GroupKind,
        items: tuple[AnyPromise, ...],
        keys: tuple[str, ...] | None = None,
        shape: str = "",
        cancel: bool = False,
    ) -> None:
        self.kind = kind
        self.items = items
        self.keys = keys
        self.shape = shape
        self.cancel = cancel
        groups = [item for item in items if isinstance(item, Group)]
        self.depth: int = 1 + max([group.depth for group in groups], default=0)
        self.size: int = len(items) - len(groups) + sum([group.size for group in groups])


AnyPromise: TypeAlias = Promise | Group | Settled

Known: TypeAlias = Mapping[int, tuple[int, Outcome]]
"""By promise number: its place in the order of completions, and its outcome."""


class Verdict:
    """A settled promise: its place in the order, its outcome and, for ``any`` and ``race``, the item that decided."""

    __slots__ = ("outcome", "place", "winner")

    def __init__(self, place: int, outcome: Outcome, winner: int | None = None) -> None:
        self.place = place
        self.outcome = outcome
        self.winner = winner


Present: TypeAlias = Callable[[Group, Verdict], Verdict]
"""Converts a settled group's outcome to the form that the program sees."""


def settle(promise: AnyPromise, known: Known, present: Present | None = None) -> Verdict | None:
    """Return how the promise was settled, or None while it is pending.

    Groups have the bare shape: lists or objects for ``all`` and ``all_settled`` (there of outcomes), the winner's own
    value for ``any`` and ``race``. ``present`` may change that, also for nested groups.
    """
    if isinstance(promise, Promise):
        found = known.get(promise.number)
        return None if found is None else Verdict(found[0], found[1])
    if isinstance(promise, Settled):
        return Verdict(ALWAYS, Ok(promise.value))
    # Groups of ten thousand tasks are normal, so leaves are looked up inline, without a call each.
    verdicts = [
        (None if (found := known.get(item.number)) is None else Verdict(*found))
        if type(item) is Promise
        else settle(item, known, present)
        for item in promise.items
    ]
    verdict = _decide(promise, verdicts)
    return verdict if verdict is None or present is None else present(promise, verdict)


def _decide(group: Group, verdicts: list[Verdict | None]) -> Verdict | None:
    match group.kind:
        case "all":
            return _all(group, verdicts)
        case "any":
            return _any(verdicts)
        case "race":
            return _first(verdicts)
        case "all_settled":
            return _all_settled(group, verdicts)


def _all(group: Group, verdicts: list[Verdict | None]) -> Verdict | None:
    failed = [verdict for verdict in verdicts if verdict is not None and isinstance(verdict.outcome, Err)]
    if failed:
        first = min(failed, key=_place)
        return Verdict(first.place, first.outcome)
    values, place = [], ALWAYS
    for verdict in verdicts:
        if verdict is None:
            return None
        if isinstance(verdict.outcome, Ok):
            values.append(verdict.outcome.value)
        place = max(place, verdict.place)
    return Verdict(place, Ok(shaped(group, values)))


def _all_settled(group: Group, verdicts: list[Verdict | None]) -> Verdict | None:
    decided = [verdict for verdict in verdicts if verdict is not None]
    if len(decided) < len(verdicts):
        return None
    place = max((verdict.place for verdict in decided), default=ALWAYS)
    return Verdict(place, Ok(shaped(group, [verdict.outcome for verdict in decided])))


def _any(verdicts: list[Verdict | None]) -> Verdict | None:
    best: tuple[int, int] | None = None
    for index, verdict in enumerate(verdicts):
        if (
            verdict is not None
            and isinstance(verdict.outcome, Ok)
            and (best is None or verdict.place < best[0])
        ):
            best = (verdict.place, index)
    if best is not None:
        winner = verdicts[best[1]]
        return Verdict(best[0], winner.outcome, best[1]) if winner is not None else None
    decided = [verdict for verdict in verdicts if verdict is not None]
    if len(decided) < len(verdicts):
        return None
    errors = [verdict.outcome.error for verdict in decided if isinstance(verdict.outcome, Err)]
    message = f"all {len(errors)} promises failed" if errors else "there was no promise to succeed"
    place = max((verdict.place for verdict in decided), default=ALWAYS)
    return Verdict(
        place, Err(ErrorValue("AggregateError", message, data=[describe(error) for error in errors]))
    )


def _first(verdicts: list[Verdict | None]) -> Verdict | None:
    decided = [(verdict.place, index) for index, verdict in enumerate(verdicts) if verdict is not None]
    if not decided:
        return None
    place, index = min(decided)
    winner = verdicts[index]
    return Verdict(place, winner.outcome, index) if winner is not None else None


def _place(verdict: Verdict) -> int:
    return verdict.place


def shaped(group: Group, values: list[Any]) -> Any:
    return values if group.keys is None else dict(zip(group.keys, values, strict=True))


def describe(error: ErrorValue) -> dict[str, Any]:
    """Return an error as plain data."""
    return {
        "code": error.code,
        "message": error.message,
        "type": error.type or error.code,
        "data": error.data,
    }


def awaitable(promise: AnyPromise) -> Awaitable | None:
    """Return the awaitable of a promise, for the driver; None for a plain value."""
    if isinstance(promise, Promise):
        return Awaitable(promise.kind, promise.id, promise.name, promise.due)
    if isinstance(promise, Settled):
        return None
    items = tuple([seen for item in promise.items if (seen := awaitable(item)) is not None])
    return Awaitable(promise.kind, items=items, keys=promise.keys, shape=promise.shape)


def leaves(promise: AnyPromise) -> list[Promise]:
    """Return all leaves in the order given, without recursion: groups may nest as deep as values do."""
    found: list[Promise] = []
    waiting: list[AnyPromise] = [promise]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Promise):
            found.append(one)
        elif isinstance(one, Group):
            waiting.extend(reversed(one.items))
    return found


MOST_SHOWN = 5
"""Promises of a group that are described one by one."""


def in_words(promise: AnyPromise) -> str:
    """Describe a promise for the display of variables, by the name that the program gave it."""
    if isinstance(promise, Settled):
        return "<value>"
    return (
        f"<{_describe_promise(promise)}>" if isinstance(promise, Promise) else f"<{_describe_group(promise)}>"
    )


def _describe_promise(promise: Promise) -> str:
    if promise.kind == "timer" and promise.due is not None:
        due = datetime.fromtimestamp(promise.due, UTC).isoformat(sep=" ", timespec="seconds")
        return f"timer until {due.replace('+00:00', ' UTC')}"
    return shown_name(promise.kind, promise.name)


def shown_name(kind: str, name: str | None) -> str:
    """Return the kind and the name of what is awaited, as its author knows them."""
    request = request_in(name) if name is not None and kind == "signal" else None
    if request is not None:
        return f"request {request}"
    return f"{kind} {name}" if name else kind


def _describe_group(group: Group) -> str:
    """Describe the promises of a group; equal ones are counted."""
    counted: dict[str, int] = {}
    for leaf in leaves(group):
        word = leaf.kind if leaf.kind == "timer" else _describe_promise(leaf)
        counted[word] = counted.get(word, 0) + 1
    shown = [word if count == 1 else f"{count:,} × {word}" for word, count in counted.items()]
    more = f", … {len(shown) - MOST_SHOWN:,} more" if len(shown) > MOST_SHOWN else ""
    return f"{_GROUP_WORDS[group.kind]} of {', '.join(shown[:MOST_SHOWN]) or 'nothing'}{more}"


_GROUP_WORDS = {"all": "all", "any": "first success", "race": "race", "all_settled": "all"}


def ranges(numbers: set[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as half-open ranges in order: ten thousand promises of one loop are one pair."""
    if len(numbers) == 1:  # the common case
        (number,) = numbers
        return ((number, number + 1),)
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return tuple(found)
