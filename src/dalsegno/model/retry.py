"""Retry policies. Jitter is derived from the token and attempt, so that the core needs no randomness."""

from __future__ import annotations

from hashlib import blake2b

from msgspec import Struct

from dalsegno.model.failure import Failure


class RetryPolicy(Struct, frozen=True):
    """``max_attempts`` counts the first run. ``jitter`` is the share of the delay that may be taken off, 0 to 1."""

    max_attempts: int = 1
    initial_delay: float = 1.0
    factor: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.0
    on: tuple[str, ...] = ()

    def allows(self, attempt: int, failure: Failure) -> bool:
        """Whether a failed ``attempt`` (1 is the first) is followed by another."""
        if attempt >= self.max_attempts or not failure.retryable:
            return False
        return not self.on or failure.code in self.on or failure.type in self.on

    def delay(self, token: str, attempt: int, failure: Failure) -> float:
        """Seconds until the next attempt; a server's ``Retry-After`` is obeyed where it asks for more."""
        exponent = min(attempt - 1, 64)
        base = min(self.initial_delay * self.factor**exponent, self.max_delay)
        delay = base * (1 - self.jitter * _fraction(token, attempt))
        return max(delay, failure.retry_after or 0.0)


def _fraction(token: str, attempt: int) -> float:
    digest = blake2b(f"{token}/{attempt}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32


NO_RETRY = RetryPolicy()
