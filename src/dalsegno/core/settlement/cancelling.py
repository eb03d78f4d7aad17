"""Tokens that are dropped: what the history says of them."""

from __future__ import annotations

from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.token import TokenKind


def cancelled_event(
    kind: TokenKind, live: bool, node: str, scope: str, token: str, now: float
) -> NewEvent | None:
    """A node that was running or waiting, or a task; bookkeeping goes unnoticed."""
    told: EventKind
    if kind == "task":
        told = "TaskCancelled"
    elif live and kind in ("node", "join"):
        told = "NodeCancelled"
    else:
        return None
    return NewEvent(told, node, scope, now, token=token)
