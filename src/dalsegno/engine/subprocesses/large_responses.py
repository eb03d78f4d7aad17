"""Large responses of the ``http`` node: decoded in processes, and held within a bound, with workflows taking
turns.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from dalsegno.engine.subprocesses.job_pool import Lane, Offload, OffloadLimits, Requester, requester
from dalsegno.errors import LimitExceeded, NotJson

AT_ONCE: Final = 128 * 1024 * 1024
"""Bytes of responses over 1 MiB that a process holds while they are read; half as many per workflow."""
PROCESSES: Final = 2
SECONDS: Final = 120.0
MEMORY: Final = 1024 * 1024 * 1024


class LargeResponses:
    """The implementation of `dalsegno.nodes.http.service.LargeBodies`. Nothing is started before the first large
    response.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        limits = OffloadLimits(PROCESSES, SECONDS, None, sys.maxsize, MEMORY)
        self.offload = Offload(limits)
        self._at_once = at_once
        self._bytes = Lane(at_once, limits, at_once // 2)

    async def run(self, workflow: str, job: str, *arguments: Any) -> Any:
        before = requester.set(Requester(workflow))
        try:
            reply = await self.offload.large(job, *arguments)
        except LimitExceeded:
            raise _too_much() from None
        finally:
            requester.reset(before)
        raised = reply.get("raised")
        if raised is None:
            return reply["value"]
        if raised["class"] == "NotJson":
            raise NotJson(raised["message"])
        raise _too_much()

    @asynccontextmanager
    async def place(self, workflow: str, size: int) -> AsyncIterator[None]:
        weight = min(size, self._at_once)
        await self._bytes.enter(workflow, weight)
        try:
            yield
        finally:
            self._bytes.leave(workflow, weight)

    @property
    def waiting(self) -> int:
        """Runs that wait for their turn to continue reading."""
        return self._bytes.waiting

    async def close(self) -> None:
        await self.offload.close()


def _too_much() -> LimitExceeded:
    return LimitExceeded(
        f"the response cannot be read within {SECONDS:g} s and {MEMORY:,} bytes of memory; ask for less data at a time"
    )
