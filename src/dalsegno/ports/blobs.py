"""Large values, kept apart from the rows that change often."""

from __future__ import annotations

from typing import Protocol


class Blobs(Protocol):
    """Values too large to travel inside outputs.

    * **K1 content**: the id of a blob is derived from its content, so storing it again is harmless.
    * **K2 owned**: a blob belongs to one execution and cannot be read in the name of another.
    * **K3 whole**: ``get`` returns exactly the bytes that were put, or raises NotFound; never a part.
    """

    async def put(self, execution: str, data: bytes) -> str: ...

    async def get(self, execution: str, blob: str) -> bytes: ...
