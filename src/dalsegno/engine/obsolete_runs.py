"""Runs that have become useless while they went on, since their execution or scope has ended, are cancelled."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping

from dalsegno.engine.long_runs import RunWatch
from dalsegno.errors import OperatorError
from dalsegno.model.token import Lease, may_run_long
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

LOOK_EVERY = 0.5
"""Seconds between two looks, and the age from which on a run is looked after. Without such a run nothing is asked."""


class ObsoleteRuns(RunWatch):
    """Cancels runs whose execution or scope has ended while they went on."""

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
        """Another process may have ended an execution: one query a look asks about all long runs together."""
        async for now in self.rounds(LOOK_EVERY):
            long = self._long_runs(now - LOOK_EVERY)
            if not long:
                continue
            try:
                obsolete = await self.ledger.obsolete(long)
            except OperatorError:
                continue  # the store is away, and others say so
            except Exception:
                logger.exception("cannot find out which runs have become useless")
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
