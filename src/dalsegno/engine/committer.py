"""Group commit: a batch is what gathered while the previous one was in flight. Nothing lingers.

Where the store takes several commits at once and there is enough for them, as many are in flight, of different
executions: while it works on one batch, this process runs the steps of the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from dalsegno.engine.gathering import SMALL_BATCH, Entry, Gathering, Then, weight_of_all
from dalsegno.engine.observing import Observer
from dalsegno.engine.outage import Outage, Pause
from dalsegno.errors import OperatorError, StoreLost, Unavailable
from dalsegno.model.transition import Applied, Deferred, Outcome, ReadyToken, Stale, Transition, Unconfirmed
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.transactions import StepTransaction

logger = logging.getLogger("dalsegno.committer")

MAX_BATCH = 500
FLIGHT = 0.04
"""Seconds that a batch should take: whoever hands something over waits for one or two of them."""
OVERDUE = 0.05
"""Seconds after which whoever waits for a batch that is under way goes in another one, however few they are."""
RECENT = 0.2
"""Weight of the last batch in how long a transition takes."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

OnApplied = Callable[[Transition, Applied], None]


class Committer:
    """The only way from steps to the ledger in one process."""

    def __init__(self, ledger: Ledger, broker: Broker, on_applied: OnApplied, at_once: int = 1) -> None:
        self.ledger = ledger
        self.broker = broker
        self._on_applied = on_applied
        self._at_once = at_once
        self._gathering = Gathering(MAX_BATCH, at_once)
        self._flights: set[asyncio.Task[None]] = set()
        self._overdue: asyncio.TimerHandle | None = None
        self._each = FLIGHT / MAX_BATCH
        """Seconds that a transition of weight 1 takes in a batch."""
        self.commits = 0
        self.transitions = 0
        self.observer: Observer | None = None
        self.outage = Outage()

    def commit(
        self, transition: Transition, *, patient: bool = True, then: Then | None = None, workflow: str = ""
    ) -> asyncio.Future[Outcome]:
        """The ledger's answer. While the store is out of order a patient commit is tried again and again; an
        impatient one raises, and so does each whose store is lost. Who does not wait for it any more (its future is
        cancelled) does not call it off, so what has to follow is done by ``then``. Where many wait, workflows take
        turns."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        may_go = self._gathering.add((transition, future, patient, then, workflow))
        if may_go and len(self._flights) < self._at_once:
            self._flights.add(loop.create_task(self._fly()))
        else:
            self._look_again()
        return future

    def _look_again(self) -> None:
        if self._overdue is None and self._at_once > 1:
            self._overdue = asyncio.get_running_loop().call_later(OVERDUE, self._go_beside)

    def _go_beside(self) -> None:
        """The batches under way take long: what has gathered does not wait for them."""
        self._overdue = None
        if 0 < len(self._flights) <= self._at_once and (batch := self._gathering.take(however_small=True)):
            self._flights.add(asyncio.get_running_loop().create_task(self._fly(batch)))
        if self._flights and self._gathering.is_waiting:
            self._look_again()

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
        while self._flights:
            await asyncio.shield(asyncio.gather(*self._flights))

    async def _fly(self, batch: list[Entry] | None = None) -> None:
        """Until nothing is left that may go. What waits for another flight is taken by that one."""
        flight = asyncio.current_task()
        try:
            while batch := batch or self._gathering.take():
                try:
                    ready = await self._send(batch)
                finally:
                    self._gathering.landed(batch)
                batch = None
                if ready:
                    await self._announce(ready)
        finally:
            self._flights -= {flight}
            if self._flights and self._gathering.is_waiting:
                self._look_again()

    async def _send(self, batch: list[Entry]) -> list[ReadyToken]:
        """Until the store has answered; returns what became ready."""
        this_batch = object()
        pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while batch:
                try:
                    began = perf_counter()
                    outcomes = await self.ledger.commit([entry[0] for entry in batch])
                except OperatorError as error:
                    batch = _give_up_impatient(batch, error)
                    if batch:
                        self.outage.failed(this_batch, f"a batch of {len(batch)} waits for the store", error)
                        await asyncio.sleep(pause.next())
                    continue
                except BaseException as error:
                    _fail_all(batch, error)
                    raise
                self.outage.answered(this_batch)
                self._measure(batch, perf_counter() - began)
                return self._settle(batch, outcomes)
            return []
        finally:
            self.outage.gave_up(this_batch)

    def _measure(self, batch: list[Entry], seconds: float) -> None:
        """On a busy machine transitions take longer, and batches become smaller."""
        self._each += RECENT * (seconds / weight_of_all(batch) - self._each)
        self._gathering.largest = min(max(int(FLIGHT / self._each), SMALL_BATCH), MAX_BATCH)
        if self.observer is not None:
            self.observer.committed(len(batch), seconds)

    def _settle(self, batch: list[Entry], outcomes: Sequence[Outcome]) -> list[ReadyToken]:
        """Answers everyone; what another process's lock put off, or the store, goes with the next batch."""
        ready: list[ReadyToken] = []
        deferred = []
        self.commits += 1
        self.transitions += len(batch)
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Deferred):
                deferred.append(entry)
                continue
            if isinstance(outcome, Unconfirmed):
                logger.warning(
                    "one of a batch of %d was not confirmed by the store: %s", len(batch), outcome.error
                )
                deferred += _give_up_impatient([entry], outcome.error)
                continue
            if isinstance(outcome, Applied):
                if outcome.ready:
                    ready.extend(outcome.ready)
                self._on_applied(entry[0], outcome)
            elif isinstance(outcome, Stale):
                ready.extend(outcome.ready)
            if entry[3] is not None:
                entry[3](outcome)
            if not entry[1].done():
                entry[1].set_result(outcome)
        self._gathering.put_back(deferred)
        return ready

    async def _announce(self, ready: Sequence[ReadyToken]) -> None:
        """Only a hint (B2): what could not be announced is committed all the same, and found again later."""
        try:
            await self.broker.announce(ready)
        except OperatorError as error:
            logger.warning("%d ready tokens were not announced (%s)", len(ready), error)


def _give_up_impatient(batch: list[Entry], error: OperatorError) -> list[Entry]:
    patient = []
    for entry in batch:
        if entry[2] and not entry[1].cancelled() and not isinstance(error, StoreLost):
            patient.append(entry)
        else:
            _fail(entry, error)
    return patient


def _fail_all(batch: list[Entry], error: BaseException) -> None:
    told = error if isinstance(error, Exception) else Unavailable("the engine is shutting down")
    for entry in batch:
        _fail(entry, told)


def _fail(entry: Entry, error: Exception) -> None:
    _, future, _, then, _ = entry
    if then is not None:
        then(None)
    if not future.done():
        future.set_exception(error)
