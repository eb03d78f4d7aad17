"""A store that is away is told of once per process, however many of its loops wait for it: when it begins, now and
then while it lasts, and when it is over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dalsegno.errors import DalSegnoError, StoreLost

logger = logging.getLogger("dalsegno.outage")

REMIND_AFTER = 60.0
"""Seconds between two warnings about the same outage."""
CALM = 10.0
SHORT = 2.0
"""An outage that comes sooner than ``CALM`` after another one is told of when it has lasted so long. Something that
fails by itself, again and again, while all else goes on would fill the log otherwise."""


class Outage:
    """Whoever waits says so with each try, and says when it goes on. It is over when nobody waits any more, and not
    sooner: a store whose disk is full answers questions, and takes no commits.

    The heartbeat says so from a thread of its own. So whatever changes here does so under a lock, and lines are written
    under it, too: else the end of an outage could be told before its beginning."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: set[object] = set()
        self._since = 0.0
        self._ended_at = float("-inf")
        self._told_at = float("-inf")
        self._told_kinds: set[type[DalSegnoError]] = set()
        """Of errors, in this outage. Empty as long as nothing was told of it."""

    @property
    def is_known(self) -> bool:
        """Whether it has been told of."""
        return bool(self._told_kinds)

    def failed(self, who: object, what: str, error: DalSegnoError) -> None:
        """``who`` waits from now on, if it did not before. ``what``: a sentence that ``error`` is the reason of. A
        store that is lost is no outage: the engine logs that once, and ends."""
        if isinstance(error, StoreLost):
            return
        with self._lock:
            now = self._clock()
            if not self._waiting:
                self._since = now
            self._waiting.add(who)
            self._tell(now, what, error)

    def answered(self, who: object) -> None:
        """``who`` goes on."""
        if who not in self._waiting:
            return  # as nearly always; only ``who`` itself could change that meanwhile, so no lock is needed
        with self._lock:
            self._waiting.discard(who)
            if not self._waiting:
                self._end()

    def gave_up(self, who: object) -> None:
        """``who`` waits no more, and got no answer; nothing is done if it had one."""
        with self._lock:
            self._waiting.discard(who)
            if not self._waiting and self.is_known:
                self._forget()

    def _tell(self, now: float, what: str, error: DalSegnoError) -> None:
        if not self._is_worth_telling(now, error):
            logger.debug("%s: %s", what, error)
            return
        lasting = f" (for {now - self._since:.0f} s)" if self.is_known else ""
        self._told_at = now
        self._told_kinds.add(type(error))
        logger.warning("%s%s: %s", what, lasting, error)

    def _is_worth_telling(self, now: float, error: DalSegnoError) -> bool:
        if now - self._told_at >= REMIND_AFTER:
            return True
        if self.is_known:
            return type(error) not in self._told_kinds
        return now - self._ended_at >= CALM or now - self._since >= SHORT

    def _end(self) -> None:
        if self.is_known:
            logger.info("the store answers again, after %.1f s", self._clock() - self._since)
        self._forget()

    def _forget(self) -> None:
        self._told_kinds.clear()
        self._ended_at = self._clock()


class Pause:
    """Between two tries, the longer the more of them were in vain."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause

    def reset(self) -> None:
        self._next = self._first
