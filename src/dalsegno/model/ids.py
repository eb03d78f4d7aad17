"""Derived identities (guarantee L3): the same cause always yields the same id, so a repetition is recognised.

Nothing here is random except :func:`new_execution_id`, which names an execution that has no cause inside the
system.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import blake2b

ROOT_SCOPE = ""
ID_LENGTH = 32
"""Characters of an execution's id."""
LONGEST_ID = 128
"""Characters of an id that another program has chosen."""


def derive(*parts: str) -> str:
    """Return a 128-bit id derived from its causes. Parts are joined by a byte that ids cannot contain."""
    return blake2b("\x1f".join(parts).encode(), digest_size=16).hexdigest()


def new_execution_id(now: float) -> str:
    """Return an id that sorts by time: 48 bits of milliseconds, 80 bits of randomness."""
    return f"{int(now * 1000):012x}{os.urandom(10).hex()}"


def execution_id_for_key(workflow: str, key: str) -> str:
    """Return the same execution id for two starts with the same idempotency key."""
    return derive("execution", workflow, key)


def repeated_execution_id(execution: str, key: str) -> str:
    """Return the same id for two retries or reruns of an execution with the same key, or two triggers of a
    schedule.
    """
    return derive("again", execution, key)


def child_execution_id(execution: str, promise: str) -> str:
    """Return the id of the execution that a script or a graph's node starts: known before it exists."""
    return derive("child", execution, promise)


def task_execution_id(token: str) -> str:
    """Return the id of the execution that a task becomes when the script that started it ends first."""
    return derive("task", token)


def promise_token_id(execution: str, promise: int) -> str:
    """Return the id of the token that runs a promise's task or timer."""
    return derive(execution, "promise", str(promise))


def resume_token_id(execution: str, version: int) -> str:
    """Return the resume token's id: one per version of the machine, so there is never a second one pending."""
    return derive(execution, "resume", str(version))


def arrival_id(token: str) -> str:
    """Return the id of the stored output that holds the arrival for a parked token."""
    return f"{token}/arrival"


def barrier_id(epoch: int, scope: str, node: str, visit: str = "") -> str:
    """Return a barrier's id: one per node and scope; a split that runs several times has one per visit."""
    return f"{epoch}|{scope}|{node}|{visit}"


def item_scope(parent: str, split_token: str, index: int) -> str:
    """Return the path of an item's scope.

    It contains the split's token because an ``each`` split may run more than once.
    """
    return f"{parent}/{split_token[:16]}:{index}"


def scope_chain(scope: str) -> list[str]:
    """Return the scope and all scopes around it, innermost first, without the root."""
    chain = []
    while scope:
        chain.append(scope)
        scope = scope.rpartition("/")[0]
    return chain


# -- OpenTelemetry: every process derives the same ids from that of an execution ----------------------------------


def trace_id(execution: str) -> int:
    """Return the trace id of an execution. Both kinds of ids have 128 bits."""
    return int(execution, 16) if _is_hex(execution) else _hashed(execution, 16)


def span_id(name: str) -> int:
    return _hashed(name, 8)


@lru_cache(maxsize=4096)
def traceparent(execution: str) -> str:
    """Return the header that joins the spans of a reader to the trace of an execution."""
    return f"00-{trace_id(execution):032x}-{span_id(execution):016x}-01"


def _is_hex(name: str) -> bool:
    return len(name) == 32 and all(each in "0123456789abcdef" for each in name) and name.strip("0") != ""


def _hashed(name: str, size: int) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=size).digest()) or 1
