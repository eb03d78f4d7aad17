"""Server-sent events: texts as they go over the line."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.model.event import Event
from dalsegno.server.schemas.executions import EventInfo

OPENING = b"retry: 1000\n\n"
"""Comes first, so that whoever opened the stream knows that it is open; and how soon to come back when it breaks."""
HEARTBEAT = b": still here\n\n"


def event_frame(event: Event) -> bytes:
    """JSON has no line breaks outside of strings, and writes those inside as ``\\n``."""
    told = {name: value for name, value in EventInfo.of(event).__dict__.items() if value is not None}
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (event.seq, event.kind.encode(), msgspec.json.encode(told))


def frame(kind: str, data: Any) -> bytes:
    """An event without a number: it does not change where a stream goes on."""
    return frame_of(kind, msgspec.json.encode(data))


def frame_of(kind: str, text: bytes) -> bytes:
    """The same of JSON that is written already."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), text)
