"""Token bodies of graphs: opaque bytes to every store, this structure to the core."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.graph.context import EMPTY, Context, Entry


class Loop(Struct, frozen=True, array_like=True, gc=False):
    """One split around a token, seen from inside an item."""

    split: str
    index: int
    total: int
    item: Entry
    halts: bool
    """A failed item fails the whole split."""


class Fan(Struct, frozen=True, array_like=True, gc=False):
    """A split in progress, carried by its join token and its advance tokens."""

    split: str
    token: str
    """The split's own token: part of its items' scope paths and of its barrier's id."""
    total: int
    window: int
    items: Entry
    halts: bool
    cursor: int = 0
    error: Entry | None = None
    """The error of a split without items that failed and continues in spite of it."""


class Awaiting(Struct, frozen=True, array_like=True, gc=False):
    """What a parked node waits for from outside: ``awaits`` is ``signal:<name>`` or ``child:<execution>``."""

    awaits: str
    since: float
    due: float | None = None
    """When the wait times out."""
    question: dict[str, Any] | None = None
    """What the node asks people while it waits, if it asks."""


class Body(Struct, frozen=True, array_like=True, gc=False):
    context: Context = EMPTY
    payload: Entry | None = None
    """The payload of the incoming edge."""
    path: str = ""
    """Edge positions at the forks behind this token: they order what branches leave, independent of time."""
    loops: tuple[Loop, ...] = ()
    sleeping: Entry | None = None
    """For a wait that was parked: its output when it wakes."""
    joined: bool = False
    """For a join token parked for a retry: its slots are merged already."""
    fan: Fan | None = None
    awaiting: Awaiting | None = None
    """For a node that was parked for something from outside."""


class ItemResult(Struct, frozen=True, array_like=True, gc=False):
    """The result of an item's scope. ``value`` is None if no branch reached the aggregator."""

    value: Entry | None
    failed: bool = False
    context: Context | None = None
    """Set only if ``value`` is a key that is in a page of this context."""


_encode = msgspec.json.Encoder().encode
_decode_body = msgspec.json.Decoder(Body).decode
_decode_result = msgspec.json.Decoder(ItemResult).decode


def encode(body: Body | ItemResult) -> bytes:
    return _encode(body)


def decode_body(data: bytes) -> Body:
    return _decode_body(data)


def decode_result(data: bytes) -> ItemResult:
    return _decode_result(data)
