"""Questions to a store that may be silent: an answer in time or none, and never more than one question under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dalsegno.engine.stack import Stack
from dalsegno.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One that was put. A task of its own: a driver may go on for long after it was told to give up."""

    task: asyncio.Task[T]
    began: float = field(default_factory=time.monotonic)

    def left(self, patience: float) -> float:
        """Seconds that the store still has, counted from the question: nobody waits anew for the same silence."""
        return max(patience - (time.monotonic() - self.began), 0.0)

    def give_up(self) -> None:
        """Told once: a driver that is told again stops tidying up, too."""
        if not self.task.cancelling():
            self.task.cancel()


class Inquiry(Generic[T]):
    """The same question, put to any store, as often as somebody wants to know."""

    def __init__(self, name: str, question: Callable[[Stack], Coroutine[Any, Any, T]]) -> None:
        self._name = name
        self._question = question
        self._open: dict[int, Question[T]] = {}
        """Those that are not over, by the identity of their stack, which each holds: one for a stack, however often it
        is asked. A store that is silent must not be asked more and more."""

    async def ask(self, stack: Stack, patience: float) -> T:
        """The answer, or that of somebody who has asked already; Unavailable if it does not come in time."""
        question = self._open.get(id(stack)) or self._put(stack)
        await asyncio.wait({question.task}, timeout=question.left(patience))
        if not question.task.done():
            question.give_up()
        elif not question.task.cancelled():
            return question.task.result()
        raise Unavailable(f"the store did not answer within {patience:g} s")

    async def end(self, stack: Stack, parting: float) -> None:
        """Before the store is closed: nothing of what was given up stays behind, if it goes in ``parting`` seconds."""
        if (question := self._open.get(id(stack))) is not None:
            question.give_up()
            await asyncio.wait({question.task}, timeout=parting)

    def _put(self, stack: Stack) -> Question[T]:
        question = Question(asyncio.create_task(self._question(stack), name=self._name))
        self._open[id(stack)] = question
        question.task.add_done_callback(lambda task: self._over(stack, task))
        return question

    def _over(self, stack: Stack, task: asyncio.Task[T]) -> None:
        del self._open[id(stack)]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone: it is nobody's surprise
