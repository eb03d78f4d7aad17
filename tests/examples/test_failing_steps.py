"""The examples do what they promise when a step fails, whichever it is and however it fails."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dalsegno.testing import TestKit
from tests.examples.commands import EXAMPLES

ORDER = {"sku": "A-1", "count": 2, "address": "12 Mill Lane"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    def load(name: str) -> ModuleType:
        path = EXAMPLES / name
        monkeypatch.syspath_prepend(path.parent)
        monkeypatch.setitem(sys.modules, path.stem, None)  # so that it is gone afterwards
        del sys.modules[path.stem]
        return importlib.import_module(path.stem)

    return load


def _workflow(module: ModuleType, name: str, function: str) -> Any:
    return getattr(module, function) if name.endswith(".py") else EXAMPLES / name


@pytest.mark.parametrize("name", ["saga/order.py", "saga/order.flow", "saga/order.yaml"])
@pytest.mark.parametrize(
    ("step", "undone"), [("charge", ["release"]), ("ship", ["refund", "release"])], ids=["charge", "ship"]
)
def test_saga_undoes_what_was_done_before_any_failing_step(
    step: str, undone: list[str], name: str, load: Callable[[str], ModuleType]
) -> None:
    module = load("saga/order.py")
    with TestKit(module.app) as kit:
        kit.mock(step, raises=ConnectionError("nobody answers"))
        told = kit.run(_workflow(module, name, "place_order"), ORDER)
        assert told == {"status": "undone", "reason": "nobody answers"}
        assert [call.task for call in kit.calls if call.task in ("release", "refund")] == undone


@pytest.mark.parametrize("name", ["agent/agent.py", "agent/agent.flow"])
def test_agent_tells_the_model_of_a_tool_that_failed(name: str, load: Callable[[str], ModuleType]) -> None:
    module = load("agent/agent.py")
    call = {"tool": "temperature", "arguments": {"city": "Oslo"}}
    with TestKit(module.app) as kit:
        kit.mock("temperature", raises=ConnectionError("no weather"))
        replies = [{"text": "I ask.", "calls": [call]}, {"text": "I do not know.", "calls": []}]
        thought = kit.mock("think", side_effect=replies)
        told = kit.run(_workflow(module, name, "agent"), question="How warm is Oslo?")
        assert told == {"answer": "I do not know.", "turns": 2}
        assert "failed: no weather" in str(thought.calls[-1].input)
