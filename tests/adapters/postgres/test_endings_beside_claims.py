"""An execution ends at the moment at which a claim leases its token and shuts the line behind it: neither sees the
other. Whoever comes upon the lease afterwards opens the line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from dalsegno.adapters.postgres import PostgresArchive, PostgresLedger, PostgresLimits
from dalsegno.adapters.postgres.store import Transaction
from dalsegno.model.effect import CreateExecution
from dalsegno.model.limits import Allowance
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Stale, Transition
from dalsegno.testing.contract.builders import cancel, command, finish, new_execution, start, step, token
from tests.adapters.postgres.conftest import OpenLedger
from tests.adapters.postgres.meanwhile import SOON, act_beside, until
from tests.adapters.postgres.stacks import PostgresStacks
from tests.applied import applied
from tests.servers.postgres import PostgresServer

KEY, ONE = "mail", Allowance(concurrency=1)
QUEUES = [DEFAULT_QUEUE, SYSTEM_QUEUE]
RUN = "run-0"
"""Ends while its token is claimed. The tokens of two others stand in the same line."""
LEASED = "limits.leave"
"""The last statement of a claim in which limits matter: tokens are leased by then, and nothing is committed."""
WAITING = """
SELECT count(*) FROM pg_locks WHERE NOT granted AND pid IN (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database())
"""

Prepare = Callable[[PostgresLedger], Awaitable[Transition]]
"""Makes the executions. Returns what ends the first one."""


def in_line(number: int, *beside: NewToken) -> Transition:
    return start(f"run-{number}", *beside, token(f"t-{number}", key=KEY, allows=ONE))


async def long_way(ledger: PostgresLedger) -> Transition:
    await ledger.commit([in_line(number) for number in range(3)])
    return cancel(RUN)


async def short_way(ledger: PostgresLedger) -> Transition:
    """Another token ends it, in one statement."""
    await ledger.commit([in_line(0, token("plain", queue="plain")), in_line(1), in_line(2)])
    [plain] = await ledger.claim("w2", ["plain"], 1)
    return step(plain, finish())


async def pending(ledger: PostgresLedger) -> Transition:
    """None of them has begun: a limit of their workflow makes them wait."""
    await ledger.commit([submitted(number) for number in range(3)])
    return cancel(RUN)


def submitted(number: int) -> Transition:
    run = new_execution(f"run-{number}")
    begins = token(f"t-{number}", kind="start", node="", queue=SYSTEM_QUEUE, live=False, key=KEY, allows=ONE)
    return command(run.id, CreateExecution(run, pending=True), begins)


class Processes:
    """One claims, the other one ends what is claimed, and looks after everything else."""

    def __init__(self, claiming: PostgresLedger, other: PostgresLedger) -> None:
        self.claiming = claiming
        self.other = other

    async def claim(self, worker: str = "w2") -> list[str]:
        return [lease.token for lease in await self.other.claim(worker, QUEUES, 9)]

    async def in_use(self) -> int:
        return (await PostgresLimits(self.other.store).get(KEY)).in_use

    async def remove(self) -> list[str]:
        return await PostgresArchive(self.other.store).remove([RUN])

    async def waiting(self) -> bool:
        """Whether anybody waits for a lock."""
        async with self.claiming.store.look() as tx:
            return bool(await tx.connection.fetchval(WAITING))


@pytest.fixture
async def processes(open_ledger: OpenLedger) -> Processes:
    return Processes(await open_ledger(), await open_ledger())


@pytest.fixture(params=[long_way, short_way, pending], ids=lambda prepare: prepare.__name__)
def prepare(request: pytest.FixtureRequest) -> Prepare:
    chosen: Prepare = request.param
    return chosen


async def claim_while_it_ends(
    processes: Processes,
    prepare: Prepare,
    monkeypatch: pytest.MonkeyPatch,
    then: Callable[[], Awaitable[None]] | None = None,
) -> Lease:
    """``then``: what else happens before the claim is committed."""
    other = processes.other
    ending = await prepare(other)

    async def end() -> None:
        assert await other.commit([ending]) == [applied(ended=ending.effects[0].state)]  # type: ignore[union-attr]
        if then is not None:
            await then()

    with monkeypatch.context() as patch:
        act_beside(patch, Transaction, "fetch", about=LEASED, after=end)
        [lease] = await processes.claiming.claim("w1", QUEUES, 1)
    assert lease.execution == RUN
    assert other.commits.known.hits == (1 if prepare is short_way else 0)
    return lease


async def check_next(processes: Processes) -> None:
    """The line moves, and no more of it than the limit allows."""
    assert await processes.in_use() == 0
    assert await processes.claim() == ["t-1"]
    assert await processes.claim("w3") == []
    assert await processes.in_use() == 1


async def test_sweep_opens_the_line(
    processes: Processes, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claim_while_it_ends(processes, prepare, monkeypatch)

    assert await processes.other.sweep() > 0

    await check_next(processes)


async def test_removal_opens_the_line(
    processes: Processes, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claim_while_it_ends(processes, prepare, monkeypatch)

    assert await processes.remove() == [RUN]

    await check_next(processes)


async def test_late_commit_opens_the_line_and_names_the_next(
    processes: Processes, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await claim_while_it_ends(processes, prepare, monkeypatch)

    [outcome] = await processes.claiming.commit([step(lease)])

    assert isinstance(outcome, Stale)
    assert (outcome.reason, [ready.token for ready in outcome.ready]) == ("finished", ["t-1"])
    await check_next(processes)


async def test_worker_that_is_gone_opens_the_line(
    processes: Processes, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    await claim_while_it_ends(processes, prepare, monkeypatch)

    await processes.other.expire(dead=["w1"])

    await check_next(processes)


async def test_all_of_them_together_free_one_slot(
    processes: Processes, prepare: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await claim_while_it_ends(processes, prepare, monkeypatch)
    await processes.claiming.commit([step(lease)])
    processes.other.heartbeat("w2", 60.0)
    [following] = await processes.other.claim("w2", QUEUES, 9)

    assert await processes.claiming.commit([step(lease)]) == [Stale("finished")]
    await processes.claiming.release("w1", [lease])
    await processes.other.expire(dead=["w1"])
    await processes.other.sweep()
    assert await processes.claiming.commit([step(lease)]) == [Stale("finished")]
    await processes.remove()

    assert await processes.claim("w3") == []
    assert await processes.in_use() == 1
    await processes.other.commit([cancel(following.execution)])
    assert await processes.claim("w3") == ["t-2"]


@pytest.mark.parametrize("how", ["sweep", "removal"])
async def test_who_removes_the_token_waits_for_the_claim(
    processes: Processes,
    prepare: Prepare,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    postgres_server: PostgresServer,
) -> None:
    """Before it is committed its lease cannot be seen."""
    begun: list[asyncio.Task[object]] = []

    async def remove_meanwhile() -> None:
        removing = processes.other.sweep() if how == "sweep" else processes.remove()
        begun.append(asyncio.create_task(removing))
        await until(processes.waiting, SOON)

    await claim_while_it_ends(processes, prepare, monkeypatch, remove_meanwhile)
    assert await begun[0]

    async with processes.other.store.look() as tx:
        assert await tx.connection.fetchval("SELECT count(*) FROM token WHERE id = 't-0'") == 0
    await check_next(processes)
    assert "deadlock" not in postgres_server.log_text()


async def test_claims_of_other_queues_are_not_kept_either(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key has a line in each queue, and all of them wait for the one slot."""
    beside = token("beside", key=KEY, allows=ONE, queue="beside")
    await processes.other.commit([start("run-beside", beside)])
    await processes.claiming.commit([start("run-more", token("more", key=KEY, allows=ONE))])

    async def claim() -> None:
        """The ending has looked for leases, and goes on when one was given and both lines are shut."""
        [lease] = await processes.claiming.claim("w1", [DEFAULT_QUEUE], 1)
        assert lease.execution == "run-more"
        assert await processes.claiming.claim("w4", ["beside"], 1) == []

    with monkeypatch.context() as patch:
        act_beside(patch, Transaction, "fetch", about="load.locked", after=claim)
        await processes.other.commit([cancel("run-more")])
    assert await processes.other.claim("w2", ["beside"], 1) == []

    await processes.other.sweep()

    assert [lease.token for lease in await processes.other.claim("w2", ["beside"], 1)] == ["beside"]


@pytest.fixture
async def stacks(postgres_url: str) -> AsyncIterator[PostgresStacks]:
    opened = PostgresStacks(postgres_url)
    yield opened
    await opened.close()


async def test_who_waits_for_work_is_told_by_the_sweep(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stacks.open()
    await stacks.open()
    await until(lambda: all(broker.listener.working for broker in stacks.brokers))
    processes = Processes(*stacks.ledgers)
    await claim_while_it_ends(processes, long_way, monkeypatch)
    waiting = asyncio.create_task(stacks.brokers[0].take("w3", QUEUES, 1))
    await until(lambda: stacks.brokers[0].waiting_workers.room(QUEUES) > 0)

    await processes.other.sweep()

    async with asyncio.timeout(SOON):
        assert [lease.token for lease in await waiting] == ["t-1"]
