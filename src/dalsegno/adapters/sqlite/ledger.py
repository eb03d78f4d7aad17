"""SqliteLedger: the ledger's contract on one SQLite file, and the reader's jobs of several statements."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from dalsegno.adapters.excluding_claims import ExcludingClaims
from dalsegno.adapters.rows import execution_view, machine_view
from dalsegno.adapters.sqlite.archive.listing import whole_row
from dalsegno.adapters.sqlite.archive.removal import sweep
from dalsegno.adapters.sqlite.claim import claims
from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.limits import view_of
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.core.settlement import BarrierRow, TokenRow, barrier_view, settle, token_view
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.barrier import BarrierView, LeftView, SlotView, open_slots
from dalsegno.model.ids import scope_chain
from dalsegno.model.inspection import Inspection, Untouched
from dalsegno.model.machine import MachineView, PostedView
from dalsegno.model.token import Lease, not_among, with_handed_over
from dalsegno.model.transition import Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.ledger import (
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

Row = tuple[Any, ...]


def posted(
    connection: sqlite3.Connection, asked: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], PostedView]:
    found: dict[tuple[str, str], PostedView] = {}
    for execution, own in asked:
        row = connection.execute(SQL["machine.posted"], (execution, own)).fetchone()
        if row is not None:
            name, number, taken, data = row
            found[execution, own] = PostedView(own, name, number, bool(taken), data)
    return found


def inspect(connection: sqlite3.Connection, execution: str, now: float) -> Inspection | None:
    row = whole_row(connection, execution)
    return _inspection(connection, execution, row, now) if row is not None else None


def _inspection(connection: sqlite3.Connection, execution: str, row: Row, now: float) -> Inspection:
    stored = connection.execute(SQL["token.unfinished"], (execution,))
    tokens = tuple(token_view(TokenRow(*token[1:])) for token in stored)
    waiting = {(token.limit_key, token.allowance) for token in tokens if token.state == "ready"}
    barriers = connection.execute(SQL["join.barriers_of"], (execution,))
    return Inspection(
        execution_view(row),
        tokens,
        tuple(barrier_view(BarrierRow(execution, *barrier)) for barrier in barriers),
        tuple(view_of(connection, key, own, now) for key, own in waiting if key is not None),
    )


def machine(connection: sqlite3.Connection, execution: str) -> MachineView | None:
    row = connection.execute(SQL["machine.of"], (execution,)).fetchone()
    if row is None:
        return None
    # Each completion has counted up the inbox: most machines that are about to begin have none.
    completions = connection.execute(SQL["machine.inbox_of"], (execution,)) if row[4] else ()
    return machine_view(row, completions, connection.execute(SQL["machine.mailbox_of"], (execution,)))


def examine(
    connection: sqlite3.Connection, executions: Sequence[str], asked: RecordsAsked, now: float
) -> Examined:
    found = []
    for execution in executions:
        row = connection.execute(SQL["listing.outline"], (execution,)).fetchone()
        if row is not None:
            inspection = _inspection(connection, execution, row, now)
            slots = _open_slots(connection, inspection)
            records = tuple(_records_of(connection, inspection, asked))
            found.append(Examination(inspection, machine(connection, execution), slots, records))
    workers = connection.execute(SQL["leases.workers"]) if found else ()
    return Examined(tuple(found), tuple(WorkerView(*row) for row in workers))


def _open_slots(connection: sqlite3.Connection, inspection: Inspection) -> dict[str, tuple[int, ...]]:
    waiting = [barrier for barrier in inspection.barriers if barrier.state == "waiting"]
    found = {}
    for barrier in waiting[:MOST_BARRIERS]:
        resolved = connection.execute(SQL["join.resolved_of"], (inspection.execution.id, barrier.id))
        numbers = (number for (number,) in resolved)
        found[barrier.id] = open_slots(numbers, barrier.expected, MOST_OPEN_SLOTS)
    return found


def _records_of(
    connection: sqlite3.Connection, inspection: Inspection, asked: RecordsAsked
) -> Iterator[Record]:
    queues = {token.queue for token in inspection.tokens if token.state == "ready"}
    tokens = [f"{asked.token_prefix}{token.id}" for token in inspection.tokens]
    for kind, names in ((asked.of_tokens, tokens), (asked.of_queues, sorted(queues))):
        if kind and names:
            found = connection.execute(SQL["records.named"], (kind, json.dumps(names)))
            yield from (Record(*row) for row in found)
    if asked.where_ready and queues:
        yield from (Record(*row) for row in connection.execute(SQL["records.of"], (asked.where_ready,)))


def outputs(connection: sqlite3.Connection, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in ids:
        row = connection.execute(SQL["history.output_of"], (execution, name)).fetchone()
        if row is not None:
            found[name] = row[0]
    return found


def queues(connection: sqlite3.Connection) -> list[QueueView]:
    found: dict[str, QueueView] = {}
    for statement in ("queues.ready", "queues.in_line"):
        for queue, ready, oldest in connection.execute(SQL[statement]):
            before = found.get(queue, QueueView(queue, 0, 0, None))
            first = oldest if before.oldest is None else min(oldest, before.oldest)
            found[queue] = QueueView(queue, before.ready + ready, 0, first)
    for queue, running in connection.execute(SQL["queues.running"]):
        before = found.get(queue, QueueView(queue, 0, 0, None))
        found[queue] = QueueView(queue, before.ready, running, before.oldest)
    return [found[queue] for queue in sorted(found)]


def any_ready(connection: sqlite3.Connection, queues: Iterable[str]) -> bool:
    """Return True if a claim for these queues may find something."""
    asked = json.dumps(list(queues))
    return connection.execute(SQL["leases.any_ready"], (asked,)).fetchone() is not None


def schedules(connection: sqlite3.Connection) -> tuple[float | None, str | None]:
    """Return when the next timer comes due, and the oldest entry of the outbox."""
    due = connection.execute(SQL["leases.next_due"]).fetchone()
    entry = connection.execute(SQL["history.oldest_entry"]).fetchone()
    return due and due[0], entry and entry[0]


def obsolete(connection: sqlite3.Connection, leases: Sequence[Lease]) -> list[Lease]:
    """Look for leases that were handed over only if they are no longer valid themselves: few are."""
    gone = not_among(leases, _valid(connection, leases), handed_over=False)
    return not_among(gone, _valid(connection, with_handed_over(gone))) if gone else gone


def _valid(connection: sqlite3.Connection, leases: Sequence[Lease]) -> set[Row]:
    wanted = [(lease.execution, lease.token, lease.fence, scope_chain(lease.scope)) for lease in leases]
    return set(connection.execute(SQL["leases.validly_leased"], (json.dumps(wanted),)))


def of_others(
    connection: sqlite3.Connection,
    queues: Sequence[str],
    pass_over: Collection[str],
    only_long: bool,
    limit: int,
    since: float,
) -> tuple[list[Row], list[Row]]:
    asked = {
        "pass_over": json.dumps(list(pass_over)),
        "only_long": only_long,
        "limit": limit,
        "since": since,
    }
    plain, in_line = (
        [row for queue in queues for row in connection.execute(SQL[statement], asked | {"queue": queue})]
        for statement in ("leases.ready_of_others", "leases.first_of_others")
    )
    return plain, in_line


def gone_workers(connection: sqlite3.Connection, now: float, dead: Sequence[str]) -> list[str]:
    expired = {worker for (worker,) in connection.execute(SQL["leases.gone"], (now,))}
    return sorted(expired.union(dead))


def leased_by(connection: sqlite3.Connection, workers: Sequence[str]) -> list[tuple[str, str]]:
    return connection.execute(SQL["leases.leased_by"], (json.dumps(workers),)).fetchall()


def held_by(connection: sqlite3.Connection, worker: str) -> list[Lease]:
    """Return the leases of a worker. ``live``, the last but one, is stored as a number."""
    found = connection.execute(SQL["leases.held_by"], (worker,))
    leases = [Lease(*(*row[:-2], bool(row[-2]), row[-1])) for row in found]
    return sorted(leases, key=lambda lease: lease.ready_at)


STALE_STARTS = 10_000
"""Most rows removed in one call."""


class SqliteLedger:
    """Changes are jobs of the store's writer, reads are jobs of its reader."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now: Callable[[], float] = store.clock.now
        self._excluding_claims = ExcludingClaims(
            self._look_at_others, self.lease, self.now, lambda: self.store.news
        )

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        if not batch:
            return []
        try:
            return await self.store.write(lambda rows: _settle_all(rows, batch, self.now(), careful=False))
        except OperatorError:
            raise
        except Exception:  # noqa: BLE001 - one transition is at fault; which one is found out below
            return await self._commit_carefully(batch)

    async def _commit_carefully(self, batch: Sequence[Transition]) -> list[Outcome]:
        """Halve a batch that cannot be stored until the offender is alone; apply all others."""
        try:
            return await self.store.write(lambda rows: _settle_all(rows, batch, self.now(), careful=True))
        except OperatorError:
            raise
        except Exception as error:  # noqa: BLE001 - a transition that breaks the rules must not stop the others
            if len(batch) == 1:
                return [_refused(error)]
        middle = len(batch) // 2
        first = await self._commit_carefully(batch[:middle])
        return first + await self._commit_carefully(batch[middle:])

    # -- leases -----------------------------------------------------------------------------------------------

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        claimed = await self.store.write(lambda rows: claims.claim(rows, worker, queues, limit, self.now()))
        if claimed.opens_at is not None:
            self.store.announce_opening(claimed.opens_at)
        return claimed.leases

    async def any_ready(self, queues: Collection[str]) -> bool:
        """Return True if a claim may find something. A read, which keeps no process from committing."""
        return await self.store.read(lambda connection: any_ready(connection, queues))

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

    async def _look_at_others(
        self, queues: Sequence[str], pass_over: Collection[str], only_long: bool, limit: int, since: float
    ) -> tuple[list[Row], list[Row]]:
        return await self.store.read(
            lambda connection: of_others(connection, queues, pass_over, only_long, limit, since)
        )

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        return await self.store.write(lambda rows: claims.lease_named(rows, worker, tokens, self.now()))

    async def obsolete(self, leases_: Sequence[Lease]) -> list[Lease]:
        return await self.store.read(lambda connection: obsolete(connection, leases_))

    async def release(self, worker: str, leases_: Sequence[Lease], *, lost: bool = False) -> None:
        await self.store.write(lambda rows: claims.release(rows, leases_, lost, self.now()))

    async def held_by(self, worker: str) -> list[Lease]:
        return await self.store.read(lambda connection: held_by(connection, worker))

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        """Send a heartbeat. It waits for the writer's thread only, so it works while the event loop is blocked."""
        beat = (worker, self.now() + lease_seconds, info)
        self.store.write_blocking(lambda rows: _execute(rows, "leases.beat", [beat]))

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        now = self.now()
        await self._forget_stale_starts(now)
        gone = await self.store.read(lambda connection: gone_workers(connection, now, dead))
        if not gone:
            return ()
        # Most are read in the reader; they are read again under the lock.
        leased = await self.store.read(lambda connection: leased_by(connection, gone))
        return await self.store.write(lambda rows: claims.take_back(rows, gone, leased, now))

    async def _forget_stale_starts(self, now: float) -> None:
        """Remove old starts of keys with a rate that are no longer used."""
        if await self.store.fetch("limits.any_stale_start", now):
            chunk = (now, STALE_STARTS)
            await self.store.write(lambda rows: _execute(rows, "limits.forget_stale_starts", [chunk]))

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        return await self.store.write(lambda rows: claims.wake(rows, self.now(), limit))

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        rows = await self.store.fetch("join.slots_of", execution, barrier, after, limit)
        return [SlotView(slot, bool(live), data) for slot, live, data in rows]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        return [LeftView(key, data) for key, data in await self.store.fetch("join.left_of", execution, scope)]

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        rows = await self.store.fetch("join.gate_of", execution, gate)
        return tuple(json.loads(rows[0][0])) if rows else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self.store.read(lambda connection: outputs(connection, execution, ids))

    async def machine(self, execution: str) -> MachineView | None:
        return await self.store.read(lambda connection: machine(connection, execution))

    async def waiting_signals(self, execution: str, most: int) -> int:
        ((count,),) = await self.store.fetch("machine.waiting_signals", execution, most)
        return int(count)

    async def posted(self, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], PostedView]:
        return await self.store.read(lambda connection: posted(connection, asked))

    async def unanswered(self, execution: str, prefix: str, limit: int) -> list[PostedView]:
        rows = await self.store.fetch("machine.unanswered", execution, prefix, prefix + LAST, limit)
        return [PostedView(own, name, number, bool(taken), b"") for own, name, number, taken in rows]

    async def inspect(self, execution: str) -> Inspection | None:
        return await self.store.read(lambda connection: inspect(connection, execution, self.now()))

    async def visit(self, execution: str, prefix: str) -> BarrierView | None:
        rows = await self.store.fetch("join.visit_of", execution, prefix, prefix + LAST)
        return barrier_view(BarrierRow(execution, *rows[0])) if rows else None

    async def examine(self, executions: Sequence[str], records: RecordsAsked = NO_RECORDS) -> Examined:
        now = self.now()
        return await self.store.read(lambda connection: examine(connection, executions, records, now))

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        rows = await self.store.fetch("execution.untouched", after, limit, before, limit)
        names = tuple(name for name, is_untouched in rows if is_untouched)
        return Untouched(names, "".join(name for name, is_untouched in rows if not is_untouched))

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        return tuple(ReadyToken(*row) for row in await self.store.fetch("token.ready_of", execution))

    async def workers(self) -> list[WorkerView]:
        return [WorkerView(*row) for row in await self.store.fetch("leases.workers")]

    async def known_workers(self) -> list[str]:
        return [name for (name,) in await self.store.fetch("leases.known_workers")]

    async def queues(self) -> list[QueueView]:
        return await self.store.read(queues)

    # -- closing ------------------------------------------------------------------------------------------------

    async def sweep(self, limit: int = 500) -> int:
        return await self.store.write(lambda rows: sweep(rows, limit))

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return [OutboxEntry(*row) for row in await self.store.fetch("history.outbox", limit)]

    async def delivered(self, ids: Sequence[str]) -> None:
        await self.store.write(lambda rows: _execute(rows, "history.delivered", [(name,) for name in ids]))

    async def close(self) -> None:
        self.store.close()


def _settle_all(
    rows: SqliteWorkspace, batch: Sequence[Transition], now: float, *, careful: bool
) -> list[Outcome]:
    rows.prefetch(batch, careful=careful)
    return [settle(transition, rows, now) for transition in batch]


def _execute(rows: SqliteWorkspace, statement: str, parameters: list[tuple[object, ...]]) -> None:
    rows.connection.executemany(SQL[statement], parameters)


def _refused(error: Exception) -> Refused:
    if isinstance(error, DalSegnoError):
        return Refused(str(error))
    return Refused(f"internal error while applying the step: {type(error).__name__}: {error}")
