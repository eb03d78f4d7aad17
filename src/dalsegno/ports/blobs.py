"""The port of large values, kept apart from rows that change often, and of the bytes an execution has stored."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from dalsegno.errors import LimitExceeded

UNTIL_REMOVED = 2**62
"""The ``turn`` of a blob that only `Blobs.remove` removes."""


class Blobs(Protocol):
    """Values too large to travel inside outputs.

    * **K1 content**: the id of a blob is derived from its content, so storing it again is harmless.
    * **K2 owned**: a blob belongs to one execution and cannot be read in the name of another.
    * **K3 whole**: ``get`` returns exactly the bytes that were put, or raises NotFound; never a part.
    * **K4 counted**: an execution's count is the sum of its blobs, each once, and of what was charged. A ``put`` or
      ``charge`` that would raise it above ``limit`` raises LimitExceeded and changes nothing.
    * **K5 pruned**: ``prune`` removes blobs that were put with a ``turn`` before the given one and are not in ``keep``;
      one that was ever put without a turn stays.
    * **K6 removed**: ``remove`` removes these blobs of the execution; one that was ever put without a turn stays.
    """

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str: ...

    async def get(self, execution: str, blob: str) -> bytes: ...

    async def stored(self, execution: str) -> int:
        """Return the execution's byte count."""

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        """Count bytes that the execution stores elsewhere; a negative size takes them back."""

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        """Remove the blobs of earlier snapshots."""

    async def remove(self, execution: str, blobs: Collection[str]) -> None:
        """Remove blobs that nothing refers to any more."""


def refuse_over(stored: int, size: int, limit: int | None) -> None:
    """Raise LimitExceeded if an execution that has ``stored`` bytes may not store ``size`` more."""
    if limit is not None and size > 0 and stored + size > limit:
        raise LimitExceeded(
            f"the execution has stored {stored:,} bytes and would store {size:,} more, above the limit stored_bytes of "
            f"{limit:,}; keep large data elsewhere and pass references, or raise EngineLimits(stored_bytes=…)"
        )
