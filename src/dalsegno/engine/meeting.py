"""Reading barriers: what arrived at a join, what the items of a split brought."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from dalsegno.core import join
from dalsegno.core.body import Body, Fan, ItemResult, decode_result
from dalsegno.core.context import EMPTY
from dalsegno.core.situation import Situation
from dalsegno.core.values import decode_value
from dalsegno.engine.budget import is_light
from dalsegno.engine.loader import Loader
from dalsegno.engine.results import refuse_size
from dalsegno.lang.limits import Heavy
from dalsegno.model.barrier import SlotView
from dalsegno.model.failure import Failure
from dalsegno.model.ids import barrier_id
from dalsegno.ports.ledger import SLOTS_PAGE, Ledger

GATHERED = 4 * 1024 * 1024
"""Bytes that a light step gathers: they are only put together, not read."""


class Gathered(Struct):
    """What came of a split's items: one JSON list, spliced from their bytes, and what went wrong."""

    raw: bytearray
    arrived: int = 0
    failed: int = 0
    first_failure: Failure | None = None


class Meetings:
    def __init__(self, ledger: Ledger, loader: Loader, value_bytes: int) -> None:
        """``value_bytes``: limit of what the items of a split bring together."""
        self.ledger = ledger
        self.loader = loader
        self.value_bytes = value_bytes

    async def branches(self, situation: Situation) -> tuple[join.Meeting, list[Any]]:
        """The live arrivals at a merge or join, and their payloads in edge order."""
        lease = situation.lease
        barrier = barrier_id(lease.epoch, lease.scope, lease.node)
        slots = [slot async for slot in self._slots(lease.execution, barrier)]
        meeting = join.meet(situation, slots)
        payloads = [
            decode_value(await self.loader.raw(lease.execution, arrival, arrival.payload))
            for arrival in meeting.arrivals
            if arrival.payload is not None
        ]
        return meeting, payloads

    async def items(self, situation: Situation, fan: Fan) -> Gathered:
        """Page by page: a list of 100,000 results is never held as 100,000 objects."""
        lease = situation.lease
        gathered = Gathered(bytearray(b"["))
        expected = 0
        barrier = barrier_id(lease.epoch, lease.scope, fan.split, fan.token)
        async for slot in self._slots(lease.execution, barrier):
            _fill(gathered.raw, expected, slot.slot)
            expected = slot.slot + 1
            await self._add(lease.execution, gathered, slot)
            if len(gathered.raw) > GATHERED and is_light.get():
                raise Heavy
            refuse_size(len(gathered.raw), f"the output of '{lease.node}'", self.value_bytes)
        _fill(gathered.raw, expected, fan.total)
        if len(gathered.raw) > 1:
            gathered.raw.pop()
        gathered.raw += b"]"
        return gathered

    async def _add(self, execution: str, gathered: Gathered, slot: SlotView) -> None:
        result = decode_result(slot.data) if slot.data is not None else ItemResult(None)
        gathered.arrived += 1
        if result.failed:
            gathered.failed += 1
            if gathered.first_failure is None:
                gathered.first_failure = join.item_failure(slot.slot, result)
        if result.value is None:
            gathered.raw += b"null,"
            return
        body = Body(result.context or EMPTY)
        gathered.raw += await self.loader.raw(execution, body, result.value)
        gathered.raw += b","

    async def _slots(self, execution: str, barrier: str) -> AsyncIterator[SlotView]:
        after = -1
        while page := await self.ledger.slots(execution, barrier, after, SLOTS_PAGE):
            for slot in page:
                yield slot
            after = page[-1].slot
            if len(page) < SLOTS_PAGE:
                break


def _fill(raw: bytearray, expected: int, number: int) -> None:
    """Items that are still open, because the barrier gave up, have brought nothing."""
    raw += b"null," * (number - expected)
