"""A worker's heartbeat and names.

- The heartbeat runs in its own thread: a busy event loop must not cost the worker its leases.
- A worker gives a name up when something may be leased under it without its knowledge. Such leases are taken back
  when nothing known runs under the name any more, not only when its last heartbeat has lapsed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from time import monotonic

from dalsegno.engine.committer import Outage
from dalsegno.engine.upkeep.reconciler import Reconciler
from dalsegno.errors import DalSegnoError, StoreLost
from dalsegno.ports.ledger import Ledger

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
"""Seconds until a failed heartbeat is tried again: first pause and longest pause."""

RETIRED_AFTER = 5.0
"""Seconds after a name was given up during which known leases under it may still appear: those of a start in
flight.
"""


class Names:
    """The names of a worker: the current one for new leases, and earlier ones under which something still runs.
    Nothing may be leased under a name before a heartbeat of it is stored: to the store its holder would be dead.
    """

    def __init__(self, first: str, in_use: Callable[[], Iterable[str]]) -> None:
        """``first`` counts as stored, because the heartbeat starts before the worker."""
        self.current = first
        self._first = first
        self._in_use = in_use
        self._given_up: dict[str, float] = {}
        """Time at which each name was given up, by the clock of this process."""
        self._times = 0
        self._stored = {first}

    def __call__(self) -> set[str]:
        """Return the names to renew. Called from the heartbeat's thread."""
        return {self.current, *self._in_use()}

    def may_lease(self) -> bool:
        """Return True if the current name is stored."""
        return self.current in self._stored

    def note_stored(self, name: str) -> None:
        """Note that a heartbeat of the name is stored. Called from the heartbeat's thread."""
        self._stored.add(name)

    def give_up(self, name: str) -> bool:
        """Give a name up. Return True if that produced a new name, False if it was given up before."""
        if name != self.current:
            return False
        self._given_up[name] = monotonic()
        self._times += 1
        self._stored = set()  # before there is a new name, which the heartbeat may store at any moment
        self.current = f"{self._first}.{self._times}"
        return True

    @property
    def given_up(self) -> bool:
        """Whether there is a name that was given up and not forgotten yet."""
        return bool(self._given_up)

    def retired(self) -> list[str]:
        """Return the names that were given up a while ago and under which nothing runs here. Leases under them would
        never be finished.
        """
        before, in_use = monotonic() - RETIRED_AFTER, set(self._in_use())
        return [name for name, at in self._given_up.items() if at <= before and name not in in_use]

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._given_up.pop(name, None)


class Heartbeat:
    """A thread that renews the leases under all current ``names``."""

    def __init__(
        self,
        ledger: Ledger,
        names: Names | Callable[[], Iterable[str]],
        lease_seconds: float,
        info: bytes | Callable[[], bytes] = b"",
    ) -> None:
        """``info``: description that each heartbeat stores with the name, for people; evaluated at each beat."""
        self.ledger = ledger
        self.lease_seconds = lease_seconds
        self._names = names
        self._info = info
        self.outage = Outage()
        self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Store the first heartbeat synchronously, so that no lease is taken before the worker is known; then start
        the thread.
        """
        self.beat()
        self._thread.start()

    def soon(self) -> None:
        """Beat at once, to store a new name."""
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self._thread.join(timeout=5)

    def beat(self) -> None:
        info = self._info() if callable(self._info) else self._info
        for name in self._names():
            self.ledger.heartbeat(name, self.lease_seconds, info)
            if isinstance(self._names, Names):
                self._names.note_stored(name)

    def _run(self) -> None:
        failures = 0
        try:
            while not self._stopped:
                self._wake.wait(self._pause(failures))
                self._wake.clear()
                if not self._stopped:
                    failures = 0 if self._is_stored() else failures + 1
        finally:
            self.outage.gave_up(self)

    def _is_stored(self) -> bool:
        try:
            self.beat()
        except StoreLost:
            self._stopped = True
            return False
        except DalSegnoError as error:
            self.outage.failed(self, "the heartbeat waits for the store", error)
            return False
        self.outage.answered(self)
        return True

    def _pause(self, failures: int) -> float:
        """Return the pause before the next beat. After an outage the store must hear of the worker before other
        processes conclude that it is dead, and the worker leases nothing under a new name until then.
        """
        regular = self.lease_seconds / 4
        if not failures:
            return regular
        return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE, regular)


LOOK_EVERY = 5.0
"""Seconds between two checks while there is a name that was given up."""


class RetiredNames:
    def __init__(self, names: Names, reconciler: Reconciler) -> None:
        self._names = names
        self._reconciler = reconciler
        self._changed = asyncio.Event()

    def notice(self) -> None:
        """Note that a name was given up."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            if not self._names.given_up:
                await self._changed.wait()
                self._changed.clear()
            await asyncio.sleep(LOOK_EVERY)
            if names := self._names.retired():
                await self._reconciler.take_back(names, "of which this worker had not heard")
                self._names.forget(names)
