"""The caller's trace context: stored with the execution that a call starts, and linked to its trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import Header

from dalsegno.engine.tracing import TRACEPARENT, read_traceparent

TraceParent = Annotated[
    str | None,
    Header(max_length=200, description="W3C trace context; the execution's trace links to it, by a tag."),
]


def traced(tags: Mapping[str, str], header: str | None) -> dict[str, str]:
    """Add the tag that the tracing of every process reads. An invalid trace context is ignored: it is no reason to
    refuse a start."""
    if header is None or read_traceparent(header) is None:
        return dict(tags)
    return {TRACEPARENT: header, **tags}
