"""A worker's heartbeat, from a thread of its own: a busy event loop must not cost it its leases."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from dalsegno.errors import DalSegnoError
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.heartbeat")


class Heartbeat:
    """Keeps the leases under all ``names`` alive: those that the worker goes by when the time comes."""

    def __init__(
        self,
        ledger: Ledger,
        names: Callable[[], Iterable[str]],
        lease_seconds: float,
        info: bytes | Callable[[], bytes] = b"",
    ) -> None:
        """``info``: what is written beside the name for people to see; asked for anew with every beat."""
        self.ledger = ledger
        self.lease_seconds = lease_seconds
        self._names = names
        self._info = info
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

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self.lease_seconds / 4)
            self._wake.clear()
            try:
                if not self._stopped:
                    self.beat()
            except DalSegnoError as error:
                logger.warning("the heartbeat was not stored (%s); trying again", error)
