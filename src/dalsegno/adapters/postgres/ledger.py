"""PostgresLedger: the ledger's contract on one PostgreSQL database, and its rows as the ports show them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from dalsegno.adapters.excluding_claims import ExcludingClaims
from dalsegno.adapters.limit_lines import COUNTED as COUNTED_IN_LINE
from dalsegno.adapters.postgres.archive.removal import sweep
from dalsegno.adapters.postgres.claim.claims import Claims
from dalsegno.adapters.postgres.claim.timers import TimerWaker
from dalsegno.adapters.postgres.claim.waiting_workers import WaitingWorkers
from dalsegno.adapters.postgres.commit.commits import Commits
from dalsegno.adapters.postgres.limits import views_of
from dalsegno.adapters.postgres.messaging.heartbeats import Heartbeats
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.adapters.rows import allowance, execution_view, machine_view
from dalsegno.core.settlement import BarrierRow, TokenRow, barrier_view, token_view
from dalsegno.core.settlement.limits import limit_view
from dalsegno.model.barrier import BarrierView, LeftView, SlotView
from dalsegno.model.inspection import Inspection, Untouched
from dalsegno.model.limits import LimitView
from dalsegno.model.machine import MachineView, PostedView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Transition
from dalsegno.ports.ledger import (
    COUNTED,
    LAST,
    MOST_BARRIERS,
    MOST_OPEN_SLOTS,
    NO_RECORDS,
    SLOTS_PAGE,
    Examination,
    Examined,
    OutboxEntry,
    QueueView,
    RecordsAsked,
    Woken,
    WorkerView,
)
from dalsegno.ports.records import Record


def examined(rows: Sequence[Row], now: float) -> Examined:
    """Return an examination from ``look.examine``."""
    workers = rows[0][-1] if rows else ()
    return Examined(
        tuple(_examination(row, now) for row in rows), tuple(WorkerView(*worker) for worker in workers)
    )


def _examination(row: Row, now: float) -> Examination:
    view, tokens, barriers, open_slots, machine, inbox, mailbox, limits, records, _workers = row
    execution = execution_view(view)
    inspection = Inspection(
        execution,
        tuple(token_view(TokenRow(execution.id, *token)) for token in tokens),
        tuple(barrier_view(BarrierRow(execution.id, *barrier)) for barrier in barriers),
        tuple(_limit_view(limit, now) for limit in limits),
    )
    return Examination(
        inspection,
        machine_view(machine, inbox, mailbox) if machine is not None else None,
        _by_barrier(open_slots),
        tuple(Record(*record) for record in records),
    )


def _by_barrier(slots: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for barrier, number in slots:
        found.setdefault(barrier, []).append(number)
    return {barrier: tuple(sorted(numbers)) for barrier, numbers in found.items()}


def _limit_view(row: Row, now: float) -> LimitView:
    """Return a limit. ``start``: the start that is as many starts ago as the rate of the key allows."""
    key, own, concurrency, starts, period, in_use, waiting, start = row
    return limit_view(key, own, allowance(concurrency, starts, period), in_use, waiting, lambda _: start, now)


STALE_STARTS = 10_000
"""Most rows removed in one call."""
FORGET_STARTS_EVERY = 60.0


class PostgresLedger:
    """Each call is one transaction, or few; several processes use one database concurrently."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.commits = Commits(store)
        self.waiting_workers = WaitingWorkers(self.commits.suspects)
        self._claims = Claims(store, self.commits)
        self._waking = TimerWaker(store, self._claims, self.waiting_workers)
        self._heartbeats = Heartbeats(store.url, store.mode)
        self._excluding_claims = ExcludingClaims(self._claims.look_at_others, self.lease, self.now)
        self._forget_starts_at = 0.0

    def now(self) -> float:
        return self.store.now()

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes = await self.commits.commit(batch)
        self.commits.suspects.settled(batch, outcomes)
        return outcomes

    # -- leases -----------------------------------------------------------------------------------------------

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        leases = await self._claims.claim(worker, queues, limit)
        self.commits.suspects.note(leases)
        return leases

    async def claim_others(
        self,
        worker: str,
        queues: Sequence[str],
        limit: int,
        pass_over: Collection[str],
        *,
        only_long: bool = True,
    ) -> list[Lease]:
        return await self._excluding_claims.claim(worker, queues, limit, pass_over, only_long=only_long)

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        leases = await self._claims.lease(worker, tokens)
        self.commits.suspects.note(leases)
        return leases

    async def obsolete(self, leases: Sequence[Lease]) -> list[Lease]:
        return await self._claims.obsolete(leases)

    async def held_by(self, worker: str) -> list[Lease]:
        return await self._claims.held_by(worker)

    async def release(self, worker: str, leases: Sequence[Lease], *, lost: bool = False) -> None:
        await self._claims.release(worker, leases, lost=lost)
        self.commits.suspects.handed_back(leases)

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        """Send a heartbeat from a thread of its own, so that it works while the event loop is blocked."""
        self._heartbeats.beat(worker, self.store.given_now(), lease_seconds, info)

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        if self.store.now() >= self._forget_starts_at:
            self._forget_starts_at = self.store.now() + FORGET_STARTS_EVERY
            await self.store.fetch("limits.forget_stale_starts", self.store.now(), STALE_STARTS)
        return await self._claims.expire(dead)

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        return await self._waking.wake(limit)

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        rows = await self.store.fetch("look.slots", execution, barrier, after, limit)
        return [SlotView(*row) for row in rows]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        return [LeftView(*row) for row in await self.store.fetch("look.left", execution, scope)]

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        rows = await self.store.fetch("look.gate", execution, gate)
        return tuple(json.loads(rows[0][0])) if rows else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        return dict(await self.store.fetch("look.outputs", execution, ids))

    async def machine(self, execution: str) -> MachineView | None:
        looks = ("look.machine", "look.inbox", "look.mailbox")
        found, inbox, mailbox = await self.store.fetch_together(*((name, (execution,)) for name in looks))
        return machine_view(found[0], inbox, mailbox) if found else None

    async def waiting_signals(self, execution: str, most: int) -> int:
        ((count,),) = await self.store.fetch("look.waiting_signals", execution, most)
        return int(count)

    async def posted(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PostedView]:
        rows = await self.store.fetch("look.posted", [pair[0] for pair in asked], [pair[1] for pair in asked])
        return {(execution, row[0]): PostedView(*row) for execution, *row in rows}

    async def unanswered(self, execution: str, prefix: str, limit: int) -> list[PostedView]:
        rows = await self.store.fetch("look.unanswered", execution, prefix, prefix + LAST, limit)
        return [PostedView(own, name, number, taken, b"") for own, name, number, taken in rows]

    async def inspect(self, execution: str) -> Inspection | None:
        async with self.store.look() as tx:
            found = await tx.fetch("look.execution", execution)
            return await self._inspect(tx, execution, found[0]) if found else None

    async def _inspect(self, tx: Transaction, execution: str, found: Row) -> Inspection:
        tokens = tuple(
            token_view(TokenRow(execution, *row)) for row in await tx.fetch("look.tokens", execution)
        )
        barriers = await tx.fetch("look.barriers", execution)
        waiting = {(token.limit_key, token.allowance) for token in tokens if token.state == "ready"}
        asked = [(key, own) for key, own in waiting if key is not None]
        return Inspection(
            execution_view(found),
            tokens,
            tuple(barrier_view(BarrierRow(execution, *row)) for row in barriers),
            tuple(await views_of(tx, asked, self.now())),
        )

    async def visit(self, execution: str, prefix: str) -> BarrierView | None:
        rows = await self.store.fetch("look.visit", execution, prefix, prefix + LAST)
        return barrier_view(BarrierRow(execution, *rows[0])) if rows else None

    async def examine(self, executions: Sequence[str], records: RecordsAsked = NO_RECORDS) -> Examined:
        kinds = (records.of_tokens, records.token_prefix, records.of_queues, records.where_ready)
        most = (MOST_BARRIERS, MOST_OPEN_SLOTS, COUNTED_IN_LINE)
        return examined(await self.store.fetch("look.examine", executions, *kinds, *most), self.now())

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        rows = await self.store.fetch("look.untouched", after, limit, before)
        names = tuple(name for name, is_untouched in rows if is_untouched)
        return Untouched(names, "".join(name for name, is_untouched in rows if not is_untouched))

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        return tuple(ReadyToken(*row) for row in await self.store.fetch("look.ready", execution))

    async def workers(self) -> list[WorkerView]:
        return [WorkerView(*row) for row in await self.store.fetch("leases.workers")]

    async def known_workers(self) -> list[str]:
        return [name for (name,) in await self.store.fetch("leases.known_workers")]

    async def queues(self) -> list[QueueView]:
        return [QueueView(*row) for row in await self.store.fetch("look.queues", COUNTED)]

    # -- closing ------------------------------------------------------------------------------------------------

    async def sweep(self, limit: int = 500) -> int:
        return await sweep(self.store, limit)

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return [OutboxEntry(*row) for row in await self.store.fetch("look.outbox", limit)]

    async def delivered(self, ids: Sequence[str]) -> None:
        await self.store.fetch("write.delivered", ids)

    async def close(self) -> None:
        self._heartbeats.close()
        await self.store.close()
