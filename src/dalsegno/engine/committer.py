"""Group commit: a batch is what gathered while the previous one was in flight. Nothing lingers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from dalsegno.engine.observing import Observer
from dalsegno.errors import OperatorError, Unavailable
from dalsegno.model.transition import Applied, Deferred, Outcome, ReadyToken, Stale, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.transactions import StepTransaction

logger = logging.getLogger("dalsegno.committer")

MAX_BATCH = 500
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

OnApplied = Callable[[Transition, Applied], None]


class Committer:
    """The only way from steps to the ledger in one process."""

    def __init__(self, ledger: Ledger, broker: Broker, on_applied: OnApplied) -> None:
        self.ledger = ledger
        self.broker = broker
        self._on_applied = on_applied
        self._waiting: list[tuple[Transition, asyncio.Future[Outcome], bool]] = []
        self._flight: asyncio.Task[None] | None = None
        self.commits = 0
        self.transitions = 0
        self.observer: Observer | None = None

    def commit(self, transition: Transition, *, patient: bool = True) -> asyncio.Future[Outcome]:
        """The ledger's answer. While the store is out of order a patient commit is tried again and again; an
        impatient one raises."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((transition, future, patient))
        if self._flight is None:
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return future

    async def commit_within(self, transaction: StepTransaction, transition: Transition) -> Outcome:
        """One transition in a transaction of its own, beside the batches."""
        outcome = await transaction.commit(transition)
        if isinstance(outcome, Applied):
            self._on_applied(transition, outcome)
        if isinstance(outcome, Applied | Stale) and outcome.ready:
            await self._announce(outcome.ready)
        return outcome

    async def drain(self) -> None:
        """Until everything handed over so far is committed."""
        if self._flight is not None:
            await asyncio.shield(self._flight)

    async def _fly(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
                await self._send(batch)
        finally:
            self._flight = None

    async def _send(self, batch: list[tuple[Transition, asyncio.Future[Outcome], bool]]) -> None:
        pause = FIRST_PAUSE
        while batch:
            try:
                began = perf_counter()
                outcomes = await self.ledger.commit([transition for transition, _, _ in batch])
            except OperatorError as error:
                batch = _give_up_impatient(batch, error)
                if batch:
                    logger.warning("the store refused a batch of %d (%s); trying again", len(batch), error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                continue
            except BaseException as error:
                _fail_all(batch, error)
                raise
            if self.observer is not None:
                self.observer.committed(len(batch), perf_counter() - began)
            batch = await self._settle(batch, outcomes)

    async def _settle(
        self, batch: list[tuple[Transition, asyncio.Future[Outcome], bool]], outcomes: Sequence[Outcome]
    ) -> list[tuple[Transition, asyncio.Future[Outcome], bool]]:
        """Answers everyone; returns what another process's lock put off to the next batch."""
        ready: list[ReadyToken] = []
        deferred = []
        self.commits += 1
        self.transitions += len(batch)
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Deferred):
                deferred.append(entry)
                continue
            if isinstance(outcome, Applied):
                if outcome.ready:
                    ready.extend(outcome.ready)
                self._on_applied(entry[0], outcome)
            elif isinstance(outcome, Stale):
                ready.extend(outcome.ready)
            if not entry[1].done():
                entry[1].set_result(outcome)
        if ready:
            await self._announce(ready)
        return deferred

    async def _announce(self, ready: Sequence[ReadyToken]) -> None:
        """Only a hint (B2): what could not be announced is committed all the same, and found again later."""
        try:
            await self.broker.announce(ready)
        except OperatorError as error:
            logger.warning("%d ready tokens were not announced (%s)", len(ready), error)


def _give_up_impatient(
    batch: list[tuple[Transition, asyncio.Future[Outcome], bool]], error: OperatorError
) -> list[tuple[Transition, asyncio.Future[Outcome], bool]]:
    patient = []
    for entry in batch:
        if entry[2] and not entry[1].cancelled():
            patient.append(entry)
        elif not entry[1].done():
            entry[1].set_exception(error)
    return patient


def _fail_all(batch: list[tuple[Transition, asyncio.Future[Outcome], bool]], error: BaseException) -> None:
    for _, future, _ in batch:
        if not future.done():
            if isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.set_exception(Unavailable("the engine is shutting down"))
