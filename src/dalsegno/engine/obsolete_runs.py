"""Runs that have become useless while they went on, since their execution or scope has ended: found and cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from dalsegno.errors import OperatorError
from dalsegno.model.token import Lease, may_run_long
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

LOOK_EVERY = 0.5
"""Seconds between two looks, and the age from which on a run is looked after. Without such a run nothing is asked."""


class ObsoleteRuns:
    """``running`` and ``started`` are the worker's: what it runs, and since when."""

    def __init__(
        self,
        running: Mapping[str, Lease],
        started: Mapping[str, float],
        ledger: Ledger,
        cancel: Callable[[Lease], None],
    ) -> None:
        self.running = running
        self.started = started
        self.ledger = ledger
        self.cancel = cancel
        self.busy = asyncio.Event()
        """Whether anything may be running."""

    async def watch(self) -> None:
        """Whoever ends an execution may be another process: one query a look asks about all long runs together."""
        while True:
            await self.busy.wait()
            await asyncio.sleep(LOOK_EVERY)
            if not self.running:
                self.busy.clear()
            long = self._long_runs()
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

    def _long_runs(self) -> list[Lease]:
        before = asyncio.get_running_loop().time() - LOOK_EVERY
        leases = [self.running.get(token) for token, since in self.started.items() if since <= before]
        return [
            lease for lease in leases if lease is not None and may_run_long(lease.kind, lease.execution_kind)
        ]
