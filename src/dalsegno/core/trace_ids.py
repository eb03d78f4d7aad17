"""Ids of OpenTelemetry traces and spans, derived from the ids of executions: every process computes the same."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b


def trace_id(execution: str) -> int:
    """Return the trace id of an execution. Both kinds of ids have 128 bits."""
    return int(execution, 16) if _is_hex(execution) else _hash(execution, 16)


def span_id(name: str) -> int:
    return _hash(name, 8)


@lru_cache(maxsize=4096)
def traceparent(execution: str) -> str:
    """Return the header that joins the spans of a reader to the trace of an execution."""
    return f"00-{trace_id(execution):032x}-{span_id(execution):016x}-01"


def _is_hex(name: str) -> bool:
    return len(name) == 32 and all(each in "0123456789abcdef" for each in name) and name.strip("0") != ""


def _hash(name: str, size: int) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=size).digest()) or 1
