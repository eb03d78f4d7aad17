"""R1 to R4: records are compared before they change, and logs are in order. K1 to K6: large values.

Large values are addressed by content, owned by one execution, stored whole or not at all, counted, and removed in time.
"""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.ports.records import UNTIL_REMOVED
from dalsegno.testing.contract.builders import start
from dalsegno.testing.contract.stack import ContractStack, Topic


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


# -- k1 to K6: large values ----------------------------------------------------------------------------------

MEBIBYTE = bytes(range(256)) * 4096


class BlobStorage(Topic):
    guarantees = frozenset(("K1", "K2", "K3", "K4", "K5", "K6"))
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

    async def test_k4_counted_each_blob_once(self, stack: ContractStack) -> None:
        await asyncio.gather(*(stack.blobs.put("run-1", b"x" * 60, limit=100) for _ in range(4)))

        with pytest.raises(LimitExceeded, match="stored_bytes"):
            await stack.blobs.put("run-1", b"y" * 41, limit=100)

        await stack.blobs.put("run-1", b"z" * 40, limit=100)
        await stack.blobs.put("run-2", b"y" * 41, limit=100)

    async def test_k4_counted_with_what_was_charged(self, stack: ContractStack) -> None:
        await stack.blobs.charge("run-1", 70, limit=100)
        with pytest.raises(LimitExceeded):
            await stack.blobs.put("run-1", b"x" * 40, limit=100)
        with pytest.raises(LimitExceeded):
            await stack.blobs.charge("run-1", 31, limit=100)

        await stack.blobs.charge("run-1", -70, limit=100)
        blob = await stack.blobs.put("run-1", b"x" * 100, limit=100)

        assert await stack.blobs.get("run-1", blob) == b"x" * 100

    async def test_k4_counted_a_refused_blob_is_not_stored(self, stack: ContractStack) -> None:
        other = await stack.blobs.put("run-2", b"x" * 200)
        with pytest.raises(LimitExceeded):
            await stack.blobs.put("run-1", b"x" * 200, limit=100)

        with pytest.raises(NotFound):
            await stack.blobs.get("run-1", other)

    async def test_k5_pruned_frees_what_earlier_turns_put(self, stack: ContractStack) -> None:
        blobs = stack.blobs
        old, kept = [await blobs.put("run-1", data * 40, turn=1, limit=100) for data in (b"a", b"b")]

        await blobs.prune("run-1", 2, [kept])
        new = await blobs.put("run-1", b"c" * 60, turn=2, limit=100)

        assert await blobs.get("run-1", kept) == b"b" * 40
        assert await blobs.get("run-1", new) == b"c" * 60
        with pytest.raises(NotFound):
            await blobs.get("run-1", old)

    async def test_k5_pruned_leaves_what_is_put_again_or_belongs_to_others(
        self, stack: ContractStack
    ) -> None:
        blobs = stack.blobs
        again = await blobs.put("run-1", b"again", turn=1)
        await blobs.put("run-1", b"again", turn=5)
        output = await blobs.put("run-1", b"output", turn=1)
        await blobs.put("run-1", b"output")
        foreign = await blobs.put("run-2", b"foreign", turn=1)

        await blobs.prune("run-1", 5, [])

        assert await blobs.get("run-1", again) == b"again"
        assert await blobs.get("run-1", output) == b"output"
        assert await blobs.get("run-2", foreign) == b"foreign"

    async def test_k6_removed_frees_what_it_names(self, stack: ContractStack) -> None:
        blobs = stack.blobs
        gone, stays = [
            await blobs.put("run-1", data, turn=UNTIL_REMOVED, limit=2 * len(MEBIBYTE) + 3)
            for data in (MEBIBYTE + b"1", MEBIBYTE + b"2")
        ]
        await blobs.put("run-2", MEBIBYTE + b"1", turn=UNTIL_REMOVED)

        await blobs.prune("run-1", UNTIL_REMOVED, [])
        assert await blobs.stored("run-1") == 2 * len(MEBIBYTE) + 2
        await blobs.remove("run-1", [gone, "0" * 64])
        await blobs.remove("run-1", [gone])

        assert await blobs.stored("run-1") == len(MEBIBYTE) + 1
        assert await blobs.get("run-1", stays) == MEBIBYTE + b"2"
        assert await blobs.get("run-2", gone) == MEBIBYTE + b"1"
        with pytest.raises(NotFound):
            await blobs.get("run-1", gone)
        assert await blobs.put("run-1", MEBIBYTE + b"1", turn=UNTIL_REMOVED) == gone
        assert await blobs.get("run-1", gone) == MEBIBYTE + b"1"

    async def test_k6_removed_spares_what_was_put_without_a_turn(self, stack: ContractStack) -> None:
        blobs = stack.blobs
        output = await blobs.put("run-1", b"output")
        kept = await blobs.put("run-1", b"kept", turn=UNTIL_REMOVED)
        await blobs.put("run-1", b"kept")

        await blobs.remove("run-1", [output, kept])

        assert await blobs.get("run-1", output) == b"output"
        assert await blobs.get("run-1", kept) == b"kept"
