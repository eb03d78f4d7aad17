"""Two ports: small records that people set up (keys, credentials, webhooks, limits) with logs of their changes, and
large values, kept apart from rows that change often, with the bytes that an execution has stored.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from dalsegno.errors import LimitExceeded


class Record(Struct, frozen=True, gc=False):
    """``data`` is opaque to every store. ``version`` counts the changes: 1 is new."""

    kind: str
    id: str
    data: bytes
    version: int
    created_at: float
    changed_at: float


class LogEntry(Struct, frozen=True, gc=False):
    number: int
    at: float
    data: bytes


class Records(Protocol):
    """Storage of records and logs, in the same store as definitions and history.

    * **R1 compared**: a change that expects a version is made on that version or not at all; of many that expect
      the same one, one succeeds.
    * **R2 named**: a record is found by its kind and id alone, and listed by its id within its kind, page by page.
    * **R3 whole**: ``data`` is returned exactly as it was put, byte by byte.
    * **R4 ordered log**: entries of a log are numbered upwards in the order in which they were appended, and are
      only ever removed from the old end.
    """

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        """Create or change a record.

        ``expected``: the version it must have (0: it must not exist). Return None if it has another one.
        """

    async def get(self, kind: str, id: str) -> Record | None: ...

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        """Return records with ids greater than ``after``, by id."""

    async def remove(self, kind: str, id: str, expected: int | None = None) -> bool:
        """Remove a record. Return True if there was one (of that version)."""

    async def append(self, log: str, *data: bytes) -> int:
        """Append an entry to each log (there is at least one), in this order, all or none.

        Return the last one's number.
        """

    async def entries(self, log: str, before: int | None = None, limit: int = 100) -> list[LogEntry]:
        """Return entries, newest first; ``before``: only those with smaller numbers."""

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        """Remove at most ``limit`` entries that are older than this moment; return how many were removed."""


# -- blobs ---------------------------------------------------------------------------------------------------

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
