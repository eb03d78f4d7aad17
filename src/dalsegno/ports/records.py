"""The port of small records that people set up (keys, credentials, webhooks, limits), and of logs of their changes."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct


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
