"""Values of steps: loading the parts of a context that a step needs, and storing results within a limit.

- Small values are in the token itself; only pages and large outputs are read from the ledger. Both are immutable, so
  a small cache serves the items of a split that all reference the same list.
- Values to be stored are checked, encoded once, and put into a blob if they are large.
- The blobs of an execution, and the larger values in its rows, are counted against the limit ``stored_bytes``.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from operator import attrgetter
from time import monotonic
from typing import Any

from msgspec import Raw

from dalsegno.core.graph.step_input import (
    BLOB,
    ITEM,
    KEY,
    OUTPUT,
    VALUE,
    Body,
    Context,
    Entry,
    Loop,
    Result,
    decode_page,
    key_of,
    reference_name,
)
from dalsegno.core.values import Survey, decode_value, encode_small, encode_surveyed, refuse_size
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.budget import SLICE, is_light, refuse_if_light
from dalsegno.errors import InternalError, LimitExceeded
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.effect import ResolveSlot, SettlePromise, SpawnToken, StoreOutput
from dalsegno.model.transition import Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.records import Blobs

CACHED_PAGES = 256
CACHED_BYTES = 16 * 1024 * 1024

Lookup = Callable[[str], Any]
Meta = Callable[[str], dict[str, Any]]


class Loader:
    def __init__(self, ledger: Ledger, blobs: Blobs) -> None:
        self.ledger = ledger
        self.blobs = blobs
        self._raws: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._held = 0
        self._pages: OrderedDict[tuple[str, str], Context] = OrderedDict()
        self._array: tuple[tuple[str, str], list[Any]] | None = None

    async def lookup(self, execution: str, body: Body, roots: Collection[str], meta: Meta) -> Lookup:
        """Return a lookup for these roots. It raises KeyError for a root without a value in this execution."""
        if not roots:
            return load_nothing
        found: dict[str, Entry | Loop] = {}
        for root in roots:
            entry = await self._find_root(execution, body, root)
            if entry is not None:
                found[root] = entry
        raws = {root: await self._raw(execution, body, entry) for root, entry in found.items()}
        if raws:
            refuse_if_light(sum(map(len, raws.values())))
        return _reader(raws, meta(execution) if "$execution" in roots else None)

    async def _find_root(self, execution: str, body: Body, root: str) -> Entry | Loop | None:
        if root == "$item":
            return body.loops[-1].item if body.loops else None
        if root == "$index":
            return body.loops[-1] if body.loops else None
        if root == "$payload":
            return body.payload
        if root == "$json":
            return await self.find(execution, body.context, "$json") or body.payload
        for loop in reversed(body.loops):
            if loop.split == root:
                return loop
        return await self.find(execution, body.context, root if root.startswith("$") else key_of(root))

    async def find(self, execution: str, context: Context, key: str) -> Entry | None:
        """Return an entry of the context: later pages take precedence over earlier ones, own entries over all
        pages.
        """
        own = context.entries.get(key)
        if own is not None:
            return own
        for page in reversed(context.pages):
            found = await self.find(execution, await self._page(execution, page), key)
            if found is not None:
                return found
        return None

    async def _page(self, execution: str, page: str) -> Context:
        """Return a decoded page. Pages are cached, because the items of a split all read the same one."""
        known = self._pages.get((execution, page))
        if known is None:
            known = self._pages[execution, page] = decode_page(await self._stored(execution, page))
            if len(self._pages) > CACHED_PAGES:
                self._pages.popitem(last=False)
        return known

    async def _raw(self, execution: str, body: Body, entry: Entry | Loop) -> bytes | Raw | _LoopValue:
        if isinstance(entry, Loop):
            return _LoopValue(entry, await self.raw(execution, body, entry.item))
        return await self.raw(execution, body, entry)

    async def raw(self, execution: str, body: Body, entry: Entry) -> bytes | Raw:
        """Return the JSON of an entry."""
        if entry.kind == VALUE:
            return entry.raw
        if entry.kind == OUTPUT:
            return await self._stored(execution, reference_name(entry))
        if entry.kind == BLOB:
            if is_light.get():
                raise Heavy
            return await self.blobs.get(execution, reference_name(entry))
        if entry.kind == KEY:
            found = await self.find(execution, body.context, reference_name(entry))
            return await self.raw(execution, body, found) if found is not None else b"null"
        if entry.kind == ITEM:
            return await self.raw(execution, body, body.loops[-1].item)
        raise InternalError(
            f"a token of execution {execution} refers to something of unknown kind {entry.kind}"
        )

    async def array(self, execution: str, body: Body, entry: Entry) -> list[Any]:
        """Return the whole list of a split. The last one stays decoded, because its windows follow each other."""
        if entry.kind == VALUE:
            return list(decode_value(entry.raw))
        name = (execution, reference_name(entry))
        if self._array is None or self._array[0] != name:
            self._array = (name, decode_value(await self.raw(execution, body, entry)))
        return self._array[1]

    async def _stored(self, execution: str, output: str) -> bytes:
        known = self._raws.get((execution, output))
        if known is not None:
            self._raws.move_to_end((execution, output))
            return known
        found = (await self.ledger.outputs(execution, [output])).get(output)
        if found is None:
            raise InternalError(f"execution {execution} refers to output {output}, which is not stored")
        self.remember(execution, output, found)
        return found

    def remember(self, execution: str, output: str, raw: bytes) -> None:
        """Cache an output: outputs just stored are often the next to be read."""
        if len(raw) > CACHED_BYTES // 4 or (execution, output) in self._raws:
            return
        self._raws[execution, output] = raw
        self._held += len(raw)
        while self._held > CACHED_BYTES:
            _, dropped = self._raws.popitem(last=False)
            self._held -= len(dropped)


def load_nothing(root: str) -> Any:
    """The lookup of a step that references no root."""
    raise KeyError(root)


class _LoopValue:
    __slots__ = ("item", "loop")

    def __init__(self, loop: Loop, item: bytes | Raw) -> None:
        self.loop = loop
        self.item = item

    def __len__(self) -> int:
        return len(self.item)


def _reader(raws: dict[str, Any], meta: dict[str, Any] | None) -> Lookup:
    values: dict[str, Any] = {} if meta is None else {"$execution": meta}

    def read(root: str) -> Any:
        if root in values:
            return values[root]
        raw = raws[root]
        if isinstance(raw, _LoopValue):
            loop = raw.loop
            if root == "$index":
                result: Any = loop.index
            else:
                result = {"item": decode_value(raw.item), "index": loop.index, "total": loop.total}
        else:
            result = decode_value(raw)
        values[root] = result
        return result

    return read


BLOB_SIZE = 256 * 1024
"""Bytes from which on values are stored as blobs, apart from the rows."""


class Results:
    def __init__(self, blobs: Blobs, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        self.blobs = blobs
        self.limits = limits
        self._small = min(BLOB_SIZE, limits.value_bytes + 1)

    def of_small(self, value: Any, what: str) -> Result | None:
        """Encode a small value, which is neither measured nor put into a blob. None if it is not small. Raises
        NotJson.
        """
        raw = encode_small(value, what)
        return Result(raw) if raw is not None and len(raw) < self._small else None

    async def of(self, execution: str, value: Any, what: str) -> Result:
        """Encode a value. Raises NotJson, which names the place inside ``what``, or LimitExceeded."""
        raw = encode_small(value, what)
        if raw is None:
            raw = await encode_large(value, what, self.limits.value_bytes)
        return Result(raw) if len(raw) < self._small else await self.of_raw(execution, raw, what)

    async def of_raw(self, execution: str, raw: bytes, what: str) -> Result:
        refuse_size(len(raw), what, self.limits.value_bytes)
        if len(raw) < BLOB_SIZE:
            return Result(raw)
        return Result(raw, await self.blobs.put(execution, raw))

    async def of_each(self, execution: str, values: Sequence[Any], what: str) -> list[Result]:
        return [await self.of(execution, value, what) for value in values]


async def encode_large(value: Any, what: str, limit: int) -> bytes:
    """Return the JSON of a value that is not small, yielding to other work while it is measured."""
    survey = Survey(limit)
    until = monotonic() + SLICE
    for _ in survey.measure(value, what):
        if monotonic() > until:
            await asyncio.sleep(0)
            until = monotonic() + SLICE
    return encode_surveyed(value, what, survey)


# -- stored bytes ----------------------------------------------------------------------------------------------

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
        self.make_room: Callable[[str], Awaitable[bool]] = _no_room
        """Called before a limit is passed. Returns True if something that gives way was removed."""

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        limit = self.limit if limit is None else limit
        try:
            return await self._blobs.put(execution, data, turn=turn, limit=limit)
        except LimitExceeded:
            if not await self.make_room(execution):
                raise
        return await self._blobs.put(execution, data, turn=turn, limit=limit)

    async def stored(self, execution: str) -> int:
        return await self._blobs.stored(execution)

    async def get(self, execution: str, blob: str) -> bytes:
        return await self._blobs.get(execution, blob)

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        await self._blobs.prune(execution, turn, keep)

    async def remove(self, execution: str, blobs: Collection[str]) -> None:
        await self._blobs.remove(execution, blobs)

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        before = self._uncounted.pop(execution, 0)
        size += before
        if abs(size) >= AT_ONCE:
            limit = self.limit if limit is None else limit
            try:
                try:
                    await self._blobs.charge(execution, size, limit=limit)
                except LimitExceeded:
                    if not await self.make_room(execution):
                        raise
                    await self._blobs.charge(execution, size, limit=limit)
            except LimitExceeded:
                self._uncounted[execution] = self._uncounted.get(execution, 0) + before
                raise
            return
        self._uncounted[execution] = size
        if len(self._uncounted) > REMEMBERED:
            self._uncounted.popitem(last=False)


async def _no_room(_execution: str) -> bool:
    return False


def bytes_in_rows(transition: Transition) -> int:
    """Return the bytes that a transition adds to an execution's rows, counting only larger values. Its history does
    not count: it has no limit.
    """
    size = 0
    for effect in transition.effects:
        if type(effect) is SpawnToken:  # nearly every effect of nearly every step
            if len(effect.token.data) > SMALL:
                size += len(effect.token.data)
        elif (
            (data_of := _DATA.get(type(effect))) is not None
            and (data := data_of(effect)) is not None
            and len(data) > SMALL
        ):
            size += len(data)
    return size


_DATA: dict[type, Callable[[Any], bytes | None]] = {
    StoreOutput: attrgetter("data"),
    ResolveSlot: attrgetter("data"),
    SettlePromise: attrgetter("completion.data"),
}


def blob_names(parts: Iterable[bytes]) -> frozenset[str]:
    """Return the names of blobs in a snapshot and its pages, including values that look like names."""
    return frozenset([name.decode() for part in parts for name in _NAME.findall(part)])
