"""What is particular to PostgreSQL: locks between connections, two ways through a commit, a server that dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore, encoding
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.errors import Unavailable
from dalsegno.model.effect import SpawnToken, StoreOutput, WriteOutbox
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Deferred, Park, Stale, Transition
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.build import RUN, arrive, barrier, event, last, start, step, token
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def ledger(postgres_url: str) -> AsyncIterator[PostgresLedger]:
    ledger = PostgresLedger(await PostgresStore.open(postgres_url, FakeClock()))
    yield ledger
    await ledger.close()


async def test_every_statement_is_valid_on_the_schema(ledger: PostgresLedger) -> None:
    async with ledger.store._pool.acquire() as connection:
        for text in SQL.values():
            await connection.prepare(text)


async def test_transition_of_an_execution_that_another_process_has_locked_is_deferred_alone(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    await ledger.commit([start("run-a", token("a")), start("run-b", token("b"))])
    leases = {lease.execution: lease for lease in await ledger.claim("w1", ["default"], 9)}
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.fetch("SELECT FROM dalsegno.flight WHERE id = 'run-a' FOR UPDATE")

        outcomes = await ledger.commit(
            [step(leases["run-a"], token("a2")), step(leases["run-b"], token("b2"))]
        )

        assert outcomes[0] == Deferred()
        assert isinstance(outcomes[1], Applied)
    [again] = await ledger.commit([step(leases["run-a"], token("a2"))])
    assert isinstance(again, Applied)
    await other.close()


async def test_arrivals_over_two_stores_at_once_are_each_counted_once(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    width, spec = 40, barrier(expected=40)
    await ledger.commit([start(RUN, *(token(f"t{slot}") for slot in range(width)))])
    leases = {lease.token: lease for lease in await ledger.claim("w1", ["default"], 99)}
    other = PostgresLedger(await PostgresStore.open(postgres_url, FakeClock()))

    async def send(slot: int) -> tuple[str, ...]:
        transition = step(leases[f"t{slot}"], arrive(spec, slot), events=[event()])
        while True:
            [outcome] = await (ledger, other)[slot % 2].commit([transition])
            if not isinstance(outcome, Deferred):
                assert isinstance(outcome, Applied)
                return tuple(ready.token for ready in outcome.ready)

    ready = await asyncio.gather(*map(send, range(width)))

    assert [name for names in ready for name in names] == ["join-merge"]
    assert [slot.slot for slot in await ledger.slots(RUN, spec.id)] == list(range(width))
    assert [found.seq for found in await ledger.events(RUN)] == list(range(1, 2 * width + 1))
    await other.close()


async def test_two_starts_of_one_execution_at_once_make_one(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    other = PostgresLedger(await PostgresStore.open(postgres_url, FakeClock()))
    names = [f"run-{number}" for number in range(20)]

    outcomes = await asyncio.gather(
        ledger.commit([start(name, token("a")) for name in names]),
        other.commit([start(name, token("a")) for name in reversed(names)]),
    )

    kinds = [type(outcome) for answers in outcomes for outcome in answers]
    assert kinds.count(Applied) == len(names)
    assert set(kinds) <= {Applied, AlreadyApplied, Deferred}
    assert len(await ledger.claim("w1", ["default"], 99)) == len(names)
    await other.close()


def plain_batches() -> list[list[Transition]]:
    """Everything that may go the plain way, and refusals among it."""
    effects = (SpawnToken(token("b1")), StoreOutput("o", b"1"), WriteOutbox("m", "topic", b"owed"))
    first = Transition(RUN, effects, (event(), event("NodeStarted")), "a1", 1, keep=("b1",), worker="w1")
    twice = (SpawnToken(token("b2")), SpawnToken(token("b2")), SpawnToken(token("late", due=9e9)))
    parks = Transition(RUN, (), (event("NodeRetrying"),), "a3", 1, park=Park(9e9, b"again", 2))
    ending = Transition("run-2", (last(),), (event(),), "z", 1)
    return [
        [start(RUN, token("a1"), token("a2"), token("a3")), start("run-2", token("z"))],
        [first, Transition(RUN, twice, (event(),), "a2", 1), parks, ending],
        [first, ending, Transition(RUN, (last(),), (event(),), "b1", 1)],
        [Transition(RUN, (), (), "b1", 7), Transition("nowhere", (), (), "b1", 1)],
        [Transition(RUN, (last(),), (event(),), "b2", 1), parks],
    ]


async def play(ledger: PostgresLedger) -> list[object]:
    """All answers, and everything visible after each batch."""
    seen: list[object] = []
    for batch in plain_batches():
        seen.append(await ledger.commit(batch))
        seen.append([lease.token for lease in await ledger.claim("w1", ["default"], 9)])
        for run in (RUN, "run-2"):
            found = await ledger.inspect(run)
            assert found is not None
            seen += [found.execution, sorted(found.tokens, key=lambda view: view.id), found.barriers]
            seen += [await ledger.events(run), await ledger.outputs(run, ["o"]), await ledger.left(run, "")]
        seen.append(await ledger.outbox())
    return seen


async def test_the_plain_way_and_the_general_way_come_to_the_same(
    ledger: PostgresLedger, private_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {encoding.shape_of(transition) for batch in plain_batches() for transition in batch}
    assert shapes == {"step", "last", "other"}
    plain = await play(ledger)

    monkeypatch.setattr(encoding, "shape_of", lambda transition: "other")
    other = PostgresLedger(await PostgresStore.open(private_postgres.url, FakeClock()))
    general = await play(other)

    assert plain == general
    await other.close()


async def _claim_when_reachable(ledger: PostgresLedger) -> list[Lease]:
    """The pool may still hand out a connection that died with the server: as many times as it holds connections."""
    for _ in range(20):
        try:
            return await ledger.claim("w1", ["default"], 1)
        except Unavailable:
            continue
    raise AssertionError("the server is back, but the ledger cannot reach it")


async def test_what_was_acknowledged_survives_kill_9(private_postgres: PostgresServer) -> None:
    ledger = PostgresLedger(await PostgresStore.open(private_postgres.url, FakeClock()))
    await ledger.commit([start(RUN, token("t0"))])
    transition = None
    for number in range(5):
        [lease] = await _claim_when_reachable(ledger)
        transition = step(
            lease, StoreOutput(lease.token, b"%d" % number), token(f"t{number + 1}"), events=[event()]
        )
        [outcome] = await ledger.commit([transition])
        assert isinstance(outcome, Applied)
        private_postgres.kill()
        with pytest.raises(Unavailable):
            await ledger.commit([transition])
        private_postgres.start()

    assert transition is not None
    assert await ledger.commit([transition]) == [AlreadyApplied()]
    assert await ledger.commit([step(lease, token("other"))]) == [Stale("fence")]
    assert await ledger.outputs(RUN, [f"t{number}" for number in range(9)]) == {
        f"t{number}": b"%d" % number for number in range(5)
    }
    assert [found.seq for found in await ledger.events(RUN)] == [1, 2, 3, 4, 5, 6]
    await ledger.close()
