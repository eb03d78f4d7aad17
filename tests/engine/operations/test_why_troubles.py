"""``why`` tells what keeps a step from going on, not only when it is tried next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from dalsegno import App
from dalsegno.cli.next_command import Command
from dalsegno.cli.views.why import as_object
from dalsegno.core.diagnosis import Wait
from dalsegno.engine.worker import tokens
from dalsegno.errors import BadConfiguration
from dalsegno.handle import Handle
from tests.scenarios.documents import echo, graph
from tests.waiting import until


@contextmanager
def breaking(
    url: str, task: Callable[[int], Awaitable[int]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[App, Callable[[], None]]]:
    """An application whose steps break until they are mended, by calling what comes with it."""
    monkeypatch.setattr(tokens, "BROKEN_PAUSE", 0.05)
    monkeypatch.setattr(tokens, "CANNOT_RUN_PAUSE", 0.05)
    app = App(url)
    app.task(name="echo")(task)
    with app.running():
        assert app.engine.worker is not None
        whole = [(steps, steps.step) for steps in (app.engine.worker.steps, app.engine.worker.scripts)]

        async def broken(*_: object) -> object:
            raise BadConfiguration("the key of the vault is missing here")

        def mend() -> None:
            for steps, step in whole:
                monkeypatch.setattr(steps, "step", step)

        for steps, _ in whole:
            monkeypatch.setattr(steps, "step", broken)
        yield app, mend


def trouble_of(handle: Handle) -> Wait | None:
    return next((wait for wait in handle.why() if wait.kind == "trouble"), None)


def kinds(handle: Handle) -> list[str]:
    return [wait.kind for wait in handle.why()]


def test_why_tells_what_a_step_breaks_on_until_it_is_mended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    async def slow(value: int) -> int:
        await asyncio.to_thread(may_end.wait, 30)
        return value

    with breaking(url, slow, monkeypatch) as (app, mend):
        app.deploy(graph("a", {"a": echo(1)}))
        handle = app.start("scenario")
        found = until(lambda: trouble_of(handle), "the trouble")
        assert (found.node, found.sentence) == (
            "a",
            "'a' cannot continue: the key of the vault is missing here",
        )

        def told() -> bool:
            explanation = handle._call(app.engine.client.explain(handle.id))
            waits = as_object(explanation, Command(url))["waits"]
            return (found.node, found.sentence) in [(wait["node"], wait["sentence"]) for wait in waits]

        until(told, "what the command line says")
        mend()
        until(lambda: kinds(handle) == ["running"], "it to run, and nothing but that")
        may_end.set()
        assert handle.result(timeout=30) == 1
        assert handle.why() == []


def test_retry_of_a_step_that_was_mended_is_in_no_trouble(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(value: int) -> int:
        raise RuntimeError(f"no {value}")

    with breaking(url, fails, monkeypatch) as (app, mend):
        retried = {**echo(1), "retry": {"max_attempts": 2, "initial_delay": 3600}}
        app.deploy(graph("a", {"a": retried}))
        handle = app.start("scenario")
        until(lambda: trouble_of(handle), "the trouble")
        mend()
        until(lambda: "retry" in kinds(handle), "the retry")
        assert kinds(handle) == ["retry"]


def test_turn_of_a_script_is_called_the_program(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def same(value: int) -> int:
        return value

    with breaking(url, same, monkeypatch) as (app, mend):
        app.deploy_script("return await Task.run('echo', 1)", "scripted")
        handle = app.start("scripted")
        found = until(lambda: trouble_of(handle), "the trouble")
        assert (found.node, found.sentence) == (
            "",
            "the program cannot continue: the key of the vault is missing here",
        )
        mend()
        assert handle.result(timeout=30) == 1
