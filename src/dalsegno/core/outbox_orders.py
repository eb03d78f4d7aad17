"""Outbox entries: orders from one execution to another, delivered at least once by the engine."""

from __future__ import annotations

from typing import Any, Literal, TypeGuard

import msgspec
from msgspec import Raw, Struct

from dalsegno.model.effect import Effect, WriteOutbox

Topic = Literal["start", "continue", "cancel", "cancel_children", "ended", "cleanup"]
"""start: a child, or a schedule's next run · continue: a child, from the failure of another · cancel: one child ·
cancel_children: all awaited children · ended: notify the parent · cleanup: a dead letter, because the execution ended
before its clean-up did.
"""


class Notice(Struct, frozen=True, omit_defaults=True):
    """The recipient of an ending: a promise of a script, or a parked token of a graph."""

    execution: str
    promise: int | None = None
    token: str | None = None


class StartOrder(Struct, frozen=True, omit_defaults=True):
    """Start this execution. Its id is derived, so that delivering the order twice starts it once."""

    execution: str
    workflow: str
    input: Raw
    version: int | str | None = None
    parent: str | None = None
    relation: str | None = None
    notify: Notice | None = None
    tags: dict[str, str] = {}
    priority: int = 0
    idempotency_key: str | None = None
    definition: str | None = None
    """Content hash of one exact definition; without it, ``workflow`` and ``version`` select one."""
    concurrency: dict[str, Any] | None = None
    """Limits how many of the calls gathered together run at a time."""
    continues: str | None = None
    """The failed execution with whose machine it starts."""


class CancelOrder(Struct, frozen=True, omit_defaults=True):
    execution: str
    reason: str
    ended_scope: str | None = None
    """For ``cancel_children``: only the children that nothing of the execution waits for any more.

    The execution has just ended this scope, or, if it is the empty one, dropped tokens at its root.
    """


class CleanupLetter(Struct, frozen=True):
    """The reason why an ended execution needs attention."""

    reason: str
    at: float


_encode = msgspec.json.Encoder().encode
decode_letter = msgspec.json.Decoder(CleanupLetter).decode
decode_start = msgspec.json.Decoder(StartOrder).decode
decode_cancel = msgspec.json.Decoder(CancelOrder).decode
decode_notice = msgspec.json.Decoder(Notice).decode


def order_start(order: StartOrder) -> WriteOutbox:
    topic: Topic = "start" if order.continues is None else "continue"
    return WriteOutbox(f"{order.execution}/start", topic, _encode(order))


def is_start(effect: Effect) -> TypeGuard[WriteOutbox]:
    return isinstance(effect, WriteOutbox) and effect.topic in ("start", "continue")


def order_cancel(order: CancelOrder) -> WriteOutbox:
    return WriteOutbox(f"{order.execution}/cancel", "cancel", _encode(order))


def order_cancel_children(execution: str, reason: str) -> WriteOutbox:
    """Cancel the children this execution waits for; detached ones live on."""
    return WriteOutbox(
        f"{execution}/cancel-children", "cancel_children", _encode(CancelOrder(execution, reason))
    )


def order_letter(execution: str, reason: str, now: float) -> WriteOutbox:
    """Write the dead letter in the commit that ends the execution."""
    return WriteOutbox(f"{execution}/cleanup", "cleanup", _encode(CleanupLetter(reason, now)))


def order_cancel_abandoned(execution: str, cause: str, ended_scope: str) -> WriteOutbox:
    """Cancel the children of branches that were dropped while their execution continues."""
    order = CancelOrder(execution, "the branch that waited for it was dropped", ended_scope)
    return WriteOutbox(f"{execution}/abandoned/{cause}", "cancel_children", _encode(order))


def encode_notice(notice: Notice) -> bytes:
    return _encode(notice)
