"""Transactions that a step shares with the work of its task: both are stored, or neither is.

* **T1 together**: what the work wrote is there exactly if the transition was applied. A step that is refused (its lease
  is lost, its execution has ended) leaves nothing of it behind.
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
"""Statements on the store's own connection, which it is given."""


@dataclass(frozen=True, slots=True)
class CallerConnection:
    """The driver's own connection of a caller, in whose transaction an execution is started."""

    driver: Any
    loop: AbstractEventLoop | None = None
    """On which its statements must be awaited; None for one that needs no loop, or knows its own."""
    begins_late: bool = False
    """The caller has begun a transaction of which the driver learns with the first statement that writes."""


class WorkFailed(Exception):
    """The task's own statements failed while the step was committed; nothing of either is stored."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


class TransactionLost(Unavailable):
    """The store went away under the task's own statements: nothing of them is stored, and nothing is wrong with the
    task. Its token is handed back."""


class StepTransaction(Protocol):
    connection: Any
    """The driver's own; None where work is handed over instead."""

    async def commit(self, transition: Transition) -> Outcome:
        """Applies the transition and ends the transaction, if the outcome is ``Applied``. After any other outcome it is
        open still, as if this had not been tried. Raises WorkFailed."""

    def is_lost(self) -> bool:
        """Whether the store has gone away under it."""

    async def own_fault(self) -> Exception | None:
        """Of one that is lost: the task's failure, if it is the task's own doing. Nothing of it is stored."""

    async def rollback(self) -> None: ...


class Transactions(Protocol):
    takes_work: bool
    """Whether work is handed over to run in the commit. Else the step gets a connection to work with."""

    async def open(self, work: Sequence[Work] = ()) -> StepTransaction: ...

    async def start(self, connection: CallerConnection, transition: Transition) -> Outcome:
        """Applies the start of an execution in a transaction that the caller has begun on a connection of its own, and
        ends or undoes as it likes."""
