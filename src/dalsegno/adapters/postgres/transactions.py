"""Transactions that contain a transition together with a task's work, or a caller's start."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec

from dalsegno.adapters.neighbours import Message
from dalsegno.adapters.postgres.caller_connections import (
    Pauses,
    SameDatabase,
    aborted,
    at_commit,
    check_form,
    ended,
    fails_the_task,
    idle_too_long,
    usable_here,
)
from dalsegno.adapters.postgres.commit.changes import StartedByOthers, TokenChanged
from dalsegno.adapters.postgres.commit.commits import MOST_TRIES, Commits
from dalsegno.adapters.postgres.commit.load import LoadedRows, lock
from dalsegno.adapters.postgres.commit.read_set import wanted_by
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.connections import SESSION, connect, name_of, naming
from dalsegno.adapters.postgres.errors import UNREACHABLE, driver_errors
from dalsegno.adapters.postgres.messaging.listener import CHANNEL
from dalsegno.adapters.postgres.store import Connection, PostgresStore, Transaction
from dalsegno.core.settlement import settle
from dalsegno.errors import Unavailable
from dalsegno.model.transition import Applied, Outcome, Transition
from dalsegno.ports.node import NodeError
from dalsegno.ports.transactions import CallerConnection, Work, WorkFailed

MOST_OPEN = 8
"""Connections for tasks that work in transactions; further tasks wait for one of them."""
LONGEST_PAUSE = 60.0
"""Seconds without a statement, after which the server ends the transaction: its rows must not stay locked for ever."""
BEGAN = "SELECT extract(epoch FROM now())::text"
"""When the transaction began, which distinguishes it from others on the same connection. As text: for other types
the task may have a codec of its own.
"""
BEGIN = BEGAN + ", set_config('idle_in_transaction_session_timeout', $1, true)"
CONFLICTS = (TokenChanged, StartedByOthers, asyncpg.UniqueViolationError)
"""Another process committed between reading and writing: another step of the execution, or the same start."""


class PostgresTransactions:
    takes_work = False

    def __init__(self, store: PostgresStore, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._pool: Any = None
        self._opening = asyncio.Lock()
        self._same_database = SameDatabase(store)

    async def open(self, work: Sequence[Work] = ()) -> PostgresStepTransaction:
        with driver_errors():
            pool = await self._own_pool()
            connection = await pool.acquire()
            try:
                transaction = connection.transaction()
                await transaction.start()
                began = await connection.fetchval(BEGIN, f"{round(LONGEST_PAUSE * 1000)}ms")
            except BaseException:
                await pool.release(connection)
                raise
        return PostgresStepTransaction(self._commits, pool, connection, transaction, began)

    async def start(self, connection: CallerConnection, transition: Transition) -> Outcome:
        check_form(connection.driver)
        usable = await usable_here(connection)
        with driver_errors():
            await self._same_database.expect(connection.driver, usable)
            async with _our_session(usable):
                tx = Transaction(usable)
                outcome = await settle_within(self._commits, tx, transition, of_caller=True)
            if isinstance(outcome, Applied):
                # Sent when the caller commits: only then is there something to find.
                await usable.execute("SELECT pg_notify($1, $2)", CHANNEL, _news(outcome.next_due))
        return outcome

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _own_pool(self) -> Any:
        """Return the tasks' pool, separate from the engine's, which tasks must not exhaust.

        Created when the first task needs it.
        """
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._store.url,
                    min_size=0,
                    max_size=MOST_OPEN,
                    connect=connect,
                    server_settings=naming(name_of(self._store.url, "task")),
                    **self._store.mode.caching(),
                )
                self._store.renewal.add(self._pool)
        return self._pool


class PostgresStepTransaction:
    """The connection is the task's while it runs, with the settings of a plain connection."""

    def __init__(
        self, commits: Commits, pool: Any, connection: Connection, transaction: Any, began: str
    ) -> None:
        self.connection = connection
        self._transaction = transaction
        self._began = began
        self._commits = commits
        self._pool = pool
        self._pauses = Pauses()
        connection.add_query_logger(self._pauses.note)

    async def commit(self, transition: Transition) -> Outcome:
        with driver_errors():
            fault = await self._fault()
            if fault is not None:
                await self.rollback()
                raise WorkFailed(fault)
            async with _our_session(self.connection):
                outcome = await settle_within(self._commits, Transaction(self.connection), transition)
            if isinstance(outcome, Applied):
                await self._end()
                self._commits.suspects.settled([transition], [outcome])
            return outcome

    async def _end(self) -> None:
        try:
            await self._transaction.commit()
        except asyncpg.PostgresError as error:
            if fails_the_task(error):
                raise WorkFailed(at_commit(error)) from error
            raise
        finally:
            await self._give_back()

    def is_lost(self) -> bool:
        try:
            return self.connection is None or bool(self.connection.is_closed())
        except asyncpg.InterfaceError:  # the pool has discarded it already
            return True

    async def own_fault(self) -> NodeError | None:
        await asyncio.sleep(0)  # asyncpg reports a statement a moment after it
        return idle_too_long(LONGEST_PAUSE) if self._pauses.reached(LONGEST_PAUSE) else None

    async def _fault(self) -> NodeError | None:
        """Return the task's failure if it broke the transaction. A connection lost for another reason is none."""
        try:
            if not self.connection.is_in_transaction():
                return await self.own_fault() if self.is_lost() else ended()
            return None if await self.connection.fetchval(BEGAN) == self._began else ended()
        except asyncpg.InFailedSQLTransactionError:
            return aborted()
        except (asyncpg.IdleInTransactionSessionTimeoutError, *UNREACHABLE):
            fault = await self.own_fault()
            if fault is None:
                raise
            return fault

    async def rollback(self) -> None:
        if self.connection is None:
            return
        try:
            # A connection that died has left the pool by itself, and then raises only that.
            with contextlib.suppress(asyncpg.InterfaceError):
                if not self.connection.is_closed():
                    await self._transaction.rollback()
        finally:
            await self._give_back()

    async def _give_back(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        with contextlib.suppress(asyncpg.InterfaceError):  # one that died has left the pool
            connection.remove_query_logger(self._pauses.note)
        await self._pool.release(connection)


async def settle_within(
    commits: Commits, tx: Transaction, transition: Transition, *, of_caller: bool = False
) -> Outcome:
    """Settle in a transaction of the task or caller.

    It waits for the execution's row, and a refused try leaves no trace and no locks. ``of_caller``: it is unknown
    when the transaction ends.
    """
    await commits.store.reserve_numbers(1)
    for _ in range(MOST_TRIES):
        await tx.connection.execute("SAVEPOINT dalsegno")
        try:
            if of_caller:
                await tx.fetch("write.open_start", transition.execution)
            outcome = await _settle(commits, tx, transition, of_caller=of_caller)
        except CONFLICTS:
            await tx.connection.execute("ROLLBACK TO dalsegno")
        except asyncpg.PostgresError:
            await tx.connection.execute("ROLLBACK TO dalsegno")
            raise
        else:
            undo = "" if isinstance(outcome, Applied) else "ROLLBACK TO dalsegno; "
            await tx.connection.execute(undo + "RELEASE dalsegno")
            return outcome
    raise Unavailable("other processes keep changing the same tokens; the step is tried again")


async def _settle(commits: Commits, tx: Transaction, transition: Transition, *, of_caller: bool) -> Outcome:
    await tx.fetch("load.wait", [transition.execution])
    loaded = LoadedRows()
    now = commits.store.saw(await lock(commits.store, tx, wanted_by([transition], careful=True), loaded))
    if loaded.busy:
        raise TokenChanged("it is being created now")

    def job(rows: PostgresWorkspace) -> Outcome:
        outcome = settle(transition, rows, now)
        return _park_limited(outcome, rows, now) if of_caller and isinstance(outcome, Applied) else outcome

    outcome, _ = await commits.settle(tx, loaded, job)
    return outcome


def _park_limited(outcome: Applied, rows: PostgresWorkspace, now: float) -> Applied:
    """Park new tokens with a limit key, due at once, instead of putting them in line.

    Lines are changed under the locks of their keys, which commits and claims of all processes need: a transaction
    of unknown length must not hold them. After the caller's commit a wake finds the tokens and puts them in line.
    """
    parked = set()
    for row, _ in rows.changes.spawned.values():
        if row.limit_key is not None and row.state == "ready":
            row.state, row.due = "parked", now
            parked.add(row.id)
    if not parked:
        return outcome
    ready = tuple(each for each in outcome.ready if each.token not in parked)
    due = now if outcome.next_due is None else min(now, outcome.next_due)
    return msgspec.structs.replace(outcome, ready=ready, next_due=due)


def _news(due: float | None) -> str:
    """Return the message, its time in whole seconds, rounded down.

    PostgreSQL sends equal messages of a transaction once, however many starts it has. A process that looks too
    early finds out when it is time.
    """
    at = math.floor(due) if due is not None else None
    return msgspec.json.encode(Message("", news=True, due=at)).decode()


@asynccontextmanager
async def _our_session(connection: Connection) -> AsyncIterator[None]:
    """Apply the settings that our statements need, and restore the caller's own after that."""
    names = list(SESSION)
    [before] = await connection.fetch(f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}")
    restored = dict(zip(names, before, strict=True))
    await _set(connection, SESSION)
    try:
        yield
    except BaseException:
        with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await _set(connection, restored)  # the original error is reported all the same
        raise
    await _set(connection, restored)


async def _set(connection: Connection, settings: dict[str, str]) -> None:
    calls = ", ".join(f"set_config('{name}', ${place}, true)" for place, name in enumerate(settings, 1))
    await connection.fetch(f"SELECT {calls}", *settings.values())
