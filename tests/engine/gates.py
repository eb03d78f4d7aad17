"""A gate between a worker and its store: it answers some transitions by itself, and the store never sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from dalsegno import App
from dalsegno.adapters.memory import MemoryLedger
from dalsegno.engine.worker import tokens
from dalsegno.model.transition import Outcome, Refused, Transition

Choice = Callable[[Transition], bool]
Answer = Callable[[Transition], Outcome | None]
"""What is said of a transition; None: it passes."""


class Gate:
    """In front of a ledger, until it is opened."""

    def __init__(self, ledger: MemoryLedger, answer: Answer) -> None:
        self._commit = ledger.commit
        self._answer: Answer = answer
        self.refused: list[Transition] = []
        self.passed: list[Transition] = []

    def open(self) -> None:
        self._answer = let_pass

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        answers = [self._answer(step) for step in batch]
        answered = list(zip(batch, answers, strict=True))
        passing = [step for step, answer in answered if answer is None]
        self.refused += [step for step, answer in answered if isinstance(answer, Refused)]
        self.passed += passing
        outcomes = iter(await self._commit(passing))
        return [next(outcomes) if answer is None else answer for answer in answers]


def let_pass(_: Transition) -> None:
    """Nothing is said of any."""


def refusing(chosen: Choice) -> Answer:
    return lambda step: Refused("it does not fit") if chosen(step) else None


@contextmanager
def gated(answer: Answer, patch: pytest.MonkeyPatch) -> Iterator[tuple[App, Gate]]:
    """An application behind one, with a task ``echo``. Whatever is put off comes again soon."""
    patch.setattr(tokens, "CANNOT_RUN_PAUSE", 0.05)
    patch.setattr(tokens, "BROKEN_PAUSE", 0.05)
    app = App("memory:")
    app.task(name="echo")(_echo)
    with app.running():
        ledger = app.engine.stack.ledger
        assert isinstance(ledger, MemoryLedger)
        gate = Gate(ledger, answer)
        patch.setattr(ledger, "commit", gate.commit)
        yield app, gate


async def _echo(value: int) -> int:
    return value
