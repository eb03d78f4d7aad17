"""Published values and streams: by turns with their commits, and by running tasks."""

from __future__ import annotations

from typing import Any

import msgspec

from dalsegno.model.effect import AppendChunks, PublishValues
from dalsegno.model.published import (
    LARGEST_CHUNK,
    LARGEST_STREAM,
    LOG,
    MOST_KEYS,
    MOST_STREAMS,
    ChunkWrite,
    Refusal,
    ValueWrite,
)
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Stale
from dalsegno.testing.contract.builders import RUN, command, finish, step, token
from dalsegno.testing.contract.stack import ContractStack, Topic

ANSWER = "answer"


async def shown(stack: ContractStack) -> dict[str, Any]:
    return {row.key: msgspec.json.decode(row.data) for row in await stack.published.values(RUN)}


async def chunks(stack: ContractStack, name: str = ANSWER, offset: int = 0) -> list[tuple[int, Any]]:
    found = []
    for part in await stack.published.parts(RUN, name, offset):
        values = msgspec.json.decode(part.data)
        assert len(values) == part.count
        found += [(part.first + place, value) for place, value in enumerate(values)]
    return [(number, value) for number, value in found if number >= offset]


def value(lease: Lease, key: str, data: bytes | None, *, passing: bool = False) -> ValueWrite:
    return ValueWrite(RUN, lease.token, lease.fence, key, data, passing)


def written(lease: Lease, *texts: bytes, stream: str = ANSWER, closes: bool = False) -> ChunkWrite:
    return ChunkWrite(RUN, lease.token, lease.fence, lease.attempt, lease.node, stream, texts, closes)


async def again(stack: ContractStack, lease: Lease) -> Lease:
    """Let the lease's worker be lost, and return the lease of the next run."""
    await stack.ledger.expire(("w1",))
    return (await stack.take("w2"))[lease.token]


class PublishedValues(Topic):
    guarantees = frozenset(("P1", "P2", "P3", "P5", "P6"))
    needs = frozenset(("commit", "leases", "archive", "published"))

    async def test_p1_newest_value_of_each_key(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.apply(step(leases["a"], PublishValues((("stage", b'"first"'), ("rows", b"1")))))
        before = await stack.published.values(RUN)
        mark = (await stack.published.marks([RUN]))[RUN]
        await stack.published.publish([value(leases["b"], "stage", b'"second"')])

        assert await shown(stack) == {"rows": 1, "stage": "second"}
        after = await stack.published.values(RUN)
        assert [(row.key, row.version) for row in before] == [("rows", 1), ("stage", 1)]
        assert [(row.key, row.version) for row in after] == [("rows", 1), ("stage", 2)]
        assert (await stack.published.marks([RUN]))[RUN] != mark
        assert (await stack.published.marks(["absent"])) == {}
        assert (await stack.published.usage(RUN)).values == {"rows": 1, "stage": 8}

    async def test_p1_newest_of_several_writes_at_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        writes = [value(lease, "n", b"%d" % number) for number in range(5)]

        assert await stack.published.publish(writes) == [""] * 5
        assert await shown(stack) == {"n": 4}

    async def test_p2_with_its_commit_once(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a"), token("b")))["a"]
        publishing = step(lease, PublishValues((("n", b"1"),)))

        assert await shown(stack) == {}
        await stack.apply(publishing)
        assert await stack.commit(publishing) == [AlreadyApplied()]
        assert [(row.key, row.version) for row in await stack.published.values(RUN)] == [("n", 1)]

    async def test_p2_with_its_commit_or_never(self, stack: ContractStack) -> None:
        first = (await stack.begin(token("a"), token("b")))["a"]
        await again(stack, first)

        [outcome] = await stack.commit(
            step(first, PublishValues((("n", b"1"),)), AppendChunks(ANSWER, (b'"x"',)))
        )

        assert isinstance(outcome, Stale)
        assert await shown(stack) == {}
        assert await stack.published.streams(RUN) == []

    async def test_p3_fenced_value_of_an_earlier_run(self, stack: ContractStack) -> None:
        first = (await stack.begin(token("a"), token("b")))["a"]
        assert await stack.published.publish([value(first, "n", b"1")]) == [""]
        second = await again(stack, first)
        assert second.fence > first.fence

        late = await stack.published.publish([value(first, "n", b"2"), value(second, "n", b"3")])

        assert late == ["lost", ""]
        assert await shown(stack) == {"n": 3}
        await stack.apply(step(second))
        assert await stack.published.publish([value(second, "n", b"4")]) == ["lost"]
        absent = msgspec.structs.replace(value(second, "n", b"5"), execution="absent")
        assert await stack.published.publish([absent]) == ["lost"]

    async def test_p5_bounded_number_of_keys(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        writes = [value(lease, f"k{number}", b"0") for number in range(MOST_KEYS)]
        assert set(await stack.published.publish(writes)) == {""}

        more = [value(lease, "k0", b"1"), value(lease, "more", b"1"), value(lease, "k1", None)]

        assert await stack.published.publish(more) == ["", "keys", ""]
        assert len(await shown(stack)) == MOST_KEYS - 1
        assert await stack.published.publish([value(lease, "more", b"1")]) == [""]

    async def test_p6_kept_after_the_end_and_removed_with_the_execution(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        writes = [value(lease, "stage", b"1"), value(lease, "progress/a", b"2", passing=True)]
        await stack.published.publish([*writes])
        await stack.published.append([written(lease, b'"x"')])
        assert await shown(stack) == {"progress/a": 2, "stage": 1}

        await stack.apply(command(RUN, finish()))

        assert await shown(stack) == {"stage": 1}
        assert (await stack.published.marks([RUN]))[RUN].count == 1
        assert await chunks(stack) == [(0, "x")]
        while await stack.ledger.sweep(100):
            pass
        assert await shown(stack) == {"stage": 1}
        assert await stack.archive.remove([RUN]) == [RUN]
        assert await shown(stack) == {}
        assert await stack.published.streams(RUN) == []
        assert await chunks(stack) == []


class PublishedStreams(Topic):
    guarantees = frozenset(("P2", "P3", "P4", "P5", "P7"))
    needs = frozenset(("commit", "leases", "blobs", "published"))

    async def test_p2_with_its_commit_chunks_and_log(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        effects = (
            AppendChunks(LOG, (b'{"message":"m"}',)),
            AppendChunks(ANSWER, (b'"x"', b'"y"'), closes=True),
        )
        await stack.apply(step(leases["a"], *effects))

        assert await chunks(stack) == [(0, "x"), (1, "y")]
        assert await chunks(stack, LOG) == [(0, {"message": "m"})]
        assert [(view.name, view.length, view.closed) for view in await stack.published.streams(RUN)] == [
            (ANSWER, 2, True),
            (LOG, 1, False),
        ]

    async def test_p3_fenced_chunks_of_an_earlier_run(self, stack: ContractStack) -> None:
        first = (await stack.begin(token("a"), token("b")))["a"]
        second = await again(stack, first)

        assert await stack.published.append([written(first, b'"old"'), written(second, b'"new"')]) == [
            "lost",
            "",
        ]
        assert await chunks(stack) == [(0, "new")]

    async def test_p4_in_order_from_any_offset(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        for batch in ((b"0", b"1"), (b"2",), (b"3", b"4", b"5")):
            assert await stack.published.append([written(leases["b"], *batch)]) == [""]
        await stack.apply(step(leases["a"], AppendChunks(ANSWER, (b"6", b"7"))))

        whole = [(number, number) for number in range(8)]
        for offset in range(9):
            assert await chunks(stack, ANSWER, offset) == whole[offset:]
        assert len(await stack.published.parts(RUN, ANSWER, 1, limit=2)) == 2
        found = await stack.published.lengths([(RUN, ANSWER), (RUN, "none"), ("absent", ANSWER)])
        assert {place: view.length for place, view in found.items()} == {(RUN, ANSWER): 8}

    async def test_p5_bounded_bytes_of_a_stream(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        chunk = b'"%b"' % (b"x" * (LARGEST_CHUNK - 2))
        batch = written(leases["b"], *[chunk] * (LARGEST_STREAM // LARGEST_CHUNK))
        assert await stack.published.append([batch]) == [""]

        more = [written(leases["b"], b"1"), written(leases["b"], b"1", stream="other")]

        assert await stack.published.append(more) == ["full", ""]
        assert await stack.blobs.stored(RUN) == LARGEST_STREAM
        [dropped] = await stack.commit(step(leases["a"], AppendChunks(ANSWER, (b"1",))))
        assert isinstance(dropped, Applied)
        assert [view.bytes for view in await stack.published.streams(RUN)] == [LARGEST_STREAM, 1]

    async def test_p5_bounded_stored_bytes(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        chunk = b'"%b"' % (b"x" * (LARGEST_CHUNK - 2))
        writes = [written(lease, chunk), written(lease, chunk), written(lease, b"1", stream="other")]

        assert await stack.published.append(writes, most_stored=LARGEST_CHUNK) == ["", "stored", ""]

    async def test_p5_bounded_number_of_streams(self, stack: ContractStack) -> None:
        lease = (await stack.begin(token("a")))["a"]
        await stack.published.append([written(lease, b"1", stream=LOG)])
        writes = [written(lease, b"1", stream=f"s{number}") for number in range(MOST_STREAMS)]
        assert set(await stack.published.append(writes)) == {""}

        assert await stack.published.append([written(lease, b"1", stream="more")]) == ["streams"]
        assert await stack.published.append([written(lease, b"1", stream="s1")]) == [""]

    async def test_p5_bounded_by_its_close(self, stack: ContractStack) -> None:
        first = (await stack.begin(token("a"), token("b")))["a"]
        expected: list[Refusal] = ["", "closed"]
        closing = [written(first, b"1", closes=True), written(first, b"2")]
        assert await stack.published.append(closing) == expected

        second = await again(stack, first)

        assert await stack.published.append([written(second, b"3")]) == [""]
        assert await chunks(stack) == [(0, 1), (1, 3)]

    async def test_p7_runs_told_apart(self, stack: ContractStack) -> None:
        leases = await stack.begin(token("a"), token("b"))
        await stack.published.append([written(leases["a"], b"1"), written(leases["a"], b"2")])
        second = await again(stack, leases["a"])
        await stack.published.append([written(second, b"3")])
        appended = AppendChunks(ANSWER, (b"4",), False, "a", 2, second.token, second.fence)
        await stack.apply(step(second, appended))

        parts = await stack.published.parts(RUN, ANSWER)

        assert [(part.first, part.restarts) for part in parts] == [
            (0, False),
            (1, False),
            (2, True),
            (3, False),
        ]
        assert {part.task for part in parts} == {"a"}
