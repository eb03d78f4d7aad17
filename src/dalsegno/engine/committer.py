"""Group commit: each batch holds the transitions that arrived while the previous batch was in flight. There is no
linger time.

- If the store accepts several commits at once and there is enough work, that many batches are in flight. While the
  store works on one batch, this process runs the steps of the other.
- No two batches in flight touch the same execution. Transitions of one execution are committed in the order of their
  submission, and no batch waits for the locks of another.
- An outage of the store is logged once per process, however many loops wait for the store: when it begins, at
  intervals while it lasts, and when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from time import perf_counter

from dalsegno.engine.batches import SMALL_BATCH, Batch, Entry, Gathering, Then, bytes_of, weight_of
from dalsegno.engine.tracing import Observer
from dalsegno.errors import DalSegnoError, OperatorError, StoreLost, Unavailable
from dalsegno.model.transition import Applied, Deferred, Outcome, ReadyToken, Stale, Transition, Unconfirmed
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.transactions import StepTransaction

outage_logger = logging.getLogger("dalsegno.outage")

REMIND_AFTER = 60.0
"""Seconds between two warnings about the same outage."""
MIN_QUIET = 10.0
SHORT = 2.0
"""Seconds after which an outage is logged that begins less than ``MIN_QUIET`` seconds after the previous one. This
keeps a single part that fails again and again, while everything else works, from filling the log.
"""


class Outage:
    """The outage of a store, as seen by everything in the process that waits for it.

    Each waiter reports every failed attempt, and its first success. The outage ends when no waiter is left, and not
    before: a store whose disk is full answers queries and accepts no commits.

    The heartbeat reports from its own thread. State changes and log lines are therefore made under a lock; otherwise
    the end of an outage could be logged before its beginning.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: set[object] = set()
        self._since = 0.0
        self._ended_at = float("-inf")
        self._logged_at = float("-inf")
        self._logged_kinds: set[type[DalSegnoError]] = set()
        """Kinds of errors logged in this outage. Empty as long as the outage has not been logged."""

    @property
    def is_known(self) -> bool:
        """Whether the outage has been logged."""
        return bool(self._logged_kinds)

    def failed(self, waiter: object, what: str, error: DalSegnoError) -> None:
        """Report a failed attempt: ``waiter`` waits for the store from now on. ``what`` is a sentence with ``error``
        as its reason. A lost store is no outage: the engine logs it once and ends.
        """
        if isinstance(error, StoreLost):
            return
        with self._lock:
            now = self._clock()
            if not self._waiting:
                self._since = now
            self._waiting.add(waiter)
            self._log_failure(now, what, error)

    def answered(self, waiter: object) -> None:
        """Report a success: ``waiter`` no longer waits."""
        if waiter not in self._waiting:
            return  # the common case; only ``waiter`` itself could change this meanwhile, so no lock is needed
        with self._lock:
            self._waiting.discard(waiter)
            if not self._waiting:
                self._end()

    def gave_up(self, waiter: object) -> None:
        """Report that ``waiter`` stopped waiting without an answer. No effect if it had one."""
        with self._lock:
            self._waiting.discard(waiter)
            if not self._waiting and self.is_known:
                self._forget()

    def _log_failure(self, now: float, what: str, error: DalSegnoError) -> None:
        if not self._must_be_logged(now, error):
            outage_logger.debug("%s: %s", what, error)
            return
        duration = f" (for {now - self._since:.0f} s)" if self.is_known else ""
        self._logged_at = now
        self._logged_kinds.add(type(error))
        outage_logger.warning("%s%s: %s", what, duration, error)

    def _must_be_logged(self, now: float, error: DalSegnoError) -> bool:
        if now - self._logged_at >= REMIND_AFTER:
            return True
        if self.is_known:
            return type(error) not in self._logged_kinds
        return now - self._ended_at >= MIN_QUIET or now - self._since >= SHORT

    def _end(self) -> None:
        if self.is_known:
            outage_logger.info("the store answers again, after %.1f s", self._clock() - self._since)
        self._forget()

    def _forget(self) -> None:
        self._logged_kinds.clear()
        self._ended_at = self._clock()


class Pause:
    """Exponential backoff between attempts."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        self._next = self._first


logger = logging.getLogger("dalsegno.committer")

MAX_BATCH = 500
BATCH_SECONDS = 0.04
"""Target duration of a batch, in seconds, while several workflows commit: a transition waits for one or two
batches.
"""
LONG_BATCH_SECONDS = 0.5
"""Target duration while only one workflow commits: only that workflow waits for its batches, and on an overloaded
machine small ones would cost a third more CPU time.
"""
ALONE_AFTER = 5.0
"""Seconds without a transition of another workflow after which a workflow counts as alone."""
OVERDUE = 0.05
"""Seconds without a new batch after which waiting transitions are sent in addition to the batches in flight,
however few they are. While batches follow each other, one more would only slow them down.
"""
LONGEST_OVERDUE = 0.25
"""The same limit where even a small batch takes longer."""
RECENT = 0.2
"""Weight of the latest batch in the moving average of the time per transition."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 5.0

OnApplied = Callable[[Transition, Applied], None]


class Committer:
    """The only path from steps to the ledger in one process."""

    def __init__(self, ledger: Ledger, broker: Broker, on_applied: OnApplied, at_once: int = 1) -> None:
        self.ledger = ledger
        self.broker = broker
        self._on_applied = on_applied
        self._at_once = at_once
        self._gathering = Gathering(MAX_BATCH, at_once)
        self._senders: set[asyncio.Task[None]] = set()
        self._overtaking: asyncio.Task[None] | None = None
        """The task that sends transitions which overtake the batches in flight."""
        self._overdue: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        """Time at which the last regular batch was sent."""
        self._mixed_until = 0.0
        self._seconds_per_weight = BATCH_SECONDS / MAX_BATCH
        """Seconds that a transition of weight 1 takes in a batch."""
        self.commits = 0
        self.transitions = 0
        self.observer: Observer | None = None
        self.outage = Outage()

    def commit(
        self,
        transition: Transition,
        *,
        wait_for_store: bool = True,
        then: Then | None = None,
        workflow: str = "",
        size: int | None = None,
    ) -> asyncio.Future[Outcome]:
        """Submit a transition and return the future of its outcome. ``size``: the bytes of its effects, if known.

        - During an outage a commit is retried until the store answers, or raises if ``wait_for_store`` is False. If
          the store is lost, every commit raises.
        - Cancelling the future does not withdraw the transition. Work that must follow the commit belongs in
          ``then``.
        - If many transitions wait, workflows take turns.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()
        weight = weight_of(transition.effects, bytes_of(transition.effects) if size is None else size)
        may_go = self._gathering.add((transition, future, wait_for_store, then, workflow, weight))
        if may_go and len(self._senders) < self._at_once and len(self._senders) < self._most_senders():
            self._senders.add(loop.create_task(self._send_batches()))
        elif self._at_once > 1:
            if self._gathering.may_overtake(workflow):
                self._let_overtake()
            if self._overdue is None:
                self._schedule_overdue()
        return future

    def _most_senders(self) -> int:
        """Return how many regular batches may be in flight. While several workflows commit and even small batches
        take longer than they should, two at a time are both slower, so it is one. A large transition never delays the
        next batch.
        """
        gathering = self._gathering
        is_slow = gathering.takes_turns and gathering.largest <= SMALL_BATCH
        return 1 if is_slow and gathering.sent <= 2 * SMALL_BATCH else self._at_once

    def _let_overtake(self) -> None:
        if self._overtaking is None:
            self._overtaking = asyncio.get_running_loop().create_task(self._overtake())

    async def _overtake(self) -> None:
        """Send the transitions of workflows with little to do, without waiting for the batches of busy workflows."""
        try:
            while batch := self._gathering.take_overtaking():
                await self._send_off(batch)
        finally:
            self._overtaking = None
            if self._gathering.is_waiting and len(self._senders) < self._most_senders():
                self._senders.add(asyncio.get_running_loop().create_task(self._send_batches()))

    def _schedule_overdue(self) -> None:
        if self._overdue is None and self._at_once > 1:
            loop = asyncio.get_running_loop()
            self._overdue = loop.call_at(max(self._overdue_at(), loop.time() + OVERDUE), self._send_overdue)

    def _overdue_at(self) -> float:
        small_batch = 2 * SMALL_BATCH * self._seconds_per_weight
        return self._sent_at + min(max(small_batch, OVERDUE), LONGEST_OVERDUE)

    def _send_overdue(self) -> None:
        """Send waiting transitions in addition to the batches in flight if those take long."""
        self._overdue = None
        loop = asyncio.get_running_loop()
        is_late = loop.time() >= self._overdue_at() and 0 < len(self._senders) <= self._at_once
        if is_late and (batch := self._gathering.take(even_if_small=True)):
            self._senders.add(loop.create_task(self._send_batches(batch)))
        if self._senders and self._gathering.is_waiting:
            self._schedule_overdue()

    async def commit_within(self, transaction: StepTransaction, transition: Transition) -> Outcome:
        """Commit one transition in its own transaction, outside the batches."""
        outcome = await transaction.commit(transition)
        if isinstance(outcome, Applied):
            self._on_applied(transition, outcome)
        if isinstance(outcome, Applied | Stale) and outcome.ready:
            await self._announce(outcome.ready)
        return outcome

    async def drain(self) -> None:
        """Wait until everything submitted so far is committed."""
        while senders := [*self._senders, *([self._overtaking] if self._overtaking is not None else [])]:
            await asyncio.shield(asyncio.gather(*senders))

    async def _send_batches(self, batch: Batch | None = None) -> None:
        """Send batches until nothing is left that may be sent. Entries that wait for another sender are taken by that
        sender.
        """
        sender = asyncio.current_task()
        try:
            while batch := batch or (
                self._gathering.take() if len(self._senders) <= self._most_senders() else None
            ):
                self._sent_at = asyncio.get_running_loop().time()
                if self._at_once > 1 and batch.is_large and self._gathering.is_waiting:
                    self._let_overtake()  # what came together with a large transition
                await self._send_off(batch)
                batch = None
        finally:
            self._senders -= {sender}
            if self._senders and self._gathering.is_waiting:
                self._schedule_overdue()

    async def _send_off(self, batch: Batch) -> None:
        try:
            ready = await self._send(batch)
        finally:
            self._gathering.finished(batch)
        if ready:
            await self._announce(ready)

    async def _send(self, sent: Batch) -> list[ReadyToken]:
        """Commit a batch, retrying until the store answers. Return the tokens that became ready."""
        this_batch = object()
        batch: list[Entry] = sent
        pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        try:
            while batch:
                try:
                    began = perf_counter()
                    outcomes = await self.ledger.commit([entry[0] for entry in batch])
                except OperatorError as error:
                    batch = _fail_without_retry(batch, error)
                    if batch:
                        self.outage.failed(this_batch, f"a batch of {len(batch)} waits for the store", error)
                        await asyncio.sleep(pause.next())
                    continue
                except BaseException as error:
                    _fail_all(batch, error)
                    raise
                self.outage.answered(this_batch)
                self._measure(sent, began, perf_counter())
                return self._settle(batch, outcomes)
            return []
        finally:
            self.outage.gave_up(this_batch)

    def _measure(self, batch: Batch, began: float, now: float) -> None:
        """Adapt the batch size to the measured time per transition: on a busy machine batches become smaller."""
        seconds = now - began
        self._seconds_per_weight += RECENT * (
            seconds / (batch.weight + SMALL_BATCH) - self._seconds_per_weight
        )
        if self._gathering.is_mixed:
            self._gathering.is_mixed, self._mixed_until = False, now + ALONE_AFTER
        self._gathering.takes_turns = now < self._mixed_until
        target = BATCH_SECONDS if self._gathering.takes_turns else LONG_BATCH_SECONDS
        self._gathering.largest = min(
            max(int(target / self._seconds_per_weight) - SMALL_BATCH, SMALL_BATCH), MAX_BATCH
        )
        if self.observer is not None:
            self.observer.committed(len(batch), seconds)

    def _settle(self, batch: list[Entry], outcomes: Sequence[Outcome]) -> list[ReadyToken]:
        """Set the outcome of each entry. Entries that another process's lock deferred, or that the store did not
        confirm, go with the next batch.
        """
        ready: list[ReadyToken] = []
        deferred = []
        self.commits += 1
        self.transitions += len(batch)
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Applied):
                if outcome.ready:
                    ready.extend(outcome.ready)
                self._on_applied(entry[0], outcome)
            elif isinstance(outcome, Deferred):
                deferred.append(entry)
                continue
            elif isinstance(outcome, Unconfirmed):
                logger.warning(
                    "the store did not confirm one transition of a batch of %d: %s", len(batch), outcome.error
                )
                deferred += _fail_without_retry([entry], outcome.error)
                continue
            elif isinstance(outcome, Stale):
                ready.extend(outcome.ready)
            if entry[3] is not None:
                entry[3](outcome)
            if not entry[1].done():
                entry[1].set_result(outcome)
        if deferred:
            self._gathering.put_back(deferred)
        return ready

    async def _announce(self, ready: Sequence[ReadyToken]) -> None:
        """Announce ready tokens. Only a hint (B2): tokens that were not announced are committed all the same and
        found later.
        """
        try:
            await self.broker.announce(ready)
        except OperatorError as error:
            logger.warning("%d ready tokens were not announced (%s)", len(ready), error)


def _fail_without_retry(batch: list[Entry], error: OperatorError) -> list[Entry]:
    kept = []
    for entry in batch:
        if entry[2] and not entry[1].cancelled() and not isinstance(error, StoreLost):
            kept.append(entry)
        else:
            _fail(entry, error)
    return kept


def _fail_all(batch: list[Entry], error: BaseException) -> None:
    failure = error if isinstance(error, Exception) else Unavailable("the engine is shutting down")
    for entry in batch:
        _fail(entry, failure)


def _fail(entry: Entry, error: Exception) -> None:
    _, future, _, then, _, _ = entry
    if then is not None:
        then(None)
    if not future.done():
        future.set_exception(error)
