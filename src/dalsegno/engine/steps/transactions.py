"""``ctx.transaction()``: writes of a task in the same transaction as its step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, NoReturn

from dalsegno.errors import OperatorError, UsageError
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.ports.transactions import StepTransaction, TransactionLost, Transactions, Work

SERVICE = "transactions"

Run = tuple[str, int]
"""A token and the fence of its lease."""

NOT_HERE = (
    "ctx.transaction() needs a store on SQLite or PostgreSQL, and a task that runs in a worker with that store; "
    "this one has none to share"
)
NEEDS_WORK_FUNCTION = (
    "on SQLite a transaction is a short function that runs with the step's commit: "
    "write ctx.transaction(lambda connection: connection.execute(…))"
)
GIVES_CONNECTION = (
    "on PostgreSQL a transaction is a block in an async task: make it `async def` and write "
    "`async with ctx.transaction() as connection:`"
)


class StepTransactions:
    """The transactions of the runs in progress. ``retries``: the retry policy of each run, in case its writes fail at
    commit. A token that lost its lease may run here twice; its fence distinguishes the runs.
    """

    def __init__(self, store: Transactions | None) -> None:
        self._store = store
        self._open: dict[Run, StepTransaction] = {}
        self._work: dict[Run, list[Work]] = {}
        self.retries: dict[Run, RetryPolicy | None] = {}

    def has(self, lease: Lease) -> bool:
        if not self.retries:  # the usual case: every step of every chain asks
            return False
        run = lease.token, lease.fence
        return run in self._open or run in self._work

    def add(self, lease: Lease, work: Work, retry: RetryPolicy | None) -> None:
        """Add writes, from the thread of the task."""
        if self._store is None or not self._store.takes_work:
            raise self.wrong_form()
        run = lease.token, lease.fence
        self.retries[run] = retry
        self._work.setdefault(run, []).append(work)

    def wrong_form(self) -> UsageError:
        """Return the error for a task that uses the other form of transaction than its store."""
        if self._store is None:
            return UsageError(NOT_HERE)
        return UsageError(NEEDS_WORK_FUNCTION if self._store.takes_work else GIVES_CONNECTION)

    @asynccontextmanager
    async def connection(self, lease: Lease, retry: RetryPolicy | None) -> AsyncIterator[Any]:
        """Enter a transaction. If it is left without an error, it stays open until the step's commit ends it."""
        if self._store is None or self._store.takes_work:
            raise self.wrong_form()
        run = lease.token, lease.fence
        opened = self._open.pop(run, None) or await self._opened(self._store)
        try:
            yield opened.connection
        except BaseException as error:
            lost = opened.is_lost() and isinstance(error, Exception)
            fault = await opened.own_fault() if lost else None
            await opened.rollback()
            if fault is not None:
                raise fault from error
            if lost:
                raise TransactionLost(
                    f"the connection to the store was lost during a task's transaction ({error})"
                ) from error
            raise
        self.retries[run] = retry
        self._open[run] = opened

    async def _opened(self, store: Transactions) -> StepTransaction:
        try:
            return await store.open()
        except OperatorError as error:
            raise TransactionLost(str(error)) from error

    async def of_step(self, lease: Lease) -> StepTransaction | None:
        """Return the transaction in which the step of this run must be committed."""
        run = lease.token, lease.fence
        if run in self._work and self._store is not None:
            self._open[run] = await self._store.open(self._work.pop(run))
        return self._open.get(run)

    def ended(self, lease: Lease) -> RetryPolicy | None:
        """Forget a transaction that was committed, or whose commit failed. Return the run's retry policy."""
        run = lease.token, lease.fence
        self._open.pop(run, None)
        return self.retries.pop(run, None)

    async def abandon(self, lease: Lease) -> None:
        """Roll back the transaction of a run that failed, or whose step cannot be applied."""
        run = lease.token, lease.fence
        self._work.pop(run, None)
        self.retries.pop(run, None)
        opened = self._open.pop(run, None)
        if opened is not None:
            await opened.rollback()


NO_TRANSACTIONS = StepTransactions(None)
"""The transactions of an engine that runs nothing."""


class Block(AbstractAsyncContextManager[Any]):
    """The context manager of ``async with ctx.transaction()``. A plain ``with`` raises an error with the right
    form.
    """

    def __init__(self, transactions: StepTransactions, lease: Lease, retry: RetryPolicy | None) -> None:
        self._transactions = transactions
        self._inside = transactions.connection(lease, retry)

    async def __aenter__(self) -> Any:
        return await self._inside.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, traceback)

    def __enter__(self) -> NoReturn:
        raise self._transactions.wrong_form()

    def __exit__(self, *_: object) -> None:
        """Never reached, but Python requires it before it calls ``__enter__``."""
