"""Whether the store can be reached, and takes writes: what readiness means in every process."""

from __future__ import annotations

import asyncio
import time

from dalsegno.engine.stack import Stack
from dalsegno.errors import Unavailable

PATIENCE = 2.0
"""Seconds in which the store must answer."""
NOBODY = "00000000000000000000000000000000"


async def ask_store(stack: Stack) -> float:
    """Seconds until the store answered; Unavailable if it does not, StoreReadOnly if it is a standby. Either way it is
    one question: probes come every few seconds."""
    began = time.perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            if stack.expect_writable is not None:
                await stack.expect_writable()
            else:
                await stack.archive.states([NOBODY])
    except TimeoutError:
        raise Unavailable(f"the store did not answer within {PATIENCE:g} s") from None
    return time.perf_counter() - began
