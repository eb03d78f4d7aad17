"""Sweeping, retention, listing and the small print."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from pathlib import Path

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.archive import archive
from dalsegno.bench.report import measure_raw
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import cancel, finish, new_execution, start, step, token
from tests.waiting import come_about


async def count(store: SqliteStore, table: str) -> int:
    (rows,) = await store.read(
        lambda connection: connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    )
    return int(rows)


async def test_sweep_removes_no_more_rows_than_asked(store: SqliteStore, stack: ContractStack) -> None:
    await stack.apply(start("run-1", *(token(f"t{number}") for number in range(25))))
    await stack.apply(cancel())

    assert [await stack.ledger.sweep(10) for _ in range(4)] == [10, 10, 6, 0]
    assert await count(store, "token") == await count(store, "flight") == 0
    events = await stack.events()
    assert [event.seq for event in events] == list(range(1, 28))
    assert sum(event.kind == "NodeCancelled" for event in events) == 25
    assert (await stack.execution()).seq == 27


async def test_executions_are_swept_together_each_with_its_own_history(
    store: SqliteStore, stack: ContractStack
) -> None:
    names = [f"run-{number}" for number in range(130)]
    for name in names:
        await stack.apply(start(name, *(token(f"{name}-{each}") for each in range(3))))
    await stack.apply(*(cancel(name) for name in names))

    chunks = []
    while gone := await stack.ledger.sweep(200):
        chunks.append(gone)

    assert max(chunks) <= 200
    assert len(chunks) < 6
    assert await count(store, "token") == await count(store, "flight") == 0
    for name in names:
        view, events = await stack.execution(name), await stack.events(name)
        assert [event.seq for event in events] == list(range(1, view.seq + 1))
        cancelled = {event.token for event in events if event.kind == "NodeCancelled"}
        assert cancelled == {f"{name}-{each}" for each in range(3)}


async def test_reads_that_waited_together_share_a_transaction(store: SqliteStore) -> None:
    transactions: list[str] = []
    entered, leave = threading.Event(), threading.Event()

    def block(connection: sqlite3.Connection) -> None:
        entered.set()
        leave.wait(10)
        connection.set_trace_callback(transactions.append)

    def fail(connection: sqlite3.Connection) -> None:
        raise LookupError("not here")

    def number(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT 7").fetchone()[0])

    first = asyncio.create_task(store.read(block))
    await asyncio.to_thread(entered.wait, 10)
    others = [asyncio.create_task(store.read(number)) for _ in range(20)]
    await asyncio.sleep(0)
    leave.set()
    await first
    assert await asyncio.gather(*others) == [7] * 20
    assert transactions.count("BEGIN") <= 1 + 1

    found = await asyncio.gather(
        store.read(number), store.read(fail), store.read(number), return_exceptions=True
    )
    assert [found[0], type(found[1]), found[2]] == [7, LookupError, 7]


async def test_the_sweep_does_not_write_a_large_output_again(
    store: SqliteStore, stack: ContractStack
) -> None:
    lease = (await stack.begin(token("a")))["a"]
    await stack.apply(step(lease, finish(output=b'"%b"' % (b"x" * 1_000_000))))
    before = await stack.execution()

    def watch(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TEMP TABLE written (number)")
        connection.execute(
            "CREATE TEMP TRIGGER told AFTER UPDATE ON main.execution"
            " BEGIN INSERT INTO written VALUES (new.number); END"
        )

    await store.write(lambda rows: watch(rows.connection))
    while await stack.ledger.sweep():
        pass

    written = await store.write(lambda rows: rows.connection.execute("SELECT * FROM written").fetchall())
    assert written == []
    assert await stack.execution() == before


async def test_large_values_come_back_whole(stack: ContractStack) -> None:
    """They are read in pieces."""
    given, output = b'"%b"' % (b"i" * 3_000_000), b'"%b"' % (b"o" * 2_000_001)
    await stack.apply(start(new_execution(input=given), token("a")))
    lease = (await stack.take())["a"]
    await stack.apply(step(lease, finish(output=output)))

    found = await stack.archive.execution("run-1")

    assert found is not None
    assert (found.input, found.output) == (given, output)


async def test_nothing_of_an_answer_is_held_until_the_next(store: SqliteStore) -> None:
    class Large:
        pass

    found = await store.read(lambda connection: Large())
    held = weakref.ref(found)
    del found
    await come_about(lambda: held() is None, "the answer is gone")


async def test_retention_removes_every_row_in_chunks(
    store: SqliteStore, stack: ContractStack, monkeypatch: object
) -> None:
    for number in range(5):
        run = new_execution(f"run-{number}", tags=(("team", "a"), ("n", str(number))))
        await stack.apply(start(run, *(token(f"t{n}") for n in range(10))))
        await stack.apply(cancel(f"run-{number}"))
        await stack.blobs.put(f"run-{number}", b"big")
    while await stack.ledger.sweep():
        pass
    stack.clock.advance(100)
    archive_rows, archive.REMOVED_ROWS = archive.REMOVED_ROWS, 7
    try:
        assert await stack.archive.remove_ended(stack.clock.now()) == 5
    finally:
        archive.REMOVED_ROWS = archive_rows

    for table in ("execution", "execution_tag", "event", "blob", "output", "flight", "token"):
        assert await count(store, table) == 0, table


async def test_listing_by_any_filter_is_the_same_page(stack: ContractStack) -> None:
    for number in range(12):
        tags = (("even", str(number % 2 == 0)),)
        run = new_execution(f"run-{number:02}", workflow=f"w{number % 3}", tags=tags, parent=f"p{number % 4}")
        await stack.apply(start(run, token("a")))
        if number % 5 == 0:
            await stack.apply(cancel(f"run-{number:02}"))

    async def names(**where: object) -> list[int]:
        found = await stack.archive.executions(ExecutionFilter(**where))  # type: ignore[arg-type]
        return [int(view.id[-2:]) for view in found]

    assert await names() == list(range(11, -1, -1))
    assert await names(workflow="w1") == [10, 7, 4, 1]
    assert await names(states=("CANCELLED",)) == [10, 5, 0]
    assert await names(states=("CANCELLED",), workflow="w2") == [5]
    assert await names(states=("CANCELLED", "RUNNING"), parent="p1") == [9, 5, 1]
    assert await names(tags=(("even", "True"),), workflow="w0") == [6, 0]
    assert await names(tags=(("even", "True"), ("even", "False"))) == []


async def test_people_can_read_the_file(path: Path, stack: ContractStack) -> None:
    lease = (await stack.begin(token("a")))["a"]
    await stack.apply(step(lease, token("b", due=2e9)))
    shell = sqlite3.connect(path)

    tokens = shell.execute("SELECT execution, id, state, due FROM token_view ORDER BY id").fetchall()
    kinds = shell.execute("SELECT execution, seq, kind FROM event_view").fetchall()
    shell.close()

    assert tokens == [("run-1", "a", "consumed", None), ("run-1", "b", "parked", "2033-05-18 03:33:20")]
    assert kinds == [("run-1", 1, "ExecutionStarted")]


def test_raw_measurement_leaves_nothing_behind(tmp_path: Path, monkeypatch: object) -> None:
    rates = measure_raw(tmp_path / "store.db")

    assert rates["batched_rows_per_s"] > rates["single_commits_per_s"] > 0
    assert list(tmp_path.iterdir()) == []
