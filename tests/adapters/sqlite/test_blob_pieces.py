"""Large blobs are written and removed in pieces: other commits come between, and a crash leaves no part of a blob."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from hashlib import sha256

import pytest

from dalsegno.adapters.sqlite import SqliteStore, records
from dalsegno.adapters.sqlite.archive import archive
from dalsegno.adapters.sqlite.records import NewBlob, SqliteBlobs
from dalsegno.errors import LimitExceeded, NotFound
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import RUN, cancel, start, token

PIECE = 4096
LARGE = os.urandom(10 * PIECE)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE", PIECE)


@pytest.fixture
def large(store: SqliteStore) -> SqliteBlobs:
    return SqliteBlobs(store)


async def rows(store: SqliteStore, table: str) -> int:
    count = await store.read(
        lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    )
    return int(count[0])


async def stored(store: SqliteStore) -> int:
    found = await store.read(
        lambda connection: connection.execute("SELECT bytes FROM stored_bytes").fetchall()
    )
    return sum(size for (size,) in found)


@pytest.mark.parametrize("size", [PIECE, PIECE + 1, 2 * PIECE, 10 * PIECE - 1])
async def test_what_was_put_comes_back_whole(store: SqliteStore, large: SqliteBlobs, size: int) -> None:
    name = await large.put(RUN, LARGE[:size])
    assert await large.put(RUN, LARGE[:size]) == name

    assert await large.get(RUN, name) == LARGE[:size]
    assert await rows(store, "blob_piece") == (size - 1) // PIECE
    assert await stored(store) == size


async def test_a_commit_does_not_wait_for_the_whole_blob(stack: ContractStack, large: SqliteBlobs) -> None:
    put = asyncio.create_task(large.put(RUN, os.urandom(200 * PIECE)))
    for number in range(5):
        await stack.apply(start(f"run-{number}", token("a")))
    assert not put.done()

    name = await put
    await large.prune(RUN, 1, [])  # it has no turn, and stays
    assert len(await large.get(RUN, name)) == 200 * PIECE


async def test_what_a_crash_left_is_no_blob_and_is_gone_on_with(
    store: SqliteStore, large: SqliteBlobs
) -> None:
    name = sha256(LARGE).hexdigest()
    blob = NewBlob(RUN, name, LARGE, None, None)
    for number in (1, 2, 5):
        await store.write(partial(blob.put_piece, number))

    with pytest.raises(NotFound):
        await large.get(RUN, name)
    assert await store.write(blob.finish) is False
    assert await large.put(RUN, LARGE) == name
    assert await large.get(RUN, name) == LARGE


async def test_one_that_is_refused_leaves_nothing(store: SqliteStore, large: SqliteBlobs) -> None:
    blob = NewBlob(RUN, sha256(LARGE).hexdigest(), LARGE, None, len(LARGE) - 1)
    await store.write(partial(blob.put_piece, 1))

    with pytest.raises(LimitExceeded, match="has stored 0 bytes"):
        await large.put(RUN, LARGE, limit=len(LARGE) - 1)
    assert [await rows(store, table) for table in ("blob", "blob_piece")] == [0, 0]
    assert await stored(store) == 0


async def test_pruned_with_all_pieces(store: SqliteStore, large: SqliteBlobs) -> None:
    await large.put(RUN, LARGE, turn=1)
    kept = await large.put(RUN, LARGE[1:], turn=1)

    await large.prune(RUN, 2, [kept])

    assert [await rows(store, table) for table in ("blob", "blob_piece")] == [1, 9]
    assert await stored(store) == len(LARGE) - 1
    assert await large.get(RUN, kept) == LARGE[1:]


async def test_pieces_of_a_blob_that_was_put_again_stay(store: SqliteStore, large: SqliteBlobs) -> None:
    """Its row went with the prune, and came back before the prune reached its pieces."""
    name = await large.put(RUN, LARGE, turn=1)

    await store.write(partial(records.prune_piece, (RUN, name, 1)))

    assert await large.get(RUN, name) == LARGE


async def test_they_go_with_their_execution(
    store: SqliteStore, stack: ContractStack, large: SqliteBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "REMOVED_ROWS", 300)
    for number in range(3):
        run = f"run-{number}"
        await stack.apply(start(run, token("a")))
        await large.put(run, LARGE)
        await stack.apply(cancel(run))
    while await stack.ledger.sweep():
        pass
    stack.clock.advance(100)

    assert await stack.archive.remove_ended(stack.clock.now()) == 3

    for table in ("blob", "blob_piece", "stored_bytes", "execution"):
        assert await rows(store, table) == 0, table
