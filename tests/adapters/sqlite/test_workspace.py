"""The rows kept in memory: what makes chains fast must never make them wrong."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from dalsegno.adapters.sqlite import SqliteArchive, SqliteLedger, SqliteStore
from dalsegno.adapters.sqlite import ledger as ledger_module
from dalsegno.adapters.sqlite.commit import workspace
from dalsegno.model.transition import AlreadyApplied, Applied, Stale
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import cancel, last, pause, resume, start, step, token


@pytest.fixture
def other(path: Path, stack: ContractStack, clock: FakeClock) -> Iterator[ContractStack]:
    """The same file, opened as another process would."""
    store = SqliteStore.open(path, clock)
    yield ContractStack(SqliteLedger(store), clock, SqliteArchive(store))
    store.close()


async def test_change_by_another_process_is_seen(stack: ContractStack, other: ContractStack) -> None:
    lease = (await stack.begin(token("a")))["a"]
    await other.apply(cancel())

    assert await stack.commit(step(lease, token("b"))) == [Stale("finished")]


async def test_two_processes_take_turns_on_one_execution(stack: ContractStack, other: ContractStack) -> None:
    await stack.apply(start("run-1", token("0")))
    for number in range(10):
        mine = (stack, other)[number % 2]
        lease = (await mine.take())[str(number)]
        await mine.apply(step(lease, token(str(number + 1))))

    execution = await stack.execution()
    assert (execution.seq, execution.live) == (1, 1)
    assert set(await other.tokens()) == {"10"}


async def test_token_that_exists_is_found_although_nobody_looked(stack: ContractStack) -> None:
    """Spawned ids are not looked up; the insert that fails makes the batch be applied with care."""
    leases = await stack.begin(token("a"), token("b"))
    [one] = await stack.apply(step(leases["a"], token("twin")))
    [two] = await stack.apply(step(leases["b"], token("twin"), token("c")))

    assert [ready.token for ready in one.ready] == ["twin"]
    assert [ready.token for ready in two.ready] == ["c"]
    assert (await stack.execution()).live == 2


async def test_token_is_found_beside_the_repeated_transition_that_spawned_it(
    stack: ContractStack, other: ContractStack
) -> None:
    first = step((await stack.begin(token("a")))["a"], token("b"))
    await stack.apply(first)
    lease = (await other.take())["b"]  # so this workspace has to read everything again

    outcomes = await stack.commit(first, step(lease, token("c")))

    assert [type(outcome) for outcome in outcomes] == [AlreadyApplied, Applied]


async def test_same_transition_twice_in_one_batch(stack: ContractStack) -> None:
    lease = (await stack.begin(token("a")))["a"]
    same = step(lease, token("b"))

    outcomes = await stack.commit(same, same)

    assert [type(outcome) for outcome in outcomes] == [Applied, AlreadyApplied]


async def test_rollback_forgets_what_was_changed_in_memory(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = (await stack.begin(token("a")))["a"]
    write = workspace.Changes.write

    def fail(self: workspace.Changes, connection: object) -> None:
        raise MemoryError

    monkeypatch.setattr(workspace.Changes, "write", fail)
    [outcome] = await stack.commit(step(lease, token("b")))
    assert type(outcome).__name__ == "Refused"

    monkeypatch.setattr(workspace.Changes, "write", write)
    await stack.apply(step(lease, token("b")))


async def test_full_cache_is_emptied_and_refilled(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace, "CACHED_FLIGHTS", 3)
    await stack.apply(*(start(f"run-{number}", token("a")) for number in range(10)))

    for lease in await stack.claim():
        [applied] = await stack.apply(step(lease, last()))
        assert applied.ended == "COMPLETED"


async def test_resume_is_stored_although_the_row_reads_running(
    stack: ContractStack, other: ContractStack
) -> None:
    await stack.apply(start("run-1", token("a")))
    await stack.apply(pause())
    await stack.apply(resume())

    assert (await other.execution()).state == "RUNNING"
    assert set(await other.take()) == {"a"}


async def test_calls_that_wait_together_each_get_their_answer(stack: ContractStack) -> None:
    results = await asyncio.gather(
        *(stack.commit(start(f"run-{number}", token("a"))) for number in range(50)),
        *(stack.claim(1) for _ in range(50)),
        stack.ledger.sweep(),
    )

    assert sum(len(leases) for leases in results[50:100]) == 50  # type: ignore[arg-type,misc]


async def test_one_call_that_fails_does_not_fail_those_that_shared_its_transaction(
    stack: ContractStack,
) -> None:
    good, bad, fine = await asyncio.gather(
        stack.commit(start("good", token("a"))),
        stack.archive.put_definition("\ud800", "h", "graph", b""),
        stack.commit(start("fine", token("a"))),
        return_exceptions=True,
    )

    assert isinstance(bad, Exception)
    assert [type(outcome) for outcome in (*good, *fine)] == [Applied, Applied]  # type: ignore[misc]


async def test_a_new_timer_is_stored_as_any_other_token(stack: ContractStack, other: ContractStack) -> None:
    """It is written with few columns; one whose time has come in the same batch is not."""
    now = stack.clock.now()
    lease = (await stack.begin(token("a")))["a"]
    timer = token("t", kind="timer", node="signal", data=b"body", queue="q", due=now + 60, live=False)
    plain = token("p", kind="node", node="signal", data=b"body", queue="q", due=now + 60, live=False)
    await stack.apply(step(lease, timer, plain))

    stored = await other.tokens()

    assert replace(stored["t"], id="p", kind="node", priority=stored["p"].priority) == stored["p"]
    assert (stored["t"].state, stored["t"].due, stored["t"].live) == ("parked", now + 60, False)
    stack.clock.advance(60)
    assert {ready.token for ready in (await other.ledger.wake()).ready} == {"t", "p"}
    assert [lease.data for lease in await other.claim(queues=("q",))] == [b"body", b"body"]


async def test_lease_that_a_late_worker_takes_while_it_is_expired_is_taken_back(
    stack: ContractStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was late, not dead: between the read of its leases and their return it commits, and keeps a token."""
    lease = (await stack.begin(token("a")))["a"]
    read = ledger_module.leased_by

    def leased_before(connection: sqlite3.Connection, workers: Sequence[str]) -> list[tuple[str, str]]:
        return [each for each in read(connection, workers) if each[1] != "a"]

    monkeypatch.setattr(ledger_module, "leased_by", leased_before)
    [ready] = await stack.ledger.expire(dead=["w1"])

    assert ready.token == "a"
    assert await stack.commit(step(lease, token("b"))) == [Stale("fence")]
    assert list(await stack.take()) == ["a"]
