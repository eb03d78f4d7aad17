"""Whether the store can be reached, and takes writes: what readiness means in every process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from dalsegno.engine.stack import Stack
from dalsegno.errors import Unavailable

PATIENCE = 2.0
"""Seconds in which the store must answer."""
PARTING = 1.0
"""Seconds in which a look that is given up must be over when a server stops."""
NOBODY = "00000000000000000000000000000000"


@dataclass(frozen=True, slots=True)
class Look:
    """One question to the store. A task of its own: a driver may go on for long after it was told to give up."""

    task: asyncio.Task[float]
    began: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds that the store still has, counted from the question: nobody waits anew for the same silence."""
        return max(PATIENCE - (time.monotonic() - self.began), 0.0)


_looks: dict[int, Look] = {}
"""Those that are not over, by the identity of their stack, which each holds: one for a stack, however often it is
probed. A store that is silent must not be asked more and more."""


async def ask_store(stack: Stack) -> float:
    """Seconds until the store answered; Unavailable if it does not, StoreReadOnly if it is a standby. Either way it is
    one question: probes come every few seconds."""
    look = _looks.get(id(stack)) or _begin(stack)
    await asyncio.wait({look.task}, timeout=look.left())
    if not look.task.done():
        _give_up(look)
    elif not look.task.cancelled():
        return look.task.result()
    raise Unavailable(f"the store did not answer within {PATIENCE:g} s")


async def end_look(stack: Stack) -> None:
    """Before the store is closed: nothing of what was given up stays behind."""
    if (look := _looks.get(id(stack))) is not None:
        _give_up(look)
        await asyncio.wait({look.task}, timeout=PARTING)


def _give_up(look: Look) -> None:
    """Told once: a driver that is told again stops tidying up, too."""
    if not look.task.cancelling():
        look.task.cancel()


def _begin(stack: Stack) -> Look:
    look = Look(asyncio.create_task(_look(stack), name="dalsegno-reach"))
    _looks[id(stack)] = look
    look.task.add_done_callback(lambda task: _end(stack, task))
    return look


def _end(stack: Stack, task: asyncio.Task[float]) -> None:
    del _looks[id(stack)]
    if not task.cancelled():
        task.exception()  # whoever asked may have gone: it is nobody's surprise


async def _look(stack: Stack) -> float:
    began = time.perf_counter()
    if stack.expect_writable is not None:
        await stack.expect_writable()
    else:
        await stack.archive.states([NOBODY])
    return time.perf_counter() - began
