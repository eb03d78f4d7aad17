"""Whether the store can be reached, and takes writes: what readiness means in every process."""

from __future__ import annotations

import time

from dalsegno.engine.stack import Stack
from dalsegno.server.asking import Inquiry

PATIENCE = 2.0
"""Seconds in which the store must answer."""
PARTING = 1.0
"""Seconds in which a look that is given up must be over when a server stops."""
NOBODY = "00000000000000000000000000000000"


async def ask_store(stack: Stack) -> float:
    """Seconds until the store answered; Unavailable if it does not, StoreReadOnly if it is a standby. Either way it is
    one question: probes come every few seconds."""
    return await _reach.ask(stack, PATIENCE)


async def end_look(stack: Stack) -> None:
    await _reach.end(stack, PARTING)


async def _look(stack: Stack) -> float:
    began = time.perf_counter()
    if stack.expect_writable is not None:
        await stack.expect_writable()
    await stack.archive.states([NOBODY])
    return time.perf_counter() - began


_reach = Inquiry("dalsegno-reach", _look)
