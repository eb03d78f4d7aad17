"""Starts in one statement: where nothing is there yet, and with the same result as the long way."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from dalsegno.adapters.memory import MemoryBroker
from dalsegno.adapters.postgres import PostgresArchive, PostgresLedger, store
from dalsegno.adapters.postgres.records import PostgresPublications
from dalsegno.engine.committer import Committer
from dalsegno.errors import Unavailable
from dalsegno.model.effect import SpawnToken
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Transition, Unconfirmed
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing.contract.builders import event, new_execution, start, token
from tests.adapters.postgres.conftest import OpenLedger

TAGS = (("env", "prod"), ("team", "blue"))


def starts(*names: str, kind: ExecutionKind = "graph", **fields: Any) -> list[Transition]:
    """Of executions with a token each."""
    return [start(new_execution(name, kind=kind, **fields), token(f"of-{name}")) for name in names]


@pytest.fixture
def statements(ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which ones went alone, as they come; a transaction of several stands as 'transaction'."""
    made: list[str] = []
    fetch, transaction = ledger.store.fetch, ledger.store.transaction

    async def noted(statement: str, *parameters: object) -> Any:
        made.append(statement)
        return await fetch(statement, *parameters)

    def opened() -> Any:
        made.append("transaction")
        return transaction()

    monkeypatch.setattr(ledger.store, "fetch", noted)
    monkeypatch.setattr(ledger.store, "transaction", opened)
    return made


@pytest.mark.parametrize("kind", ["graph", "task"])
async def test_start_is_one_statement(
    ledger: PostgresLedger, statements: list[str], kind: ExecutionKind
) -> None:
    await ledger.store.reserve_numbers(2)
    statements.clear()

    [ready] = {type(each) for each in await ledger.commit(starts("a", "b", kind=kind, tags=TAGS))}

    assert (ready, statements) == (Applied, ["write.starts"])
    for name in ("a", "b"):
        found = await ledger.inspect(name)
        assert found is not None
        assert (found.execution.state, found.execution.live) == ("RUNNING", 1)
        assert [(view.id, view.state) for view in found.tokens] == [(f"of-{name}", "ready")]
    archive = PostgresArchive(ledger.store)
    assert {view.id for view in await archive.executions(ExecutionFilter(tags=TAGS[:1]))} == {"a", "b"}
    assert [each.seq for each in await archive.events("a")] == [1]


async def test_start_whose_statuses_are_published_is_one_statement_too(
    ledger: PostgresLedger, statements: list[str]
) -> None:
    await ledger.store.reserve_numbers(2)
    statements.clear()

    await ledger.commit([*starts("told", publishes=True), *starts("quiet")])

    assert statements == ["write.starts"]
    claims = await PostgresPublications(ledger.store).claim("w", ["told", "quiet"], 10.0)
    assert claims.marks == {"told": 0}
    await ledger.commit(starts("told", "again", publishes=True))
    claims = await PostgresPublications(ledger.store).claim("w", ["told", "again"], 10.0)
    assert claims.marks == {"told": 0, "again": 0}


async def test_start_of_a_script_makes_its_machine(ledger: PostgresLedger, statements: list[str]) -> None:
    await ledger.store.reserve_numbers(1)
    statements.clear()

    await ledger.commit(starts("s", kind="script"))

    assert statements == ["write.starts"]
    machine = await ledger.machine("s")
    assert machine is not None
    assert (machine.version, machine.inbox) == (0, 0)


async def test_what_exists_is_recognised_and_the_others_begin(ledger: PostgresLedger) -> None:
    await ledger.commit(starts("b"))

    first, second, third = await ledger.commit(starts("a", "b", "c"))

    assert second == AlreadyApplied()
    assert (type(first), type(third)) == (Applied, Applied)
    tokens = [(await ledger.inspect(name)) for name in "abc"]
    assert [len(found.tokens) for found in tokens if found is not None] == [1, 1, 1]
    assert ledger.commits.fast_path_failures == 0


async def test_value_that_cannot_be_stored_refuses_its_start_alone(ledger: PostgresLedger) -> None:
    bad = start(new_execution("bad", workflow="nul \0"), token("t"))

    first, refused, last = await ledger.commit([*starts("a"), bad, *starts("c")])

    assert (type(first), type(refused), type(last)) == (Applied, Refused, Applied)
    assert await ledger.inspect("bad") is None


async def test_processes_that_start_the_same_make_each_once(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    other, names = await open_ledger(), [f"run-{number:03}" for number in range(200)]

    mine, theirs = await asyncio.gather(ledger.commit(starts(*names)), other.commit(starts(*reversed(names))))

    assert [type(each) for each in [*mine, *theirs]].count(Applied) == len(names)
    for name, each, its in zip(names, mine, reversed(theirs), strict=True):
        assert {type(each), type(its)} <= {Applied, AlreadyApplied}, name
        found = await ledger.inspect(name)
        assert found is not None
        assert (found.execution.live, len(found.tokens)) == (1, 1)


async def test_start_that_meets_the_open_one_of_a_caller_is_put_off(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    caller = await asyncpg.connect(postgres_url)
    async with caller.transaction():
        await caller.execute("SELECT pg_advisory_xact_lock(hashtextextended('a', 1685286004))")
        put_off, begun = await ledger.commit(starts("a", "b"))
    await caller.close()

    assert (type(put_off).__name__, type(begun)) == ("Deferred", Applied)
    [begun] = await ledger.commit(starts("a"))
    assert type(begun) is Applied


async def test_what_fails_beside_starts_that_were_made_is_no_news_of_them(
    ledger: PostgresLedger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told that it failed starts it again, and without a key that is another one."""
    limited = start(new_execution("limited"), replace(token("of-limited"), limit_key="mail"))
    holder = await asyncpg.connect(postgres_url)
    async with holder.transaction():
        await holder.execute("LOCK TABLE dalsegno.line IN EXCLUSIVE MODE")
        monkeypatch.setattr(store, "BEGIN", store.BEGIN.replace("5s", "500ms"))
        made, unconfirmed = await ledger.commit([*starts("a"), limited])
        assert (type(made), type(unconfirmed)) == (Applied, Unconfirmed)
        with pytest.raises(Unavailable):
            await ledger.commit([limited])
    await holder.close()

    assert [type(each) for each in await ledger.commit([limited])] == [Applied]


async def test_start_whose_answer_was_lost_is_not_sent_as_if_it_were_new(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be told that it exists, and nobody would run what it has left to this worker."""
    await ledger.commit([replace(start("a", token("a0")), keep=("a0",), worker="w1")])
    fetch, lost, told = ledger.store.fetch, list[str](), list[object]()

    async def lossy(statement: str, *parameters: object) -> Any:
        rows = await fetch(statement, *parameters)
        if statement == "write.starts" and not lost:
            lost.append(statement)
            raise Unavailable("the connection was lost")
        return rows

    monkeypatch.setattr(ledger.store, "fetch", lossy)
    committer = Committer(ledger, MemoryBroker(ledger), lambda *_: None)
    step = committer.commit(Transition("a", (SpawnToken(token("a1")),), (event(),), "a0", 1, worker="w1"))
    new = replace(start("b", token("b0")), keep=("b0",), worker="w1")
    begun = committer.commit(new, wait_for_store=False, then=told.append)

    assert type(await step) is Applied
    with pytest.raises(Unavailable, match="the connection was lost"):
        await begun
    assert told == [None], "it is for the worker to doubt"


async def test_start_and_what_else_is_about_it_are_judged_together(ledger: PostgresLedger) -> None:
    [first] = starts("a")
    outcomes = await ledger.commit([first, Transition("a", (), (event(),))])

    assert [type(each) for each in outcomes] == [Applied, Applied]
    found = await ledger.inspect("a")
    assert found is not None
    assert found.execution.seq == 2
