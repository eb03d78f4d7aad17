"""What a worker does with steps that the store refuses again and again: nothing stays leased under a living name."""

from __future__ import annotations

import time

import pytest

from dalsegno import App, NodeContext
from dalsegno.engine.operations.troubles import StuckReason
from dalsegno.engine.worker import tokens
from dalsegno.errors import Unavailable
from dalsegno.model.transition import Transition
from tests.engine.broken_steps import ELSEWHERE, NOT_HERE, break_steps, flaky, leased, noting_pauses
from tests.engine.gates import gated, let_pass, refusing
from tests.scenarios.documents import echo, graph, task
from tests.waiting import until


def is_step(transition: Transition) -> bool:
    return transition.token is not None


def is_step_that_ends(transition: Transition) -> bool:
    return is_step(transition) and transition.park is None


def test_step_whose_failure_is_refused_too_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(refusing(is_step_that_ends), monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        handle = app.start("scenario")

        until(lambda: [step for step in gate.passed if step.park is not None], "it is put off")
        assert len(gate.refused) >= 2, "the step, and its failure"
        gate.open()

        assert handle.result(timeout=30) == 1


@pytest.mark.parametrize("error", [NOT_HERE, ELSEWHERE], ids=["put off", "offered to others"])
def test_step_that_is_let_go_uses_up_no_attempt(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(let_pass, monkeypatch) as (app, _):
        attempts = flaky(app, failures=2)
        app.deploy(graph("a", {"a": task("flaky")}))
        break_steps(app, 3, NOT_HERE, monkeypatch)

        assert app.start("scenario").result(timeout=30) == "done"
    assert attempts == [1, 2, 3]


def test_put_off_after_a_refused_failure_uses_up_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of the step nor of the failure in its place is anything stored."""
    with gated(refusing(is_step_that_ends), monkeypatch) as (app, gate):
        attempts: list[int] = []

        @app.task(name="noting")
        async def noting(ctx: NodeContext) -> int:
            attempts.append(ctx.attempt)
            return 1

        app.deploy(graph("a", {"a": task("noting")}))
        handle = app.start("scenario")
        until(lambda: len(attempts) >= 3, "it is put off and taken again")
        gate.open()

        assert handle.result(timeout=30) == 1
    assert set(attempts) == {1}


def watch_put_offs(app: App, monkeypatch: pytest.MonkeyPatch) -> tuple[list[StuckReason], list[float]]:
    """Return what the worker reports as stuck, and the pauses of the steps that it puts off."""
    told: list[StuckReason] = []
    assert app.engine.worker is not None
    monkeypatch.setattr(app.engine.worker.releaser, "trouble", told.append)
    pauses: list[float] = []
    monkeypatch.setattr(tokens, "put_off", noting_pauses(app, pauses))
    return told, pauses


def test_pause_grows_with_every_put_off_and_the_third_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        told, pauses = watch_put_offs(app, monkeypatch)
        app.deploy(graph("a", {"a": echo(1)}))
        break_steps(app, 3, NOT_HERE, monkeypatch)

        assert app.start("scenario").result(timeout=30) == 1
    assert [trouble.tries for trouble in told] == [1, 2, 3]
    assert pauses == pytest.approx([0.05, 0.1, 0.2], abs=0.02)
    assert [step.park.attempt for step in gate.passed if step.park is not None] == [1, 1, 1]


def test_put_offs_are_counted_by_token_and_attempt_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED", 2)
    counted = tokens.BackoffCounter()

    assert [counted.count(leased("a")) for _ in range(2)] == [1, 2]
    assert counted.count(leased("a", attempt=2)) == 1
    assert counted.count(leased("b")) == 1
    assert counted.count(leased("a")) == 1, "it was forgotten"


def test_step_that_cannot_even_be_put_off_is_handed_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with gated(refusing(is_step), monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        handle = app.start("scenario")

        until(lambda: len(gate.refused) >= 6, "it is taken again")
        gate.open()

        assert handle.result(timeout=30) == 1
    assert "refuses even to postpone" in caplog.text


def test_step_that_this_process_cannot_run_is_handed_back_where_it_cannot_be_put_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(refusing(is_step), monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": echo(1)}))
        tries = break_steps(app, 2, NOT_HERE, monkeypatch)
        handle = app.start("scenario")
        until(lambda: len(tries) >= 3, "it is taken again")
        gate.open()

        assert handle.result(timeout=30) == 1


@pytest.mark.parametrize(
    ("error", "said"), [(RuntimeError("a bug"), "broke"), (Unavailable("not now"), "is handed back")]
)
def test_step_that_breaks_again_and_again_is_tried_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, said: str
) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        told, pauses = watch_put_offs(app, monkeypatch)
        app.deploy(graph("a", {"a": echo(1)}))
        break_steps(app, 4, error, monkeypatch)
        handle = app.start("scenario")

        assert handle.result(timeout=30) == 1
        assert not app.engine.worker.releaser._failures.known, "a step that was stored is the end of it"
    assert [trouble.tries for trouble in told] == [1, 2, 3, 4]
    assert {trouble.reason for trouble in told} == {f"its step has an internal error: {error}"}
    assert pauses == pytest.approx([0.1, 0.2, 0.4], abs=0.02), "the first time it is only handed back"
    assert [step.park.attempt for step in gate.passed if step.park is not None] == [1, 1, 1]
    assert f"of execution {handle.id} {said}: {error}" in caplog.text


def test_step_that_breaks_and_cannot_be_put_off_is_handed_back_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def break_too(*_: object) -> Transition:
        raise RuntimeError("this as well")

    with gated(let_pass, monkeypatch) as (app, _):
        monkeypatch.setattr(tokens, "put_off", break_too)
        app.deploy(graph("a", {"a": echo(1)}))
        break_steps(app, 3, RuntimeError("a bug"), monkeypatch)
        began = time.monotonic()

        assert app.start("scenario").result(timeout=30) == 1
    assert time.monotonic() - began > 3 * tokens.BROKEN_PAUSE, "and never at once"


def test_pause_after_a_break_grows_to_a_minute() -> None:
    pauses = [
        tokens.backoff(tokens.BROKEN_PAUSE, times, tokens.LONGEST_BROKEN_PAUSE)
        for times in (1, 2, 3, 7, 1000)
    ]

    assert pauses == [1, 2, 4, 60, 60]
