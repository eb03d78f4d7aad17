"""Completions of tasks that come too late for their script's machine, and are refused then: nothing stays leased under
a living name."""

from __future__ import annotations

import threading

import pytest

from dalsegno import App
from dalsegno.handle import Handle
from dalsegno.model.effect import FinishExecution, SaveMachine, SettlePromise
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, Stale, Transition
from tests.engine.gates import Answer, Choice, gated, refusing
from tests.waiting import until


def too_late(refuses: Choice) -> Answer:
    """Of every fused transition it is said that the machine has moved on."""
    refused = refusing(refuses)
    return lambda step: Stale("version") if is_fused(step) else refused(step)


def is_fused(transition: Transition) -> bool:
    """A task's completion and the next turn of its script."""
    saved = [effect for effect in transition.effects if isinstance(effect, SaveMachine)]
    return any(effect.settled is not None for effect in saved)


def is_plain_completion(transition: Transition) -> bool:
    return any(isinstance(effect, SettlePromise) for effect in transition.effects)


def is_completed_task(transition: Transition) -> bool:
    """Of one that is an execution of its own."""
    ends = [effect.state for effect in transition.effects if isinstance(effect, FinishExecution)]
    return ends == ["COMPLETED"] and [event.kind for event in transition.events] == ["TaskCompleted"]


def failure_of(handle: Handle) -> str:
    until(lambda: handle.status().state == "FAILED", "it fails")
    return str(handle.status().error)


def heir_of(app: App, script: Handle) -> Handle:
    """The task that its script has left behind."""
    [heir] = [each for each in app.executions() if each.id != script.id]
    return heir


def test_completion_that_is_refused_after_the_machine_moved_on_fails_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(too_late(is_plain_completion), monkeypatch) as (app, gate):
        app.deploy_script('return await Task.run("echo", 1)', "s")
        handle = app.start("s")

        assert "NOT_STORABLE" in failure_of(handle)
        assert len(gate.refused) == 1


def test_completion_that_is_refused_after_the_script_has_ended_fails_the_task_that_lives_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(too_late(is_completed_task), monkeypatch) as (app, gate):
        go = threading.Event()
        runs = []

        @app.task
        def slow(value: int) -> int:
            runs.append(value)
            go.wait(30)
            return value

        app.deploy_script('Task.run("slow", 1)\nreturn await Signal.next("end")', "s")
        handle = app.start("s")
        until(lambda: runs, "it runs")
        handle.signal("end", 2)
        assert handle.result(timeout=30) == 2
        go.set()

        assert "NOT_STORABLE" in failure_of(heir_of(app, handle))
        assert (len(gate.refused), runs) == (1, [1]), "and it is not run again for that"


def test_task_whose_script_ends_while_it_is_refused_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script's failure comes too late as well, and the task lives on."""
    with gated(too_late(is_plain_completion), monkeypatch) as (app, gate):
        app.deploy_script('Task.run("echo", 1)\nreturn await Signal.next("end")', "s")
        worker = app.engine.worker
        assert worker is not None
        commit_failure = worker.releaser.commit_failure

        async def end_before(lease: Lease, failure: Transition) -> Outcome:
            gate.open()
            await app.client.signal(lease.execution, "end", 2)
            await app.engine.endings.ending(lease.execution, 30)
            return await commit_failure(lease, failure)

        monkeypatch.setattr(worker.releaser, "commit_failure", end_before)
        handle = app.start("s")

        assert handle.result(timeout=30) == 2
        assert heir_of(app, handle).result(timeout=15) == 1
        assert len(gate.refused) == 1
