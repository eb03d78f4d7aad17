"""What one execution may store: its blobs, and the larger values in its rows."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable

from dalsegno.model.effect import ResolveSlot, SettlePromise, SpawnToken, StoreOutput
from dalsegno.model.transition import Transition
from dalsegno.ports.blobs import Blobs

SMALL = 1024
"""Values in rows up to this size do not count: what bounds those is the rate of steps."""
AT_ONCE = 1024 * 1024
"""Bytes in rows that are written to the store's count together."""
REMEMBERED = 10_000
"""Executions of which bytes are remembered that were not written yet."""

_NAME = re.compile(rb'"([0-9a-f]{64})"')


class Storage:
    """The blobs of a store within the limit ``stored_bytes``.

    Blobs are counted when they are put. Bytes in rows are added up in memory and reach the store's count by the
    mebibyte, so that no step costs a statement more: each process may be behind by that much.
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
        size += self._uncounted.pop(execution, 0)
        if abs(size) >= AT_ONCE:
            await self._blobs.charge(execution, size, limit=self.limit if limit is None else limit)
            return
        self._uncounted[execution] = size
        if len(self._uncounted) > REMEMBERED:
            self._uncounted.popitem(last=False)


def bytes_in_rows(transition: Transition) -> int:
    """What a transition adds to an execution's rows, as far as it counts. Its history does not: that has no limit."""
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
    """Names of blobs in a snapshot, and in pages of one; values that look like names are among them."""
    return frozenset([name.decode() for part in parts for name in _NAME.findall(part)])
