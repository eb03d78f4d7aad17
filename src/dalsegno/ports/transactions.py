"""The port of transactions that a step shares with the work of its task: both are stored, or neither is.

* **T1 together**: the rows that the work wrote exist exactly if the transition was applied. A step that is refused
  (its lease is lost, its execution has ended) leaves none of them behind.
* **T2 once**: a crash at any moment means that both happen later, or that both have happened.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dalsegno.errors import Unavailable
from dalsegno.model.transition import Outcome, Transition

Work = Callable[[Any], object]
"""Statements on the store's own connection, which is the argument."""


@dataclass(frozen=True, slots=True)
class CallerConnection:
    """A caller's own driver connection, in whose transaction an execution is started."""

    driver: Any
    loop: AbstractEventLoop | None = None
    """The event loop on which its statements must be awaited; None if it needs none, or knows its own."""
    begins_late: bool = False
    """The caller has begun a transaction that the driver opens only with the first statement that writes."""


class WorkFailed(Exception):
    """The task's own statements failed while the step was committed; nothing of either is stored."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TransactionLost(Unavailable):
    """The store was lost during the task's own statements.

    Nothing of them is stored, and the task is not at fault. Its token is handed back.
    """


class StepTransaction(Protocol):
    connection: Any
    """The driver's connection; None if work is handed over instead."""

    async def commit(self, transition: Transition) -> Outcome:
        """Apply the transition and end the transaction, if the outcome is ``Applied``.

        After any other outcome the transaction is still open, as if the commit had not been tried. Raises
        WorkFailed.
        """

    def is_lost(self) -> bool:
        """Return True if the store was lost during the transaction."""

    async def own_fault(self) -> Exception | None:
        """Return, for a lost transaction, the task's failure if the task itself caused the loss.

        Nothing of it is stored.
        """

    async def rollback(self) -> None: ...


class Transactions(Protocol):
    takes_work: bool
    """Work is handed over to run in the commit. Otherwise the step gets a connection to work with."""

    async def open(self, work: Sequence[Work] = ()) -> StepTransaction: ...

    async def start(self, connection: CallerConnection, transition: Transition) -> Outcome:
        """Apply the start of an execution in a transaction that the caller has begun on its own connection.

        The caller commits it or rolls it back.
        """
