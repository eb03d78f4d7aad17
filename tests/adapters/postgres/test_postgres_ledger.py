"""What is particular to PostgreSQL: locks between processes, claims beside commits, a server that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from dalsegno.adapters.postgres import PostgresLedger, PostgresStore, store
from dalsegno.adapters.postgres.commit import changes
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.errors import Unavailable
from dalsegno.model.effect import CancelTokens, StoreOutput
from dalsegno.model.token import Lease
from dalsegno.model.transition import AlreadyApplied, Applied, Deferred, Stale
from dalsegno.ports.ledger import QueueView, WorkerView
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import RUN, arrive, barrier, event, start, step, token
from tests.adapters.postgres.conftest import OpenLedger
from tests.adapters.postgres.meanwhile import until
from tests.servers.postgres import PostgresServer
from tests.waiting import come_about

HOLD = "SELECT FROM dalsegno.flight WHERE id = $1 FOR UPDATE"


async def begin(ledger: PostgresLedger, *names: str) -> dict[str, Lease]:
    """One execution each, with one token of the same name."""
    await ledger.commit([start(f"run-{name}", token(name)) for name in names])
    return {lease.token: lease for lease in await ledger.claim("w1", ["default"], 99)}


async def test_every_statement_is_valid_on_the_schema(ledger: PostgresLedger) -> None:
    async with ledger.store.transaction() as tx:
        for text in SQL.values():
            await tx.connection.prepare(text)


async def test_a_look_at_queues_counts_only_so_many_of_each(
    ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dalsegno.adapters.postgres.ledger.COUNTED", 3)
    began = ledger.now()
    many = [token(f"{name}-{n}", queue=name) for name, count in (("a", 5), ("b", 2)) for n in range(count)]
    limited = [token(f"limited-{n}", queue="a", key="k") for n in range(4)]
    await ledger.commit([start(RUN, *many, *limited)])

    assert await ledger.queues() == [QueueView("a", 6, 0, began), QueueView("b", 2, 0, began)]


# -- locks ----------------------------------------------------------------------------------------------------


async def test_transition_of_an_execution_that_another_process_has_locked_is_deferred_alone(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    leases = await begin(ledger, "a", "b")
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.fetch(HOLD, "run-a")

        outcomes = await ledger.commit([step(leases["a"], token("a2")), step(leases["b"], token("b2"))])

        assert outcomes[0] == Deferred()
        assert isinstance(outcomes[1], Applied)
    [again] = await ledger.commit([step(leases["a"], token("a2"))])
    assert isinstance(again, Applied)
    await other.close()


async def test_third_try_for_a_locked_execution_waits_for_it(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    leases = await begin(ledger, "a")
    transition = step(leases["a"], token("a2"))
    other = await asyncpg.connect(postgres_url)
    holding = other.transaction()
    await holding.start()
    await other.fetch(HOLD, "run-a")
    for _ in range(2):
        assert await ledger.commit([transition]) == [Deferred()]

    third = asyncio.create_task(ledger.commit([transition]))
    await _until_somebody_waits(postgres_url)
    assert not third.done()
    await holding.rollback()

    [outcome] = await third
    assert isinstance(outcome, Applied)
    await other.close()


async def _until_somebody_waits(url: str) -> None:
    watcher = await asyncpg.connect(url)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    await until(lambda: watcher.fetchval(waiting))
    await watcher.close()


@contextmanager
def impatient(monkeypatch: pytest.MonkeyPatch, *, lock: str = "5s", idle: str = "10s") -> Iterator[None]:
    text = (
        f"BEGIN; SET LOCAL lock_timeout = '{lock}'; SET LOCAL idle_in_transaction_session_timeout = '{idle}'"
    )
    with monkeypatch.context() as patch:
        patch.setattr(store, "BEGIN", text)
        yield


async def test_one_that_is_held_for_very_long_does_not_keep_the_others_of_its_batch(
    ledger: PostgresLedger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = await begin(ledger, "a", "b")
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.fetch(HOLD, "run-a")
        for _ in range(2):
            assert await ledger.commit([step(leases["a"], token("a2"))]) == [Deferred()]
        with impatient(monkeypatch, lock="50ms"):
            outcomes = await ledger.commit([step(leases["a"], token("a2")), step(leases["b"], token("b2"))])

        assert outcomes[0] == Deferred()
        assert isinstance(outcomes[1], Applied)
    await other.close()


async def test_process_that_stops_in_a_transaction_loses_its_locks(
    ledger: PostgresLedger, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = await begin(ledger, "a")
    stopped = await open_ledger()

    async def lock_and_stop() -> None:
        async with stopped.store.transaction() as tx:
            await tx.fetch("load.wait", ["run-a"])
            outcome = None
            async with asyncio.timeout(20):
                while not isinstance(outcome, Applied):
                    [outcome] = await ledger.commit([step(leases["a"], token("a2"))])
            await tx.fetch("load.wait", ["run-a"])

    with impatient(monkeypatch, idle="200ms"), pytest.raises(Unavailable):
        await lock_and_stop()

    assert {lease.token for lease in await stopped.claim("w2", ["default"], 9)} == {"a2"}


async def test_arrivals_over_two_processes_at_once_are_each_counted_once(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    width, spec = 40, barrier(expected=40)
    await ledger.commit([start(RUN, *(token(f"t{slot}") for slot in range(width)))])
    leases = {lease.token: lease for lease in await ledger.claim("w1", ["default"], 99)}
    other = await open_ledger()

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
    found = await ledger.inspect(RUN)
    assert found is not None
    assert found.execution.seq == 2 * width  # one started, forty completed, all but the last arrival waiting


async def test_two_starts_of_one_execution_at_once_make_one(
    ledger: PostgresLedger, open_ledger: OpenLedger
) -> None:
    other = await open_ledger()
    names = [f"run-{number}" for number in range(20)]

    outcomes = await asyncio.gather(
        ledger.commit([start(name, token("a")) for name in names]),
        other.commit([start(name, token("a")) for name in reversed(names)]),
    )

    kinds = [type(outcome) for answers in outcomes for outcome in answers]
    assert kinds.count(Applied) == len(names)
    assert set(kinds) <= {Applied, AlreadyApplied, Deferred}
    assert len(await ledger.claim("w1", ["default"], 99)) == len(names)


async def test_claim_that_comes_between_reading_and_cancelling_a_token_is_seen(
    ledger: PostgresLedger, open_ledger: OpenLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ledger.commit([start(RUN, token("a"), token("b", queue="other"))])
    [lease] = await ledger.claim("w1", ["default"], 1)
    other = await open_ledger()
    claimed: list[Lease] = []
    write = changes.Changes.write

    async def claim_and_write(found: changes.Changes, tx: store.Transaction) -> None:
        if found.tokens and not claimed:
            claimed.extend(await other.claim("w2", ["other"], 1))
        await write(found, tx)

    monkeypatch.setattr(changes.Changes, "write", claim_and_write)
    [outcome] = await ledger.commit([step(lease, CancelTokens("", ("b",)))])

    assert isinstance(outcome, Applied)
    assert [given.token for given in claimed] == ["b"]
    assert await other.commit([step(claimed[0], token("c"))]) == [Stale("fence")]
    found = await ledger.inspect(RUN)
    assert found is not None
    assert found.tokens == ()


CLAIM = "UPDATE dalsegno.token SET state = 'leased', owner = 'w2', fence = fence + 1 WHERE id = 'b'"
SOMEBODY_WAITS = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)"


async def test_claim_that_is_committed_while_its_token_is_being_cancelled_is_seen(
    ledger: PostgresLedger, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancelling statement has found the token ready, and waits for the claim's lock on it: the rules have to judge
    anew, on the token as it is leased."""
    await ledger.commit([start(RUN, token("a"), token("b", queue="other"))])
    [lease] = await ledger.claim("w1", ["default"], 1)
    claim, watch = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    seen: list[int] = []
    write = changes.Changes.write

    async def note_and_write(found: changes.Changes, tx: store.Transaction) -> None:
        seen.extend(fence for row, fence in found.tokens.values() if row.id == "b")
        await write(found, tx)

    monkeypatch.setattr(changes.Changes, "write", note_and_write)
    async with claim.transaction():
        await claim.execute(CLAIM)
        cancelling = asyncio.create_task(ledger.commit([step(lease, CancelTokens("", ("b",)))]))
        await come_about(lambda: watch.fetchval(SOMEBODY_WAITS), "it waits for the claim")

    assert [type(outcome) for outcome in await cancelling] == [Applied]
    assert seen == [0, 1]
    found = await ledger.inspect(RUN)
    assert found is not None
    assert found.tokens == ()
    await claim.close()
    await watch.close()


async def test_many_claims_and_commits_at_once_meet_no_deadlock(
    ledger: PostgresLedger, open_ledger: OpenLedger, postgres_server: PostgresServer
) -> None:
    others = [ledger, await open_ledger(), await open_ledger()]
    names = [f"run-{number}" for number in range(12)]
    await ledger.commit(
        [start(name, *(token(f"{name}-{n}", key=f"k{n}") for n in range(5))) for name in names]
    )

    async def work(number: int) -> int:
        mine, done = others[number % 3], 0
        while leases := await mine.claim(f"w{number}", ["default"], 7):
            batch = [step(lease, token(f"{lease.token}+", queue="done")) for lease in leases]
            while batch:
                outcomes = await mine.commit(batch)
                done += sum(isinstance(outcome, Applied) for outcome in outcomes)
                batch = [each for each, outcome in zip(batch, outcomes, strict=True) if outcome == Deferred()]
        return done

    assert sum(await asyncio.gather(*map(work, range(6)))) == 60
    assert "deadlock" not in postgres_server.log_text()


# -- heartbeats -----------------------------------------------------------------------------------------------


async def test_heartbeat_needs_no_event_loop_and_survives_a_restart(private_postgres: PostgresServer) -> None:
    ledger = PostgresLedger(await PostgresStore.open(private_postgres.url))
    ledger.heartbeat("w1", 60, b"first")  # blocks the loop: whatever it needs runs elsewhere
    private_postgres.kill()
    with pytest.raises(Unavailable):
        await asyncio.to_thread(ledger.heartbeat, "w1", 60)
    private_postgres.start()

    await asyncio.gather(*(asyncio.to_thread(ledger.heartbeat, f"w{n}", 60, b"again") for n in range(4)))

    assert [(view.id, view.info) for view in await _when_reachable(ledger)] == [
        (f"w{n}", b"again") for n in range(4)
    ]
    await ledger.close()


async def _when_reachable(ledger: PostgresLedger) -> list[WorkerView]:
    """The pool may still hand out connections that died with the server, as many as it holds."""
    for _ in range(20):
        try:
            return await ledger.workers()
        except Unavailable:
            continue
    raise AssertionError("the server is back, but the ledger cannot reach it")


# -- durability -----------------------------------------------------------------------------------------------


async def _claim_when_reachable(ledger: PostgresLedger) -> list[Lease]:
    await _when_reachable(ledger)
    return await ledger.claim("w1", ["default"], 1)


async def test_what_was_acknowledged_survives_kill_9(private_postgres: PostgresServer) -> None:
    ledger = PostgresLedger(await PostgresStore.open(private_postgres.url, FakeClock()))
    await ledger.commit([start(RUN, token("t0"))])
    sent = []
    for number in range(5):
        [lease] = await _claim_when_reachable(ledger)
        transition = step(
            lease, StoreOutput(lease.token, b"%d" % number), token(f"t{number + 1}"), events=[event()]
        )
        [outcome] = await ledger.commit([transition])
        assert isinstance(outcome, Applied)
        sent.append((lease, transition))
        private_postgres.kill()
        with pytest.raises(Unavailable):
            await ledger.commit([transition])
        private_postgres.start()

    await _when_reachable(ledger)
    for lease, transition in sent:
        assert await ledger.commit([transition]) == [AlreadyApplied()]
        assert await ledger.commit([step(lease, token("other"))]) == [Stale("fence")]
    assert await ledger.outputs(RUN, [f"t{number}" for number in range(9)]) == {
        f"t{number}": b"%d" % number for number in range(5)
    }
    found = await ledger.inspect(RUN)
    assert found is not None
    assert found.execution.seq == 6
    await ledger.close()
