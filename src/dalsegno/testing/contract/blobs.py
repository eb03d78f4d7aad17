"""K1, K2 and K3: large values by content, owned by one execution, whole or not at all."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.errors import NotFound
from dalsegno.testing.contract.build import start
from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack

MEBIBYTE = bytes(range(256)) * 4096


class BlobStorage(Topic):
    guarantees = frozenset(("K1", "K2", "K3"))
    needs = frozenset(("commit", "blobs"))

    async def test_k1_content_storing_it_again_is_harmless(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"))

        first, second = await stack.blobs.put("run-1", b"same"), await stack.blobs.put("run-1", b"same")

        assert first == second
        assert await stack.blobs.get("run-1", first) == b"same"

    async def test_k1_content_decides_the_id(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"), start("run-2"))

        ids = {await stack.blobs.put("run-1", bytes([number])) for number in range(10)}

        assert len(ids) == 10
        assert await stack.blobs.put("run-2", bytes([3])) in ids

    async def test_k1_content_stored_concurrently(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"))

        ids = await asyncio.gather(*(stack.blobs.put("run-1", b"same") for _ in range(6)))

        assert len(set(ids)) == 1
        assert await stack.blobs.get("run-1", ids[0]) == b"same"

    async def test_k2_owned_cannot_be_read_in_anothers_name(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"), start("run-2"))
        blob = await stack.blobs.put("run-1", b"secret")

        with pytest.raises(NotFound):
            await stack.blobs.get("run-2", blob)

    async def test_k2_owned_by_each_that_stored_it(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"), start("run-2"))

        first, second = await stack.blobs.put("run-1", b"x"), await stack.blobs.put("run-2", b"x")

        assert await stack.blobs.get("run-1", first) == await stack.blobs.get("run-2", second) == b"x"

    @pytest.mark.parametrize(
        "data", [b"", b"\x00", b"[]", b"\xff\xfe", MEBIBYTE], ids=["empty", "nul", "list", "ff", "1M"]
    )
    async def test_k3_whole_exactly_the_bytes_that_were_put(self, stack: ContractStack, data: bytes) -> None:
        await stack.apply(start("run-1"))

        assert await stack.blobs.get("run-1", await stack.blobs.put("run-1", data)) == data

    async def test_k3_whole_or_not_found(self, stack: ContractStack) -> None:
        await stack.apply(start("run-1"))

        with pytest.raises(NotFound):
            await stack.blobs.get("run-1", "0" * 64)
