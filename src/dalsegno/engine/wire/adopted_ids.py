"""Ids of adopted executions: known for 48 hours after the end, also where retention has removed the execution."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from dalsegno.model.execution import ENDED
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.records import Records

KIND = "adopted-execution"
KEPT = 48 * 3600.0
"""Longer than a message lives in a queue and on the retry ladder."""
PAGE = 500
EVERY = 600.0
"""Seconds between two looks at all adopted ids."""


class AdoptedId(Struct, frozen=True):
    ended_at: float | None = None
    """The end of the execution, at the latest; None as long as it runs."""


_decode = msgspec.json.Decoder(AdoptedId).decode


class AdoptedIds:
    def __init__(self, records: Records, archive: Archive, ledger: Ledger) -> None:
        self.records = records
        self.archive = archive
        self.ledger = ledger

    async def add(self, execution: str) -> None:
        await self.records.put(KIND, execution, msgspec.json.encode(AdoptedId()), expected=0)

    async def has(self, execution: str) -> bool:
        return await self.records.get(KIND, execution) is not None

    async def run(self) -> None:
        while True:
            await self.forget_old()
            await asyncio.sleep(EVERY)

    async def forget_old(self) -> int:
        """Note which executions have ended, and remove ids that are no longer needed; return how many were removed."""
        now, after, removed = self.ledger.now(), "", 0
        while page := await self.records.page(KIND, after, PAGE):
            after = page[-1].id
            states = await self.archive.states([record.id for record in page])
            for record in page:
                if record.id in states and states[record.id] not in ENDED:
                    continue
                known = _decode(record.data)
                if known.ended_at is None:
                    ended = msgspec.json.encode(AdoptedId(now))
                    await self.records.put(KIND, record.id, ended, expected=record.version)
                elif known.ended_at + KEPT < now:
                    removed += await self.records.remove(KIND, record.id, expected=record.version)
        return removed
