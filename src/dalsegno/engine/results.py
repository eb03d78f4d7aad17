"""Values on their way into the ledger: checked, encoded once, and put into a blob where they are large."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any

from dalsegno.core.situation import Result
from dalsegno.core.values import Survey, encode_surveyed, is_small
from dalsegno.engine.budget import SLICE
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.errors import LimitExceeded
from dalsegno.ports.blobs import Blobs

BLOB_SIZE = 256 * 1024
"""Values from this size on are kept as blobs, apart from the rows."""


class Results:
    def __init__(self, blobs: Blobs, limits: EngineLimits = DEFAULT_LIMITS) -> None:
        self.blobs = blobs
        self.limits = limits
        self._small = min(BLOB_SIZE, limits.value_bytes + 1)

    async def of(self, execution: str, value: Any, what: str) -> Result:
        """Raises NotJson, which names the place inside ``what``, or LimitExceeded."""
        if is_small(value):
            raw = encode_surveyed(value, what, None)
        else:
            raw = await encode_large(value, what, self.limits.value_bytes)
        return Result(raw) if self.is_small(raw) else await self.of_raw(execution, raw, what)

    def is_small(self, raw: bytes) -> bool:
        """Nearly all are: neither too large nor worth a blob."""
        return len(raw) < self._small

    async def of_raw(self, execution: str, raw: bytes, what: str) -> Result:
        refuse_large(raw, what, self.limits)
        if len(raw) < BLOB_SIZE:
            return Result(raw)
        return Result(raw, await self.blobs.put(execution, raw))

    async def of_each(self, execution: str, values: Sequence[Any], what: str) -> list[Result]:
        return [await self.of(execution, value, what) for value in values]


async def encode_large(value: Any, what: str, limit: int) -> bytes:
    """The JSON of a value that is not small. Others get their turn while it is measured."""
    survey = Survey(limit)
    until = monotonic() + SLICE
    for _ in survey.measure(value, what):
        if monotonic() > until:
            await asyncio.sleep(0)
            until = monotonic() + SLICE
    return encode_surveyed(value, what, survey)


def refuse_large(raw: bytes | bytearray, what: str, limits: EngineLimits) -> None:
    refuse_size(len(raw), what, limits.value_bytes)


def refuse_size(size: int, what: str, limit: int) -> None:
    if size > limit:
        raise LimitExceeded(
            f"{what} is {size:,} bytes of JSON, more than the limit value_bytes of {limit:,}; "
            "keep large data elsewhere and pass a reference to it"
        )
