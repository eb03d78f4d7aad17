"""A worker's heartbeat, from a thread of its own: a busy event loop must not cost it its leases."""

from __future__ import annotations

import logging
import threading

from dalsegno.errors import DalSegnoError
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.heartbeat")


class Heartbeat:
    def __init__(self, ledger: Ledger, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        self.ledger = ledger
        self.worker = worker
        self.lease_seconds = lease_seconds
        self._info = info
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat-{worker}", daemon=True)

    def start(self) -> None:
        """The first beat is synchronous: no lease is taken before the worker is known."""
        self.ledger.heartbeat(self.worker, self.lease_seconds, self._info)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self.lease_seconds / 4):
            try:
                self.ledger.heartbeat(self.worker, self.lease_seconds, self._info)
            except DalSegnoError as error:
                logger.warning("the heartbeat of %s was not stored (%s); trying again", self.worker, error)
