"""Work of tasks in the writer's own transaction, under a savepoint."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.migration import own_tables
from dalsegno.adapters.sqlite.store import SqliteStore
from dalsegno.core.settlement import settle
from dalsegno.errors import UsageError
from dalsegno.model.transition import Applied, Outcome, Transition
from dalsegno.ports.transactions import CallerConnection, Work, WorkFailed

WRITING = frozenset(
    (
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_ALTER_TABLE,
    )
)
TRANSACTIONS = frozenset((sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT))


class SqliteTransactions:
    takes_work = True

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def open(self, work: Sequence[Work] = ()) -> SqliteStepTransaction:
        return SqliteStepTransaction(self._store, work)

    async def start(self, connection: CallerConnection, transition: Transition) -> Outcome:
        driver = connection.driver
        if not isinstance(driver, sqlite3.Connection):
            raise UsageError(
                "a start in your own transaction takes a sqlite3.Connection to the file of the store, or one of "
                f"SQLAlchemy (sqlite+pysqlite) or Django, not {type(driver).__module__}.{type(driver).__qualname__}"
            )
        try:
            if connection.begins_late and not driver.in_transaction:
                driver.execute("BEGIN IMMEDIATE")
            return self._start(driver, transition)
        except sqlite3.ProgrammingError as error:
            raise UsageError(
                f"the connection cannot be used here ({error}); open it with check_same_thread=False"
            ) from None

    def _start(self, connection: sqlite3.Connection, transition: Transition) -> Outcome:
        if not connection.in_transaction:
            raise UsageError(
                "begin a transaction on the connection first: connection.execute('BEGIN IMMEDIATE')"
            )
        factories = connection.row_factory, connection.text_factory
        connection.row_factory, connection.text_factory = None, str
        try:
            self._expect_own_file(connection)
            rows = SqliteWorkspace(connection)
            rows.begin()
            rows.prefetch([transition], careful=True)
            outcome = settle(transition, rows, self._store.clock.now())
            rows.flush()
            return outcome
        finally:
            connection.row_factory, connection.text_factory = factories

    def _expect_own_file(self, connection: sqlite3.Connection) -> None:
        """Refuse a connection to another file: the engine would not find the execution there."""
        self._store.file.expect()
        files = {name: file for _, name, file in connection.execute("PRAGMA database_list")}
        file = Path(files["main"] or "")
        if not files["main"] or not file.exists() or not file.samefile(self._store.path):
            where = f"to {file}" if files["main"] else "to a database in memory"
            raise UsageError(
                f"the connection is {where}, and the store is {self._store.path}: an execution and your own rows are "
                "one transaction only in one file. Connect to that of the store, or start without `connection`"
            )


class SqliteStepTransaction:
    connection = None

    def __init__(self, store: SqliteStore, work: Sequence[Work]) -> None:
        self._store = store
        self._work = work

    async def commit(self, transition: Transition) -> Outcome:
        now = self._store.clock.now()
        outcome = await self._store.write(lambda rows: _apply(rows, self._work, transition, now))
        if isinstance(outcome, WorkFailed):
            raise outcome
        return outcome

    def is_lost(self) -> bool:
        return False

    async def own_fault(self) -> None:
        """Return None: the transaction is never lost."""

    async def rollback(self) -> None:
        """Do nothing: nothing has been written yet."""


def _apply(
    rows: SqliteWorkspace, work: Sequence[Work], transition: Transition, now: float
) -> Outcome | WorkFailed:
    """Run the work and apply the transition.

    A failure of the work is an answer, not an error: other jobs share the writer's transaction.
    """
    rows.prefetch([transition], careful=True)
    connection = rows.connection
    connection.execute("SAVEPOINT step")
    try:
        failure = _do(connection, work)
        outcome = failure or settle(transition, rows, now)
        if not isinstance(outcome, Applied):
            connection.execute("ROLLBACK TO step")
        return outcome
    finally:
        connection.execute("RELEASE step")


def _do(connection: sqlite3.Connection, work: Sequence[Work]) -> WorkFailed | None:
    connection.set_authorizer(_guard(own_tables()))
    try:
        for each in work:
            each(connection)
    except Exception as error:  # noqa: BLE001 - whatever the user's own function raises is the task's failure
        return WorkFailed(error)
    finally:
        connection.set_authorizer(None)
    return None


def _guard(own: frozenset[str]) -> Callable[..., int]:
    """Return an authorizer for the work: it may neither end the transaction nor write the tables of the store."""

    def authorize(action: int, first: str | None, *_: object) -> int:
        refused = action in TRANSACTIONS or (action in WRITING and first in own)
        return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK

    return authorize
