"""``with timeout(…)``: a durable time limit around awaits."""

from __future__ import annotations

from typing import Self

from dalsegno.lang.runtime.promises import Promise


class Timeout:
    """A time limit. Its clock starts when the block is entered; every await inside also waits for it.

    When it expires, ``TimeoutError`` is raised at the await, once: clean-up code inside the block may await again.
    """

    __slots__ = ("fired", "promise", "seconds")

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        """None means no limit."""
        self.promise: Promise | None = None
        """The timer, while the block is entered."""
        self.fired = False

    def expired(self) -> bool:
        return self.fired

    # A block without an await cannot be interrupted, so a limit around one does nothing.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def __repr__(self) -> str:
        return f"<timeout of {self.seconds} s>"


def message(timeout: Timeout) -> str:
    return f"not done within {timeout.seconds:g} s"
