"""Failures of user code and nodes as values: they travel in transitions and contexts, they are never raised."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Failure(Struct, frozen=True, omit_defaults=True):
    """What went wrong. ``retryable`` is false where trying again cannot help (bad parameters, a barrier's timeout)."""

    message: str
    code: str = "NODE_FAILED"
    type: str = "Error"
    details: dict[str, Any] | None = None
    node: str | None = None
    retryable: bool = True
    retry_after: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """The error object users see in contexts, slots and results."""
        return {
            "message": self.message,
            "code": self.code,
            "type": self.type,
            "details": self.details,
            "node": self.node,
        }
