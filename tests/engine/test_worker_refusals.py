"""What a worker does with steps that the store refuses again and again: nothing stays leased under a living name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from dalsegno import App
from dalsegno.adapters.memory import MemoryLedger
from dalsegno.engine import letting_go
from dalsegno.errors import BadConfiguration
from dalsegno.model.transition import Outcome, Refused, Transition
from tests.scenarios.documents import echo, graph
from tests.waiting import until

Refuses = Callable[[Transition], bool]


class Gate:
    """In front of a ledger: refuses some transitions, until it is opened."""

    def __init__(self, ledger: MemoryLedger, refuses: Refuses) -> None:
        self._commit = ledger.commit
        self._refuses: Refuses | None = refuses
        self.refused: list[Transition] = []
        self.passed: list[Transition] = []

    def open(self) -> None:
        self._refuses = None

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        kept = [step for step in batch if self._refuses is None or not self._refuses(step)]
        self.refused += [step for step in batch if step not in kept]
        self.passed += kept
        outcomes = iter(await self._commit(kept))
        return [next(outcomes) if step in kept else Refused("it does not fit") for step in batch]


@contextmanager
def gated(refuses: Refuses, patch: pytest.MonkeyPatch) -> Iterator[tuple[App, Gate]]:
    patch.setattr(letting_go, "CANNOT_RUN_PAUSE", 0.05)
    patch.setattr(letting_go, "BROKEN_PAUSE", 0.05)
    app = App("memory:")
    app.task(name="echo")(_echo)
    with app.running():
        ledger = app.engine.stack.ledger
        assert isinstance(ledger, MemoryLedger)
        gate = Gate(ledger, refuses)
        patch.setattr(ledger, "commit", gate.commit)
        yield app, gate


async def _echo(value: int) -> int:
    return value


def is_step(transition: Transition) -> bool:
    return transition.token is not None


def is_step_that_ends(transition: Transition) -> bool:
    return is_step(transition) and transition.park is None


def test_step_whose_failure_is_refused_too_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(is_step_that_ends, monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        handle = app.start("scenario")

        until(lambda: [step for step in gate.passed if step.park is not None], "it is put off")
        assert len(gate.refused) >= 2, "the step, and its failure"
        gate.open()

        assert handle.result(timeout=30) == 1


def test_step_that_cannot_even_be_put_off_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with gated(is_step, monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        handle = app.start("scenario")

        until(lambda: len(gate.refused) >= 6, "it is taken again")
        gate.open()

        assert handle.result(timeout=30) == 1
    assert "refuses even to put off" in caplog.text


def test_step_that_this_process_cannot_run_is_handed_back_where_it_cannot_be_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(is_step, monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        steps = app.engine.steps
        run = steps.step
        tries = 0

        async def cannot(*given: object) -> object:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise BadConfiguration("the code is not here")
            return await run(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(steps, "step", cannot)
        handle = app.start("scenario")
        until(lambda: tries >= 3, "it is taken again")
        gate.open()

        assert handle.result(timeout=30) == 1
