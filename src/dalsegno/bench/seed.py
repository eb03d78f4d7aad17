"""Stores with finished executions, as many as years of use produce: bulk seeding of SQLite and PostgreSQL, and the
listing workload, which reads first pages of every filter and of pairs of filters.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import asyncpg

from dalsegno.adapters.postgres.store import DAY, DAY_BITS
from dalsegno.adapters.sqlite.connections import connect_writer
from dalsegno.bench.report import Meter, Report, percentile, reported
from dalsegno.bench.workloads import Progress
from dalsegno.errors import UsageError
from dalsegno.model.ids import derive
from dalsegno.model.search import error_words
from dalsegno.ports.archive import Archive, ExecutionFilter, Place
from dalsegno.wiring import is_postgres, open_stack, sqlite_path

CHUNK = 10_000
SPAN = 90 * 86_400.0
"""Seconds over which the executions are spread."""
EPOCH = 1_760_000_000.0
WORKFLOWS = 200
PER_CUSTOMER = 10
VOCABULARY = 100

EXECUTION = (
    "INSERT INTO execution (number, id, workflow, version, definition, state, created_at, priority, parent, relation,"
    " idempotency_key, ended_at, epoch, seq, live, touched_at, tags, error, context, output, input, kind)"
    " VALUES (?, ?, ?, 1, 'hash', ?, ?, 0, ?, ?, ?, ?, 0, 3, 0, ?, ?, ?, NULL, x'31', x'7b7d', ?)"
)
TAG = "INSERT INTO execution_tag (name, value, created_at, execution) VALUES (?, ?, ?, ?)"
WORD = "INSERT OR IGNORE INTO failure_word (word, created_at, execution) VALUES (?, ?, ?)"
EVENT = (
    "INSERT INTO event (execution, seq, kind, node, scope, at, token, arrived, expected, data)"
    " VALUES (?, ?, ?, ?, '', ?, NULL, NULL, NULL, NULL)"
)


def known_in_sqlite(url: str) -> int:
    """Return the number of executions in a store."""
    connection = connect_writer(sqlite_path(url), create=False)
    try:
        (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM execution").fetchone()
    finally:
        connection.close()
    return int(number)


def seed_sqlite(url: str, executions: int, progress: Progress) -> None:
    """Fill a migrated, empty store. Not durable while it runs: after a crash, begin again."""
    connection = connect_writer(sqlite_path(url), create=False)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -262144")
    rows = crowd(executions)
    done = 0
    while chunk := list(islice(rows, CHUNK)):
        connection.execute("BEGIN")
        _write(connection, chunk)
        connection.execute("COMMIT")
        done += len(chunk)
        if done % 100_000 == 0:
            progress(f"{done:,} executions written")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _write(connection: sqlite3.Connection, chunk: list[tuple[Any, ...]]) -> None:
    connection.executemany(EXECUTION, chunk)
    tags, words, events = [], [], []
    for number, name, _, state, created_at, _, _, _, _, ended_at, given_tags, error, _ in chunk:
        tags += [(tag, value, created_at, name) for tag, value in json.loads(given_tags)]
        words += [(word, created_at, name) for word in error_words(error)]
        events += [
            (number, 1, "ExecutionStarted", "", created_at),
            (number, 2, "NodeCompleted", "charge", ended_at),
            (number, 3, f"Execution{state.title()}", "", ended_at),
        ]
    connection.executemany(TAG, tags)
    connection.executemany(WORD, words)
    connection.executemany(EVENT, events)


def crowd(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows. Most have completed, of few large and many small workflows; half have tags, some a parent or a
    key.
    """
    choose = random.Random(4)  # the same rows every time
    vocabulary = [f"w{number:03}" for number in range(VOCABULARY)]
    for number in range(1, count + 1):
        created_at = EPOCH + SPAN * number / count
        ended_at = created_at + choose.expovariate(1 / 30)
        state = choose.choices(("COMPLETED", "FAILED", "CANCELLED"), (94, 4, 2))[0]
        parent = name_of(choose.randrange(1, number)) if number > 1 and choose.random() < 0.02 else None
        if number > count // 2 and number % 100 == 0:
            parent = name_of(count // 2)  # one that has many children
        tagged = choose.random() < 0.5
        tags = [
            ["customer", f"c-{choose.randrange(count // PER_CUSTOMER + 1)}"],
            ["env", "prod" if number % 5 else "test"],
        ]
        error = {
            "message": f"charge failed: {' '.join(choose.sample(vocabulary, 6))}",
            "code": choose.choice(("TIMEOUT", "HTTP_ERROR", "NODE_ERROR")),
            "type": "Error",
        }
        yield (
            number,
            name_of(number),
            workflow_of(int(WORKFLOWS * choose.random() ** 3)),
            state,
            created_at,
            parent,
            choose.choice(("retry", "child")) if parent is not None else None,
            f"key-{number}" if number % 10 == 0 else None,
            ended_at,
            ended_at,
            json.dumps(tags if tagged else []),
            json.dumps(error).encode() if state == "FAILED" else None,
            choose.choices(("graph", "script", "python", "task"), (70, 20, 6, 4))[0],
        )


def name_of(number: int) -> str:
    """Return the id of the n-th execution: 12 increasing digits, then noise, like real ids."""
    return f"{number * 7_776:012x}{derive('crowd', str(number))[:20]}"


def workflow_of(number: int) -> str:
    return f"team{number % 10}-workflow-{number:03}"


SCHEMA = "dalsegno"
EXECUTION_COLUMNS = (
    "number",
    "id",
    "workflow",
    "version",
    "definition",
    "state",
    "created_at",
    "priority",
    "parent",
    "relation",
    "idempotency_key",
    "ended_at",
    "epoch",
    "seq",
    "live",
    "touched_at",
    "tags",
    "error",
    "output",
    "input",
    "kind",
)
EVENT_COLUMNS = ("execution", "seq", "kind", "node", "scope", "at")


async def known_in_postgres(url: str) -> int:
    """Return the number of executions in a store."""
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT count(*) FROM dalsegno.execution"))
    finally:
        await connection.close()


async def seed_postgres(url: str, executions: int, progress: Progress) -> None:
    """Fill a migrated, empty store with COPY. Not durable while it runs: after a crash, begin again."""
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
    try:
        rows = crowd(executions)
        done = 0
        while chunk := list(islice(rows, CHUNK)):
            async with connection.transaction():
                await _crowd_postgres_write(connection, chunk)
            done += len(chunk)
            if done % 100_000 == 0:
                progress(f"{done:,} executions written")
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


async def _crowd_postgres_write(connection: Any, chunk: Sequence[tuple[Any, ...]]) -> None:
    records, tags, words, events = [], [], [], []
    for count, *row in chunk:
        name, workflow, state, created_at, parent, relation, key, ended_at, _, labels, error, kind = row
        number = (int(created_at // DAY) << DAY_BITS) + count
        what = (workflow, 1, "hash", state, created_at, 0, parent, relation, key, ended_at)
        records.append((number, name, *what, 0, 3, 0, ended_at, labels, error, b"1", b"{}", kind))
        tags += [(tag, value, created_at, name) for tag, value in json.loads(labels)]
        words += [(word, created_at, name) for word in error_words(error)]
        events += [
            (number, 1, "ExecutionStarted", "", "", created_at),
            (number, 2, "NodeCompleted", "charge", "", ended_at),
            (number, 3, f"Execution{state.title()}", "", "", ended_at),
        ]
    copies = (
        ("execution", EXECUTION_COLUMNS, records),
        ("execution_tag", ("name", "value", "created_at", "execution"), tags),
        ("failure_word", ("word", "created_at", "execution"), words),
        ("event", EVENT_COLUMNS, events),
    )
    for table, columns, values in copies:
        await connection.copy_records_to_table(
            table, schema_name=SCHEMA, columns=columns, records=list(dict.fromkeys(values))
        )


# -- the listing workload --------------------------------------------------------------------------------------

PAGE = 50
RETAINED = 2000
"""Executions that retention removes while it is measured."""

COMMON, RARE = workflow_of(0), workflow_of(199)
PROD = (("env", "prod"),)


def filters(executions: int) -> dict[str, ExecutionFilter]:
    """Return every filter alone, with many and with few matches, and the common pairs."""
    end = EPOCH + SPAN
    customer = (("customer", f"c-{executions // PER_CUSTOMER // 2}"),)
    some = name_of(executions // 2)
    where = ExecutionFilter
    singles = {
        "everything": where(),
        "workflow, common": where(COMMON),
        "workflow, rare": where(RARE),
        "workflow, absent": where("nobody"),
        "state COMPLETED": where(states=("COMPLETED",)),
        "state FAILED": where(states=("FAILED",)),
        "state RUNNING (none)": where(states=("RUNNING",)),
        "states FAILED, CANCELLED": where(states=("FAILED", "CANCELLED")),
        "kind graph": where(kinds=("graph",)),
        "kind task": where(kinds=("task",)),
        "kind schedule (none)": where(kinds=("schedule",)),
        "tag, common": where(tags=PROD),
        "tag, rare": where(tags=customer),
        "tag, absent": where(tags=(("env", "nowhere"),)),
        "parent": where(parent=some),
        "relation": where(relations=("retry",)),
        "created, a day long ago": where(
            created_since=EPOCH + SPAN / 3, created_until=EPOCH + SPAN / 3 + 86_400
        ),
        "created, before all": where(created_until=EPOCH),
        "ended, the last hour": where(ended_since=end - 3600),
        "ended, an hour long ago": where(ended_since=EPOCH + SPAN / 3, ended_until=EPOCH + SPAN / 3 + 3600),
        "ended, the last month": where(ended_since=end - 30 * 86_400),
        "ended, before all": where(ended_until=EPOCH),
        "text: an id": where(text=some),
        "text: beginning of an id": where(text=some[:12]),
        "text: a key": where(text="key-1000"),
        "text: a tag's value": where(text=customer[0][1]),
        "text: part of many names": where(text="workflow"),
        "text: part of one name": where(text="workflow-123"),
        "text: a word of many errors": where(text="timeout"),
        "text: two words": where(text="w007 w070"),
        "text: nothing": where(text="nothing at all"),
    }
    pairs = {
        "workflow, rare + FAILED": where(RARE, ("FAILED",)),
        "workflow, common + FAILED": where(COMMON, ("FAILED",)),
        "workflow, rare + kind": where(RARE, kinds=("python",)),
        "workflow + created": where(COMMON, created_until=EPOCH + SPAN / 2),
        "workflow + ended": where(COMMON, ended_since=end - 86_400),
        "workflow, rare + tag, common": where(RARE, tags=PROD),
        "workflow, common + tag, rare": where(COMMON, tags=customer),
        "tag, common + FAILED": where(states=("FAILED",), tags=PROD),
        "tag, rare + FAILED": where(states=("FAILED",), tags=customer),
        "two tags": where(tags=(*customer, *PROD)),
        "kind + FAILED": where(states=("FAILED",), kinds=("task",)),
        "FAILED + ended": where(states=("FAILED",), ended_since=end - 86_400),
        "FAILED + created": where(states=("FAILED",), created_until=EPOCH + SPAN / 2),
        "parent + FAILED": where(states=("FAILED",), parent=some),
        "relation + FAILED": where(states=("FAILED",), relations=("retry",)),
        "relation + workflow": where(COMMON, relations=("retry",)),
        "text: a word + workflow": where(RARE, text="timeout"),
        "text: many names + FAILED": where(states=("FAILED",), text="workflow"),
        "text: many names + tag, rare": where(tags=customer, text="workflow"),
    }
    return singles | pairs


async def listing(url: str, progress: Progress, *, executions: int = 1_000_000, rounds: int = 100) -> Report:
    """Measure p50 and p99 over all filters. The details have the figures of each filter."""
    stack = await open_stack(url)
    await stack.close()
    await _seed(url, executions, progress)
    began = time.perf_counter()
    stack = await open_stack(url)
    opened = (time.perf_counter() - began) * 1000
    with Meter() as meter:
        pages = await _measure_pages(stack.archive, executions, rounds, progress)
    removal = await _measure_retention(stack.archive)
    await stack.close()
    times = [each for found in pages.values() for each in found]
    worst = max(pages, key=lambda name: percentile(pages[name], 0.99) or 0)
    figures = {
        "executions": executions,
        "open_ms": opened,
        "cpu_ms_per_page": meter.cpu * 1000 / len(times),
        "worst_filter_p99_ms": percentile(pages[worst], 0.99) or 0.0,
        **removal,
        **{f"{name}, p99 ms": percentile(found, 0.99) or 0.0 for name, found in pages.items()},
    }
    return await reported("listing", url, len(times), times, meter, figures)


async def _seed(url: str, executions: int, progress: Progress) -> None:
    """Fill an empty store in bulk."""
    with Meter() as seeding:
        if is_postgres(url):
            if await known_in_postgres(url):
                return
            await seed_postgres(url, executions, progress)
        elif url.startswith("sqlite:"):
            if known_in_sqlite(url):
                return
            await asyncio.to_thread(seed_sqlite, url, executions, progress)
        else:
            raise UsageError("listing is measured on a store that is seeded in bulk: SQLite or PostgreSQL")
    progress(f"{executions:,} executions seeded in {seeding.seconds:.0f} s")


async def _measure_pages(
    archive: Archive, executions: int, rounds: int, progress: Progress
) -> dict[str, list[float]]:
    """Measure in rounds over all filters, so that no filter finds its own pages cached; then a page from the middle."""
    wanted = filters(executions)
    found: dict[str, list[float]] = {name: [] for name in (*wanted, "a page from the middle")}
    middle = Place(EPOCH + SPAN / 2, "")
    for number in range(rounds):
        for name, where in wanted.items():
            found[name].append(await _time(archive, where, None))
        found["a page from the middle"].append(await _time(archive, ExecutionFilter(), middle))
        if number == 0:
            progress(f"first round: worst page {max(times[0] for times in found.values()):.1f} ms")
    return found


async def _time(archive: Archive, where: ExecutionFilter, before: Place | None) -> float:
    began = time.perf_counter()
    await archive.executions(where, before, PAGE)
    return (time.perf_counter() - began) * 1000


async def _measure_retention(archive: Archive) -> dict[str, float]:
    """Remove the oldest executions in chunks, as the reconciler does."""
    chunks: list[float] = []
    removed = 0
    began = time.perf_counter()
    while removed < RETAINED:
        start = time.perf_counter()
        went = await archive.remove_ended(EPOCH + SPAN, 200, ("COMPLETED", "FAILED"))
        chunks.append((time.perf_counter() - start) * 1000)
        if not went:
            break
        removed += went
    seconds = time.perf_counter() - began
    return {"removed_per_s": removed / seconds, "removal_chunk_p99_ms": percentile(chunks, 0.99) or 0.0}
