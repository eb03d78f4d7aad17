"""Transitions as the arguments of ``lua/commit.lua``, and what scripts answer as values of the model.

Payloads travel as arguments of their own; the envelope holds their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.adapters.flat import Fields, Flattener
from dalsegno.adapters.redis.keys import Keys
from dalsegno.adapters.redis.store import Call
from dalsegno.model.event import Event
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, ReadyToken, Stale, Transition

MOST_ENTRIES = 500
"""What one call may touch; only a single wide transition comes near it."""

ENTRIES_PER_CALL = 120
"""Transitions are sent together up to this: about 2 ms of the server's time on a slow machine."""


class Envelope:
    """A part of a batch that is sent as one call."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._flattener = Flattener(self._refer)
        self._rows: list[msgspec.Raw] = []
        self._payloads: list[bytes] = []
        self._bases: dict[str, int] = {}
        self.places: list[int] = []
        """Where in the batch its transitions stand."""
        self.entries = 0

    def add(self, place: int, transition: Transition) -> None:
        """Raises UnicodeEncodeError where a name is no valid Unicode, or UnsupportedTransition, and then has added
        nothing that counts."""
        head, digest, tail = _around_digest(self._flattener.transition(transition))
        row = msgspec.Raw(
            msgspec.msgpack.encode((self._number(transition.execution), *head, digest.hex(), *tail))
        )
        self._rows.append(row)
        self.places.append(place)
        self.entries += weigh(transition)

    def call(self) -> Call:
        bases = [self._keys.base(execution) for execution in self._bases]
        return ("commit", bases, (msgspec.msgpack.encode(self._rows), *self._payloads))

    def _number(self, execution: str) -> int:
        return self._bases.setdefault(execution, len(self._bases) + 1)

    def _refer(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        self._payloads.append(data)
        return len(self._payloads)


def _around_digest(flat: Fields) -> tuple[Fields, bytes, Fields]:
    """The digest is the one field of raw bytes, which Redis's msgpack cannot read."""
    return flat[:5], flat[5], flat[6:]


def weigh(transition: Transition) -> int:
    """Entries a transition touches, about: its execution, its token, its events and effects."""
    return 2 + len(transition.events) + len(transition.effects)


def outcome_of(row: Sequence[Any], transition: Transition) -> Outcome:
    match row:
        case ["Applied", _, kept, ready, ended, next_due]:
            run = transition.execution
            announced = tuple(ReadyToken(token, run, queue, priority) for token, queue, priority in ready)
            return Applied(tuple(kept), announced, ended or None, absent(next_due))
        case ["AlreadyApplied"]:
            return AlreadyApplied()
        case [_, reason]:
            return Stale(reason)
    raise AssertionError(f"commit.lua answered {row!r}")


def event_of(execution: str, packed: bytes, data: bytes) -> Event:
    """An entry of the stream of events."""
    seq, kind, node, scope, at, has_data, token, arrived, expected = msgspec.msgpack.decode(packed)
    return Event(
        execution,
        seq,
        kind,
        node,
        scope,
        at,
        data if has_data else None,
        absent(token),
        absent(arrived),
        absent(expected),
    )


def absent(value: Any) -> Any:
    """Lua's arrays have no holes, so ``false`` stands for nothing in them."""
    return None if value is False else value
