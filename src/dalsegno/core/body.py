"""What a token carries: opaque bytes to every store, this structure to the core."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.context import EMPTY, Context, Entry


class Loop(Struct, frozen=True, array_like=True, gc=False):
    """One split around a token, seen from inside an item."""

    split: str
    index: int
    total: int
    item: Entry
    halts: bool
    """Whether a failed item fails the whole split."""


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
    """Why there are no items: the split failed, and goes on in spite of it."""


class Awaiting(Struct, frozen=True, array_like=True, gc=False):
    """What a parked node waits for from outside: ``awaits`` is ``signal:<name>`` or ``child:<execution>``."""

    awaits: str
    since: float
    due: float | None = None
    """When it gives up."""
    question: dict[str, Any] | None = None
    """What people are asked meanwhile, where the node asks them something."""


class Body(Struct, frozen=True, array_like=True, gc=False):
    context: Context = EMPTY
    payload: Entry | None = None
    """What came over the incoming edge."""
    path: str = ""
    """Edge positions at the forks behind this token: orders what branches leave, whatever came first."""
    loops: tuple[Loop, ...] = ()
    sleeping: Entry | None = None
    """Of a wait that was parked: its output once it wakes."""
    joined: bool = False
    """Of a join token that was parked for a retry: its slots are united already."""
    fan: Fan | None = None
    awaiting: Awaiting | None = None
    """Of a node that was parked until something comes from outside."""


class ItemResult(Struct, frozen=True, array_like=True, gc=False):
    """What an item's scope ended with. ``value`` is None where no branch reached the aggregator."""

    value: Entry | None
    failed: bool = False
    context: Context | None = None
    """Only where ``value`` is a key that stands in a page of this context."""


_encode = msgspec.json.Encoder().encode
_decode_body = msgspec.json.Decoder(Body).decode
_decode_result = msgspec.json.Decoder(ItemResult).decode


def encode(body: Body | ItemResult) -> bytes:
    return _encode(body)


def decode_body(data: bytes) -> Body:
    return _decode_body(data)


def decode_result(data: bytes) -> ItemResult:
    return _decode_result(data)
