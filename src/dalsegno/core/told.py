"""What the first events of an execution tell: its input, and of a single task how it is to run, so that a retry can run
it the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.model.event import Event

FIRST = ("ExecutionSubmitted", "ExecutionStarted")


class Told(Struct, frozen=True, omit_defaults=True):
    input: Raw
    starts_at: float | None = None
    queue: str | None = None
    """Of a single task: where it runs, unless everywhere."""
    options: Mapping[str, Any] | None = None
    """Of a single task: as a script would give them."""


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Told).decode


def tell(
    input: bytes,
    starts_at: float | None = None,
    queue: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> bytes:
    return encode(Told(Raw(input), starts_at, queue, options or None))


def read_task(events: Sequence[Event]) -> Told | None:
    """How a single task was last told to run, by the first of its events."""
    told = [event.data for event in events if event.kind in FIRST and event.data is not None]
    return _decode(told[-1]) if told else None
