"""Which tasks workers had a while ago: one whose only worker is being restarted, or was killed, is not unknown.

Every program that works on a store is written down there, and again from time to time: the names of its tasks and the
queues that it serves. Processes of one program write the same record.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Sequence
from hashlib import sha256

import msgspec
from msgspec import Struct

from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Record, Records

KIND = "program"
"""Of the records."""
NOTED_EVERY = 300.0
REMEMBERED = 900.0
"""Seconds for which the tasks of a program that nobody runs any more are waited for."""
FRESH = 1.0
FORGOTTEN = 86_400.0
"""Seconds after which its record is removed."""


class Program(Struct, frozen=True):
    tasks: tuple[str, ...]
    queues: tuple[str, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Program).decode


class SeenTasks:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._away: dict[tuple[str, str], float] = {}

    async def keep_noting(self, program: Callable[[], Program]) -> None:
        while True:
            await self.note(program())
            await asyncio.sleep(NOTED_EVERY)

    async def note(self, program: Program) -> None:
        data = _encode(Program(_sorted(program.tasks), _sorted(program.queues)))
        await self._records.put(KIND, sha256(data).hexdigest()[:32], data)
        async for record in self._all():
            if self._age(record) > FORGOTTEN:
                await self._records.remove(KIND, record.id, record.version)

    async def was_there(self, task: str, queue: str) -> bool:
        """Whether a worker of that queue had it lately; asked where none has it now."""
        async for record in self._all():
            if self._age(record) < REMEMBERED and _has(record, task, queue):
                self._away[task, queue] = self._clock.now() + FRESH
                return True
        return False

    def was_away(self, task: str, queue: str) -> bool:
        """Whether that was found out a moment ago: of many that wait for it, not each needs to ask."""
        return self._away.get((task, queue), -math.inf) > self._clock.now()

    def _age(self, record: Record) -> float:
        return max(self._clock.now() - record.changed_at, 0.0)

    async def _all(self) -> AsyncIterator[Record]:
        after = ""
        while page := await self._records.page(KIND, after):
            for record in page:
                yield record
            after = page[-1].id


def _has(record: Record, task: str, queue: str) -> bool:
    try:
        program = _decode(record.data)
    except msgspec.DecodeError:  # of another version, which writes it otherwise
        return False
    return task in program.tasks and queue in program.queues


def _sorted(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))
