"""SqliteLedger: the ledger's contract on one SQLite file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence

from dalsegno.adapters.excluding_claims import ExcludingClaims
from dalsegno.adapters.sqlite import leases, looks
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.adapters.sqlite.sweep import sweep
from dalsegno.adapters.sqlite.workspace import SqliteWorkspace
from dalsegno.core.settlement import settle
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.machine import MachineView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.ledger import (
    SLOTS_PAGE,
    Inspection,
    OutboxEntry,
    QueueView,
    Untouched,
    Woken,
    WorkerView,
)

STALE_STARTS = 10_000
"""Removed at once, at most."""


class SqliteLedger:
    """Changes are jobs of the store's writer, looks are jobs of its reader."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.now: Callable[[], float] = store.clock.now
        self._excluding_claims = ExcludingClaims(self._look_at_others, self.lease, self.now)

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
        """Halves a batch that cannot be stored until the offender stands alone; all others are applied."""
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
        claimed = await self.store.write(lambda rows: leases.claim(rows, worker, queues, limit, self.now()))
        if claimed.opens_at is not None:
            self.store.tell_opening(claimed.opens_at)
        return claimed.leases

    async def any_ready(self, queues: Collection[str]) -> bool:
        """Whether a claim may find something: a look that keeps no process from committing."""
        return await self.store.read(lambda connection: looks.any_ready(connection, queues))

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
    ) -> tuple[list[looks.Row], list[looks.Row]]:
        return await self.store.read(
            lambda connection: looks.of_others(connection, queues, pass_over, only_long, limit, since)
        )

    async def lease(self, worker: str, tokens: Sequence[ReadyToken]) -> list[Lease]:
        return await self.store.write(lambda rows: leases.lease_named(rows, worker, tokens, self.now()))

    async def obsolete(self, leases_: Sequence[Lease]) -> list[Lease]:
        return await self.store.read(lambda connection: looks.obsolete(connection, leases_))

    async def release(self, worker: str, leases_: Sequence[Lease]) -> None:
        await self.store.write(lambda rows: leases.release(rows, leases_, self.now()))

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        """Waits for the writer's thread only, so it works while the event loop is blocked."""
        beat = (worker, self.now() + lease_seconds, info)
        self.store.write_blocking(lambda rows: _execute(rows, "worker.beat", [beat]))

    async def expire(self, dead: Sequence[str] = ()) -> tuple[ReadyToken, ...]:
        now = self.now()
        await self._forget_stale_starts(now)
        gone = await self.store.read(lambda connection: looks.gone_workers(connection, now, dead))
        if not gone:
            return ()
        # The one scan of all tokens happens beside the writer; what it found is judged again under the lock.
        leased = await self.store.read(lambda connection: looks.leased_by(connection, gone))
        return await self.store.write(lambda rows: leases.take_back(rows, gone, leased, now))

    async def _forget_stale_starts(self, now: float) -> None:
        """Of keys with a rate that are used no more."""
        if await self._all("limits.any_stale_start", now):
            chunk = (now, STALE_STARTS)
            await self.store.write(lambda rows: _execute(rows, "limits.forget_stale_starts", [chunk]))

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        return await self.store.write(lambda rows: leases.wake(rows, self.now(), limit))

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        rows = await self._all("join.slots_of", execution, barrier, after, limit)
        return [SlotView(slot, bool(live), data) for slot, live, data in rows]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        return [LeftView(key, data) for key, data in await self._all("join.left_of", execution, scope)]

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        rows = await self._all("join.gate_of", execution, gate)
        return tuple(json.loads(rows[0][0])) if rows else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        return await self.store.read(lambda connection: looks.outputs(connection, execution, ids))

    async def machine(self, execution: str) -> MachineView | None:
        return await self.store.read(lambda connection: looks.machine(connection, execution))

    async def inspect(self, execution: str) -> Inspection | None:
        return await self.store.read(lambda connection: looks.inspect(connection, execution, self.now()))

    async def untouched(self, before: float, after: str, limit: int) -> Untouched:
        rows = await self._all("execution.untouched", after, limit, before, limit)
        names = tuple(name for name, is_untouched in rows if is_untouched)
        return Untouched(names, "".join(name for name, is_untouched in rows if not is_untouched))

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        return tuple(ReadyToken(*row) for row in await self._all("token.ready_of", execution))

    async def workers(self) -> list[WorkerView]:
        return [WorkerView(*row) for row in await self._all("worker.list")]

    async def known_workers(self) -> list[str]:
        return [name for (name,) in await self._all("worker.names")]

    async def queues(self) -> list[QueueView]:
        return await self.store.read(looks.queues)

    # -- leaving ----------------------------------------------------------------------------------------------

    async def sweep(self, limit: int = 500) -> int:
        return await self.store.write(lambda rows: sweep(rows, self.now(), limit))

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return [OutboxEntry(*row) for row in await self._all("history.outbox", limit)]

    async def delivered(self, ids: Sequence[str]) -> None:
        await self.store.write(lambda rows: _execute(rows, "history.delivered", [(name,) for name in ids]))

    async def close(self) -> None:
        self.store.close()

    async def _all(self, statement: str, *parameters: object) -> list[looks.Row]:
        return await self.store.read(
            lambda connection: connection.execute(SQL[statement], parameters).fetchall()
        )


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
