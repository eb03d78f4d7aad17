"""The storage of one execution: its blobs, and the larger values in its rows, within a limit."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable

from dalsegno.errors import LimitExceeded
from dalsegno.model.effect import ResolveSlot, SettlePromise, SpawnToken, StoreOutput
from dalsegno.model.transition import Transition
from dalsegno.ports.blobs import Blobs

SMALL = 1024
"""Bytes up to which values in rows do not count: they are bounded by the rate of steps."""
AT_ONCE = 1024 * 1024
"""Bytes in rows that are added to the store's count at a time."""
REMEMBERED = 10_000
"""Executions whose uncounted bytes are remembered."""

_NAME = re.compile(rb'"([0-9a-f]{64})"')


class Storage:
    """The blobs of a store within the limit ``stored_bytes``.

    Blobs are counted when they are put. Bytes in rows are summed in memory and added to the store's count by the
    mebibyte, so that a step needs no additional statement. Each process may lag behind by that much.
    """

    def __init__(self, blobs: Blobs, limit: int) -> None:
        self.limit = limit
        self._blobs = blobs
        self._uncounted: OrderedDict[str, int] = OrderedDict()

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        return await self._blobs.put(execution, data, turn=turn, limit=self.limit if limit is None else limit)

    async def stored(self, execution: str) -> int:
        return await self._blobs.stored(execution)

    async def get(self, execution: str, blob: str) -> bytes:
        return await self._blobs.get(execution, blob)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        await self._blobs.prune(execution, turn, keep)

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        before = self._uncounted.pop(execution, 0)
        size += before
        if abs(size) >= AT_ONCE:
            try:
                await self._blobs.charge(execution, size, limit=self.limit if limit is None else limit)
            except LimitExceeded:
                self._uncounted[execution] = self._uncounted.get(execution, 0) + before
                raise
            return
        self._uncounted[execution] = size
        if len(self._uncounted) > REMEMBERED:
            self._uncounted.popitem(last=False)


def bytes_in_rows(transition: Transition) -> int:
    """Return the bytes that a transition adds to an execution's rows, counting only larger values. Its history does
    not count: it has no limit.
    """
    size = 0
    for effect in transition.effects:
        kind = type(effect)
        if kind is SpawnToken:
            data = effect.token.data  # type: ignore[union-attr]
        elif kind is StoreOutput or kind is ResolveSlot:
            data = effect.data  # type: ignore[union-attr]
        elif kind is SettlePromise:
            data = effect.completion.data  # type: ignore[union-attr]
        else:
            continue
        if data is not None and len(data) > SMALL:
            size += len(data)
    return size


def blob_names(parts: Iterable[bytes]) -> frozenset[str]:
    """Return the names of blobs in a snapshot and its pages, including values that look like names."""
    return frozenset([name.decode() for part in parts for name in _NAME.findall(part)])
