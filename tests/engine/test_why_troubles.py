"""``why`` tells what keeps a step from going on, not only when it is tried next."""

from __future__ import annotations

import pytest

from dalsegno import App
from dalsegno.cli.result import Command
from dalsegno.cli.waits import explain
from dalsegno.engine import letting_go
from dalsegno.errors import BadConfiguration
from tests.scenarios.documents import echo, graph
from tests.waiting import until


def test_why_tells_what_a_step_breaks_on_until_it_is_mended(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letting_go, "BROKEN_PAUSE", 0.05)
    monkeypatch.setattr(letting_go, "CANNOT_RUN_PAUSE", 0.05)
    app = App(url)
    app.task(name="echo")(_echo)
    with app.running():
        app.deploy(graph("a", {"a": echo(1)}))
        assert app.engine.worker is not None
        steps = app.engine.worker.steps
        whole = steps.step

        async def broken(*_: object) -> object:
            raise BadConfiguration("the key of the vault is missing here")

        monkeypatch.setattr(steps, "step", broken)
        handle = app.start("scenario")
        until(lambda: "trouble" in [wait.kind for wait in handle.why()], "the trouble")
        first = handle.why()[0]
        assert (first.kind, first.node) == ("trouble", "a")
        assert first.sentence == "'a' cannot go on: the key of the vault is missing here"
        told = handle._call(explain(app.engine.client, handle.id, Command(url)))
        assert told.reasons[0].wait == first

        monkeypatch.setattr(steps, "step", whole)
        assert handle.result(timeout=30) == 1
        assert handle.why() == []


async def _echo(value: int) -> int:
    return value
