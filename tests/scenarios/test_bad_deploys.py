"""A deploy that takes away what executions in flight need: they wait for a program that has it, and do not fail."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dalsegno.engine.operations.dead_letters import DeadLetters
from dalsegno.engine.settings import EngineSettings
from dalsegno.testing.clock import FakeClock
from tests.scenarios.conftest import LASTING
from tests.waiting import until

pytestmark = LASTING

HEAD = """
from dalsegno import App, signal

app = App()


@app.task
async def {task}(order: str) -> str:
    return f"charged {{order}}"
"""
PLAIN = """
@app.workflow
async def buy(order: str) -> str:
    await signal("go")
    return await {task}(order)
"""
CAUGHT = """
@app.workflow
async def buy(order: str) -> str:
    await signal("go")
    try:
        return await {task}(order)
    except Exception as problem:
        return f"given up: {{problem}}"
"""
KEPT = """
@app.workflow
async def buy(order: str) -> str:
    steps = [{task}]
    await signal("go")
    return await steps[0](order)
"""

Deploy = Callable[[str, str], ModuleType]


@pytest.fixture
def deploy(tmp_path: Path, store_url: str) -> Iterator[Deploy]:
    """Loads the program with its task under this name; the one before is gone."""
    clock = FakeClock()

    def load(workflow: str, task: str) -> ModuleType:
        sys.modules.pop("shop", None)
        path = tmp_path / f"{task}.py"
        path.write_text(textwrap.dedent(HEAD + workflow).format(task=task))
        spec = importlib.util.spec_from_file_location("shop", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["shop"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.app.url, module.app._clock = store_url, clock
        module.app.settings = EngineSettings(lease_seconds=1e6)
        module.clock = clock  # type: ignore[attr-defined]
        return module

    yield load
    sys.modules.pop("shop", None)


@pytest.mark.parametrize("workflow", [PLAIN, CAUGHT, KEPT], ids=["plain", "caught", "kept"])
def test_a_renamed_task_is_waited_for(deploy: Deploy, workflow: str) -> None:
    first = deploy(workflow, "charge")
    with first.app.running():
        handle = first.app.start(first.buy, "o-1")
        until(lambda: [wait.kind for wait in handle.why()] == ["signal"], "the signal is awaited")
    second = deploy(workflow, "take_payment")
    with second.app.running():
        again = second.app.handle(handle.id)
        again.signal("go")

        def is_told() -> bool:
            second.clock.advance(60)
            second.app.host.loop.call_soon_threadsafe(second.app.engine.timers.notice, 0.0)
            return bool(second.app.host.call(DeadLetters(second.app.engine).all()))

        until(is_told, "a dead letter")
        (letter,) = second.app.host.call(DeadLetters(second.app.engine).all())
        assert (letter.execution, again.status().state) == (handle.id, "RUNNING")
        assert "'charge'" in letter.reason
        assert "roll back" in letter.reason
        until(
            lambda: any(wait.kind == "trouble" for wait in again.why()), "why says so"
        )  # not while it is tried
        assert second.app.start(second.buy, "o-2").id  # new ones have the new code
    third = deploy(workflow, "charge")
    with third.app.running():
        third.clock.advance(3600)
        assert third.app.handle(handle.id).result(30) == "charged o-1"
