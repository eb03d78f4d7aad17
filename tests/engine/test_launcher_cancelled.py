"""Callers that go away while their start is being stored: what it kept for this process is run all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dalsegno import App
from dalsegno.engine.engine import Engine
from dalsegno.errors import Unavailable
from dalsegno.model.transition import Outcome, Transition
from tests.scenarios.documents import graph, task
from tests.waiting import come_about

SECONDS = 15.0


class Slow:
    """In front of a ledger: what it has stored is answered when the test wants it."""

    def __init__(self, engine: Engine, patch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self._commit = engine.stack.ledger.commit
        self._error = error
        self.stored = asyncio.Event()
        self.answer = asyncio.Event()
        self.kept: tuple[str, ...] = ()
        patch.setattr(engine.stack.ledger, "commit", self.commit)

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes = await self._commit(batch)
        self.kept += batch[0].keep if not self.stored.is_set() else ()
        is_first = not self.stored.is_set()
        self.stored.set()
        await self.answer.wait()
        if self._error is not None and is_first:
            raise self._error
        return outcomes


def program(url: str) -> tuple[App, list[int]]:
    app, runs = App(url), list[int]()

    @app.task
    async def note(value: int) -> int:
        runs.append(value)
        return value

    return app, runs


async def start_and_go_away(app: App, slow: Slow) -> None:
    start = asyncio.create_task(app.astart("scenario"))
    await slow.stored.wait()
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start


async def test_start_whose_caller_is_cancelled_runs_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, runs = program(url)
    async with app.running():
        await app.adeploy(graph("a", {"a": task("note", 1)}))
        worker = app.engine.worker
        assert worker is not None
        name = worker.name
        slow = Slow(app.engine, monkeypatch)

        await start_and_go_away(app, slow)
        assert slow.kept, "its first token is leased to this worker"
        slow.answer.set()

        await come_about(lambda: runs == [1], "it runs", SECONDS)
        assert worker.name == name


async def test_lost_answer_to_a_start_whose_caller_is_cancelled_makes_its_name_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app, runs = program("memory:")
    async with app.running():
        await app.adeploy(graph("a", {"a": task("note", 1)}))
        worker, ledger = app.engine.worker, app.engine.stack.ledger
        assert worker is not None
        name = worker.name
        slow = Slow(app.engine, monkeypatch, Unavailable("the answer is lost"))

        await start_and_go_away(app, slow)
        slow.answer.set()
        await come_about(lambda: worker.name != name, "it goes on under a new name", SECONDS)
        assert name not in worker.names()

        await app.engine.stack.broker.announce(await ledger.expire((name,)))
        await come_about(lambda: runs == [1], "it is found again", SECONDS)
