"""Failures of user code and nodes as values: they travel in transitions and contexts, they are never raised."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

FRAME = '  File "'
"""How the line of a frame begins in a traceback."""


class Failure(Struct, frozen=True, omit_defaults=True):
    """What went wrong. ``retryable`` is false where trying again cannot help (bad parameters, a barrier's timeout)."""

    message: str
    code: str = "NODE_FAILED"
    type: str = "Error"
    details: dict[str, Any] | None = None
    node: str | None = None
    retryable: bool = True
    retry_after: float | None = None
    traceback: str | None = None
    """Where user code raised it. For people: no decision goes by it, and it is part of no context."""

    def recorded(self) -> dict[str, Any]:
        """The error object of a final failure, as its event and its execution keep it."""
        found = self.as_dict()
        return {**found, "traceback": self.traceback} if self.traceback is not None else found

    def recorded_briefly(self) -> dict[str, Any]:
        """That of an attempt which is tried again: of its traceback the place where it was raised."""
        places = [line.strip(" |") for line in (self.traceback or "").splitlines() if FRAME in line]
        return {**self.as_dict(), "traceback": places[-1]} if places else self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """The error object users see in contexts and slots."""
        return {
            "message": self.message,
            "code": self.code,
            "type": self.type,
            "details": self.details,
            "node": self.node,
        }
