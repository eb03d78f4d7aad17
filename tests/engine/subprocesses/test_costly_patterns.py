"""Patterns that take long to compile are compiled in processes, and never in that of the event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.engine.subprocesses.job_pool import Offload, payload_problems
from dalsegno.errors import InvalidInput, LimitExceeded
from dalsegno.lang.values import regex
from tests.waiting import come_about

NAMES = r"^[\pL\pN ]{1,60}$"
"""Takes 100 ms, in which nothing else of its process runs."""
FORM = {"type": "object", "properties": {"name": {"pattern": NAMES}}}
ASKING = {"name": "asking", "nodes": [{"id": "ask", "type": "approval", "parameters": {"form": FORM}}]}
SCRIPT = f"let form = {FORM!r}\nreturn (await approval({{message: 'May I?', form: form}})).data.name"


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this process compiles nothing. Those that it starts do."""

    def refuse(pattern: str, options: Any) -> Any:
        raise AssertionError(f"{pattern} is compiled in the process of the loop")

    regex._known.clear()
    monkeypatch.setattr(regex.re2, "compile", refuse)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    made = App(f"sqlite:///{tmp_path / 'store.db'}", settings=EngineSettings(heavy_processes=1))
    async with made.running():
        yield made


@pytest.fixture
async def offload() -> AsyncIterator[Offload]:
    made = Offload()
    yield made
    await made.close()


async def test_an_input_is_checked_in_a_process(offload: Offload, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    limits = EngineLimits()
    assert await payload_problems(FORM, b'{"name": "Ann 2"}', limits, offload) == []
    [(place, message)] = await payload_problems(FORM, b'{"name": "!"}', limits, offload)
    assert (place, message.split(" does")[0]) == ("/name", "'!'")
    assert offload.processes == 1


async def test_a_concurrency_key_is_evaluated_in_a_process(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch)
    key = rf"$trigger.name.matches('{NAMES}') ? 'a' : 'b'".replace("\\", "\\\\")
    node = {"id": "say", "type": "log", "parameters": {"message": "hello"}}
    await app.adeploy({"name": "keyed", "concurrency": {"key": key, "limit": 1}, "nodes": [node]})
    with pytest.raises(LimitExceeded, match="key_instructions"):
        await app.astart("keyed", name="Ann")
    assert app.client.offload.processes == 1


@pytest.mark.parametrize("by_signal", [True, False], ids=["signal", "decision"])
@pytest.mark.parametrize("kind", ["graph", "script"])
async def test_a_decision_is_checked_in_a_process(
    app: App, monkeypatch: pytest.MonkeyPatch, kind: str, by_signal: bool
) -> None:
    if kind == "graph":
        await app.adeploy(ASKING)
    else:
        await app.adeploy_script(SCRIPT, "asking")
    forbid(monkeypatch)
    handle = await app.astart("asking")
    await come_about(handle.aapprovals, "the question")
    [question] = await handle.aapprovals()
    if by_signal:
        await handle.asignal(question.signal, {"decision": "approved", "data": {"name": "!"}})
        await handle.asignal(question.signal, {"decision": "approved", "data": {"name": "Ann"}})
    else:
        with pytest.raises(InvalidInput, match="/data/name"):
            await handle.adecide(question.node, "approved", {"name": "!"})
        await handle.adecide(question.node, "approved", {"name": "Ann"})
    found = await handle.aresult(timeout=60)
    assert (found if kind == "script" else found["data"]["name"]) == "Ann"
