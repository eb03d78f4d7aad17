"""A worker's heartbeat, from a thread of its own: a busy event loop must not cost it its leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from dalsegno.engine.outage import Outage
from dalsegno.errors import DalSegnoError, StoreLost
from dalsegno.ports.ledger import Ledger

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 5.0
"""Seconds until a beat that was not stored is tried again, at first and at most."""

RETIRED_AFTER = 5.0
"""Seconds after a name was given up in which something may still be known to be leased under it: a start on its way."""


class Names:
    """What a worker goes by: one name for whatever it is leased from now on, and those under which something still
    runs. Nothing may be leased under a name before a beat of it is stored: to the store its holder would be dead."""

    def __init__(self, first: str, in_use: Callable[[], Iterable[str]]) -> None:
        """The heartbeat begins before the worker does, so the first name counts as stored."""
        self.current = first
        self._first = first
        self._in_use = in_use
        self._given_up: dict[str, float] = {}
        """When each was, on the clock of this process."""
        self._times = 0
        self._stored = {first}

    def __call__(self) -> set[str]:
        """Those to keep alive. Asked from the thread of the heartbeat."""
        return {self.current, *self._in_use()}

    def may_lease(self) -> bool:
        """Under the current name."""
        return self.current in self._stored

    def note_stored(self, name: str) -> None:
        """Told from the thread of the heartbeat."""
        self._stored.add(name)

    def give_up(self, name: str) -> bool:
        """Whether that makes a new name necessary; one that is given up already does not."""
        if name != self.current:
            return False
        self._given_up[name] = time.monotonic()
        self._times += 1
        self._stored = set()  # before there is a new name, which the heartbeat may store at any moment
        self.current = f"{self._first}.{self._times}"
        return True

    @property
    def given_up(self) -> bool:
        """Whether any was that is not forgotten yet."""
        return bool(self._given_up)

    def retired(self) -> list[str]:
        """Those that were given up a while ago, and under which nothing runs here: whatever is leased under them,
        nobody will bring to its end."""
        before, in_use = time.monotonic() - RETIRED_AFTER, set(self._in_use())
        return [name for name, at in self._given_up.items() if at <= before and name not in in_use]

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._given_up.pop(name, None)


class Heartbeat:
    """Keeps the leases under all ``names`` alive: those that the worker goes by when the time comes."""

    def __init__(
        self,
        ledger: Ledger,
        names: Names | Callable[[], Iterable[str]],
        lease_seconds: float,
        info: bytes | Callable[[], bytes] = b"",
    ) -> None:
        """``info``: what is written beside the name for people to see; asked for anew with every beat."""
        self.ledger = ledger
        self.lease_seconds = lease_seconds
        self._names = names
        self._info = info
        self.outage = Outage()
        self._stopped = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """The first beat is synchronous: no lease is taken before the worker is known."""
        self.beat()
        self._thread.start()

    def soon(self) -> None:
        """There is a new name: it is made known at once."""
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
        """A store that is back must hear of the worker before anybody concludes that it is dead, and the worker takes
        nothing under a new name until then."""
        regular = self.lease_seconds / 4
        if not failures:
            return regular
        return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 10), LONGEST_PAUSE, regular)
