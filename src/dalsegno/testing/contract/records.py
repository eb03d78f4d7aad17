"""R1 to R4: records are compared before they change, and logs are in order."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.testing.contract.capabilities import Topic
from dalsegno.testing.contract.stack import ContractStack


class RecordsAndLogs(Topic):
    guarantees = frozenset(("R1", "R2", "R3", "R4"))
    needs = frozenset(("records",))

    async def test_r1_compared_before_it_changes(self, stack: ContractStack) -> None:
        records = stack.records
        first = await records.put("key", "a", b"1", expected=0)
        assert first is not None
        assert first.version == 1

        assert await records.put("key", "a", b"2", expected=0) is None
        second = await records.put("key", "a", b"2", expected=1)
        assert second is not None
        assert (second.version, second.created_at) == (2, first.created_at)
        assert await records.put("key", "a", b"3", expected=1) is None
        assert await records.remove("key", "a", expected=1) is False
        found = await records.get("key", "a")
        assert found is not None
        assert found.data == b"2"
        assert await records.remove("key", "a", expected=2) is True

    async def test_r1_compared_one_of_many_succeeds(self, stack: ContractStack) -> None:
        answers = await asyncio.gather(
            *(stack.records.put("key", "a", bytes([number]), expected=0) for number in range(8))
        )
        assert len([answer for answer in answers if answer is not None]) == 1

    async def test_r1_compared_only_where_something_is_expected(self, stack: ContractStack) -> None:
        await stack.records.put("key", "a", b"1")
        changed = await stack.records.put("key", "a", b"2")
        assert changed is not None
        assert (changed.data, changed.version) == (b"2", 2)

    async def test_r2_named_by_kind_and_id(self, stack: ContractStack) -> None:
        await stack.records.put("key", "same", b"1")
        await stack.records.put("webhook", "same", b"2")
        key, webhook = await stack.records.get("key", "same"), await stack.records.get("webhook", "same")
        assert key is not None
        assert webhook is not None
        assert (key.data, webhook.data) == (b"1", b"2")
        assert await stack.records.get("key", "other") is None
        assert await stack.records.remove("key", "other") is False

    async def test_r2_named_and_listed_page_by_page(self, stack: ContractStack) -> None:
        for name in ("c", "a", "é", "b", "B"):
            await stack.records.put("key", name, b"")
        await stack.records.put("other", "z", b"")
        seen: list[str] = []
        while page := await stack.records.page("key", seen[-1] if seen else "", 2):
            assert len(page) <= 2
            seen += [record.id for record in page]
        assert seen == ["B", "a", "b", "c", "é"]

    @pytest.mark.parametrize("data", [b"", b"\x00", b"[]", b"\xff\xfe", bytes(range(256)) * 500])
    async def test_r3_whole_as_it_was_put(self, stack: ContractStack, data: bytes) -> None:
        await stack.records.put("key", "a", data)
        found = await stack.records.get("key", "a")
        assert found is not None
        assert found.data == data

    async def test_r4_ordered_log_newest_first(self, stack: ContractStack) -> None:
        numbers = [await stack.records.append("audit", bytes([number])) for number in range(5)]
        await stack.records.append("other", b"x")
        assert numbers == sorted(set(numbers))
        first = await stack.records.entries("audit", limit=2)
        assert [entry.data for entry in first] == [b"\x04", b"\x03"]
        rest = await stack.records.entries("audit", before=first[-1].number)
        assert [entry.data for entry in rest] == [b"\x02", b"\x01", b"\x00"]

    async def test_r4_ordered_log_takes_many_at_once(self, stack: ContractStack) -> None:
        first = await stack.records.append("audit", b"a")
        last = await stack.records.append("audit", b"b", b"c", b"d")
        found = await stack.records.entries("audit")
        assert [entry.data for entry in found] == [b"d", b"c", b"b", b"a"]
        assert (found[-1].number, found[0].number) == (first, last)

    async def test_r4_ordered_log_is_trimmed_at_its_old_end(self, stack: ContractStack) -> None:
        began = stack.clock.now()
        for number in range(4):
            stack.clock.set(began + number)
            await stack.records.append("audit", bytes([number]))
        assert await stack.records.trim("audit", began + 3, limit=2) == 2
        assert await stack.records.trim("audit", began + 3) == 1
        assert await stack.records.trim("audit", began + 3) == 0
        last = await stack.records.append("audit", b"new")
        assert [entry.data for entry in await stack.records.entries("audit")] == [b"new", b"\x03"]
        assert last > (await stack.records.entries("audit"))[1].number
