"""Records about remote tasks: their declarations, and the last claims of their queues.

Programs that declare remote tasks record them when they start. Servers record which worker claims which queue, so
that they can report which program is missing, and since when.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Container, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Record, Records

TASKS = "remote-task"
QUEUES = "remote-queue"
"""Kinds of the records."""
NOTED_EVERY = 30.0
"""Seconds between two records of the same worker claiming the same queue."""
OTHERS_NOTED_EVERY = 1.0
"""Seconds after which a claim by another worker is recorded."""


class Declaration(Struct, frozen=True):
    task: str
    queue: str
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    returns: dict[str, Any] | None = None
    """JSON Schema of the output; None if any output is valid, or if the type has no schema."""
    docs: str = ""


class LastClaim(Struct, frozen=True):
    """The remote worker that last claimed from a queue, and the time."""

    worker: str
    at: float


class _Claimed(Struct, frozen=True):
    worker: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Declaration).decode
_decode_claim = msgspec.json.Decoder(_Claimed).decode


class RemoteDeclarations:
    def __init__(self, records: Records, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._noted: dict[str, LastClaim] = {}
        self._declared: dict[str, Declaration] = {}
        """Declarations by task, as last read."""
        self._looked = -math.inf

    async def declare(self, remote: Iterable[Declaration], own: Iterable[str]) -> None:
        """Record the declarations. ``own``: the other tasks of the program, one of which may have been remote
        before.
        """
        for declaration in remote:
            data = _encode(declaration)
            known = await self._records.get(TASKS, declaration.task)
            if known is None or known.data != data:
                await self._records.put(TASKS, declaration.task, data)
        here = set(own)
        async for record in self._all():
            if record.id in here:
                await self._records.remove(TASKS, record.id, record.version)

    async def of(self, task: str) -> Declaration | None:
        record = await self._records.get(TASKS, task)
        return read_declaration(record) if record is not None else None

    async def recent(self, task: str) -> Declaration | None:
        """Return a declaration that is at most half a minute old, for callers that need it for every task."""
        await self._look(self._clock.now())
        return self._declared.get(task)

    async def of_queue(self, queue: str) -> list[Declaration]:
        return [each for each in await self._declarations() if each.queue == queue]

    async def queues(self) -> set[str]:
        """Return the queues of all remote tasks."""
        return {each.queue for each in await self._declarations()}

    async def _declarations(self) -> list[Declaration]:
        found = [read_declaration(record) async for record in self._all()]
        return [each for each in found if each is not None]

    async def note_claim(self, worker: str, queues: Iterable[str], given: Container[str] = ()) -> None:
        """Record that a remote worker claims these queues; it has received tasks of those in ``given``. Of the others
        only queues with a declared remote task are recorded, so that arbitrary queue names leave no records.
        """
        now = self._clock.now()
        await self._look(now)
        declared = {each.queue for each in self._declared.values()}
        for queue in queues:
            if (queue in given or queue in declared) and self._is_new(queue, worker, now):
                self._noted[queue] = LastClaim(worker, now)
                await self._records.put(QUEUES, queue, _encode(_Claimed(worker)))

    async def _look(self, now: float) -> None:
        if now - self._looked >= NOTED_EVERY:
            self._looked = now
            self._noted = {
                queue: noted for queue, noted in self._noted.items() if now - noted.at < NOTED_EVERY
            }
            self._declared = {each.task: each for each in await self._declarations()}

    def _is_new(self, queue: str, worker: str, now: float) -> bool:
        noted = self._noted.get(queue)
        if noted is None:
            return True
        return now - noted.at >= (NOTED_EVERY if noted.worker == worker else OTHERS_NOTED_EVERY)

    async def last_claim(self, queue: str) -> LastClaim | None:
        record = await self._records.get(QUEUES, queue)
        return read_claim(record) if record is not None else None

    async def _all(self) -> AsyncIterator[Record]:
        after = ""
        while page := await self._records.page(TASKS, after):
            for record in page:
                yield record
            after = page[-1].id


def read_declaration(record: Record) -> Declaration | None:
    """Decode a declaration. None for a record of another kind, or of a version with another format."""
    try:
        return _decode(record.data) if record.kind == TASKS else None
    except msgspec.DecodeError:
        return None


def read_claim(record: Record) -> LastClaim | None:
    """Decode a last claim. None as for a declaration."""
    try:
        if record.kind == QUEUES:
            return LastClaim(_decode_claim(record.data).worker, record.changed_at)
    except msgspec.DecodeError:
        pass
    return None


def schema_of_output(annotation: Any) -> dict[str, Any] | None:
    """Return the JSON Schema of a task's return type, if it has one."""
    if annotation is Any:
        return None
    try:
        return msgspec.json.schema(annotation)
    except (TypeError, RuntimeError, NameError):
        return _schema_of_model(annotation)


def _schema_of_model(annotation: Any) -> dict[str, Any] | None:
    from pydantic import PydanticSchemaGenerationError, TypeAdapter  # noqa: PLC0415 - only where there is a model
    from pydantic.errors import PydanticUserError  # noqa: PLC0415 - as above

    try:
        return TypeAdapter(annotation).json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError):
        return None
