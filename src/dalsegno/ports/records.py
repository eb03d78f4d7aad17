"""Small things that people set up (keys, credentials, webhooks, limits), and logs of what they did."""

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
    """Kept beside definitions and history.

    * **R1 compared**: a change that expects a version is made on that version or not at all; of many that expect the
      same one, one succeeds.
    * **R2 named**: a record is found by its kind and id alone, and listed by its id within its kind, page by page.
    * **R3 whole**: ``data`` comes back as it was put, byte by byte.
    * **R4 ordered log**: entries of a log are numbered upwards in the order in which they were appended, and are only
      ever removed from the old end.
    """

    async def put(self, kind: str, id: str, data: bytes, expected: int | None = None) -> Record | None:
        """Creates or changes. ``expected``: the version it must have (0: it must not exist); None where it has not."""

    async def get(self, kind: str, id: str) -> Record | None: ...

    async def page(self, kind: str, after: str = "", limit: int = 100) -> list[Record]:
        """By id, those greater than ``after``."""

    async def remove(self, kind: str, id: str, expected: int | None = None) -> bool:
        """Whether there was one (of that version)."""

    async def append(self, log: str, *data: bytes) -> int:
        """An entry of each (there is at least one), in this order, all or none. The number of the last one."""

    async def entries(self, log: str, before: int | None = None, limit: int = 100) -> list[LogEntry]:
        """Newest first; ``before``: those with smaller numbers."""

    async def trim(self, log: str, before: float, limit: int = 500) -> int:
        """Removes at most ``limit`` entries that are older than this moment; how many went."""
