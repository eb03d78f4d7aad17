"""Cancels runs that have become obsolete because their execution or scope has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping

from dalsegno.engine.worker.started_events import RunWatch
from dalsegno.errors import OperatorError
from dalsegno.model.token import Lease, may_run_long
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

LOOK_EVERY = 0.5
"""Seconds between two checks, and the age from which on a run is checked. Without such a run there is no query."""


class ObsoleteRuns(RunWatch):
    """A periodic check that cancels runs whose execution or scope has ended meanwhile."""

    def __init__(
        self,
        running: Mapping[str, Lease],
        started: Mapping[str, float],
        ledger: Ledger,
        cancel: Callable[[Lease], None],
        long: Container[str] = (),
    ) -> None:
        """``long``: tokens of further runs that take long."""
        super().__init__(running, started)
        self.ledger = ledger
        self.cancel = cancel
        self.long = long

    async def watch(self) -> None:
        """Check at intervals, with one query for all long runs: another process may have ended an execution."""
        async for now in self.rounds(LOOK_EVERY):
            long = self._long_runs(now - LOOK_EVERY)
            if not long:
                continue
            try:
                obsolete = await self.ledger.obsolete(long)
            except OperatorError:
                continue  # others report the outage
            except Exception:
                logger.exception("cannot determine which runs have become obsolete")
                continue
            for lease in obsolete:
                self.cancel(lease)

    def _long_runs(self, before: float) -> list[Lease]:
        leases = [self.running.get(token) for token, since in self.started.items() if since <= before]
        return [
            lease
            for lease in leases
            if lease is not None
            and (may_run_long(lease.kind, lease.execution_kind) or lease.token in self.long)
        ]
