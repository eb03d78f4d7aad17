"""Probes of a store that may not respond: whether it can be reached and accepts writes.

A probe returns in time or fails, and each store has at most one query in progress. Every process defines readiness
by it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dalsegno.errors import Unavailable
from dalsegno.ports.stack import Stack

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProbeQuestion(Generic[T]):
    """A query in progress, in a task of its own: a driver may run for long after its cancellation."""

    task: asyncio.Task[T]
    began: float = field(default_factory=time.monotonic)

    def left(self, patience: float) -> float:
        """Return the seconds that the store still has, counted from the start of the query, not of the caller's
        wait."""
        return max(patience - (time.monotonic() - self.began), 0.0)

    def give_up(self) -> None:
        """Cancel once: a second cancellation would interrupt the driver's clean-up."""
        if not self.task.cancelling():
            self.task.cancel()


class StoreProbe(Generic[T]):
    """A query that can be put to any store repeatedly."""

    def __init__(self, name: str, question: Callable[[Stack], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._question = question
        self._open: dict[int, ProbeQuestion[T]] = {}
        """Queries in progress by the identity of their stack, which each query references. One per stack, however
        many callers wait: a store that does not respond must not receive more and more queries."""

    async def ask(self, stack: Stack, patience: float) -> T:
        """Return the result of a new or already running query. Raises Unavailable if it does not arrive in time."""
        question = self._open.get(id(stack)) or self._put(stack)
        await asyncio.wait({question.task}, timeout=question.left(patience))
        if not question.task.done():
            question.give_up()
        elif not question.task.cancelled():
            return question.task.result()
        raise Unavailable(f"the store did not answer within {patience:g} s")

    async def end(self, stack: Stack, patience: float) -> None:
        """End the queries before the store is closed, within ``patience`` seconds."""
        if (question := self._open.get(id(stack))) is not None:
            question.give_up()
            await asyncio.wait({question.task}, timeout=patience)

    def _put(self, stack: Stack) -> ProbeQuestion[T]:
        question = ProbeQuestion(asyncio.create_task(self._question(stack), name=self._name))
        self._open[id(stack)] = question
        question.task.add_done_callback(lambda task: self._over(stack, task))
        return question

    def _over(self, stack: Stack, task: asyncio.Task[T]) -> None:
        del self._open[id(stack)]
        if not task.cancelled():
            task.exception()  # retrieve the exception so that asyncio does not log it


PATIENCE = 2.0
"""Seconds in which the store must answer."""
END_SECONDS = 1.0
"""Seconds that an abandoned probe has to end when a server stops."""
NO_EXECUTION = "00000000000000000000000000000000"


async def ask_store(stack: Stack) -> float:
    """Return the seconds that the store took to answer. Raises Unavailable if it does not answer, StoreReadOnly if
    it is a standby. Both use the same query: probes come every few seconds."""
    return await _reach.ask(stack, PATIENCE)


async def end_look(stack: Stack) -> None:
    await _reach.end(stack, END_SECONDS)


async def _look(stack: Stack) -> float:
    began = time.perf_counter()
    if stack.expect_writable is not None:
        await stack.expect_writable()
    await stack.archive.states([NO_EXECUTION])
    return time.perf_counter() - began


_reach = StoreProbe("dalsegno-reach", _look)
