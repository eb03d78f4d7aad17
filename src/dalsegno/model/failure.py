"""Failures of user code and nodes as values, and retry policies.

- Failures travel in transitions and contexts; they are never raised.
- A retry's jitter is derived from the token and attempt, so that the core needs no randomness.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from msgspec import Struct

FRAME = '  File "'
"""Start of a frame's line in a traceback."""


class Failure(Struct, frozen=True, omit_defaults=True):
    """A failure. ``retryable`` is false if a retry cannot help (bad parameters, a barrier's timeout)."""

    message: str
    code: str = "NODE_FAILED"
    type: str = "Error"
    details: dict[str, Any] | None = None
    node: str | None = None
    retryable: bool = True
    retry_after: float | None = None
    traceback: str | None = None
    """Traceback of the user code. For people: no decision depends on it, and it is part of no context."""

    def recorded(self) -> dict[str, Any]:
        """Return the error object of a final failure, as its event and its execution keep it."""
        found = self.as_dict()
        return {**found, "traceback": self.traceback} if self.traceback is not None else found

    def recorded_briefly(self) -> dict[str, Any]:
        """Return the error object of a retried attempt: of its traceback only the place where it was raised."""
        places = [line.strip(" |") for line in (self.traceback or "").splitlines() if FRAME in line]
        return {**self.as_dict(), "traceback": places[-1]} if places else self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """Return the error object that users see in contexts and slots."""
        return {
            "message": self.message,
            "code": self.code,
            "type": self.type,
            "details": self.details,
            "node": self.node,
        }


class RetryPolicy(Struct, frozen=True):
    """``max_attempts`` includes the first run. ``jitter`` is the share of the delay that may be subtracted, 0 to 1."""

    max_attempts: int = 1
    initial_delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.0
    on: tuple[str, ...] = ()

    def allows(self, attempt: int, failure: Failure) -> bool:
        """Return True if a failed ``attempt`` (1 is the first) is followed by another."""
        if attempt >= self.max_attempts or not failure.retryable:
            return False
        return not self.on or failure.code in self.on or failure.type in self.on

    def delay(self, token: str, attempt: int, failure: Failure) -> float:
        """Return the seconds until the next attempt, at least a server's ``Retry-After``."""
        exponent = min(attempt - 1, 64)
        base = min(self.initial_delay * self.factor**exponent, self.max_delay)
        delay = base * (1 - self.jitter * _fraction(token, attempt))
        return max(delay, failure.retry_after or 0.0)


def _fraction(token: str, attempt: int) -> float:
    digest = blake2b(f"{token}/{attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


NO_RETRY = RetryPolicy()
