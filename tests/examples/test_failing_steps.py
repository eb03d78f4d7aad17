"""The examples do what they promise when a step fails, whichever it is and however it fails."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from dalsegno.testing import TestKit
from tests.examples.commands import EXAMPLES
from tests.waiting import until

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
    ("step", "undone"),
    [("reserve", ["release"]), ("charge", ["refund", "release"]), ("ship", ["refund", "release"])],
    ids=["reserve", "charge", "ship"],
)
def test_saga_undoes_a_failing_step_and_what_was_done_before(
    step: str, undone: list[str], name: str, load: Callable[[str], ModuleType]
) -> None:
    module = load("saga/order.py")
    with TestKit(module.app) as kit:
        kit.mock(step, raises=ConnectionError("nobody answers"))
        told = kit.run(_workflow(module, name, "place_order"), ORDER)
        assert told == {"status": "undone", "reason": "nobody answers"}
        assert [call.task for call in kit.calls if call.task in ("release", "refund")] == undone


@pytest.mark.parametrize("name", ["saga/order.py", "saga/order.flow"])
@pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "fails"])
def test_saga_that_is_cancelled_while_it_ships_waits_for_that(
    arrives: bool, name: str, load: Callable[[str], ModuleType]
) -> None:
    """Goods that are on their way are not refunded."""
    module = load("saga/order.py")
    goes_on = threading.Event()

    def ship(order: Any) -> dict[str, str]:
        goes_on.wait(10)
        if not arrives:
            raise ConnectionError("the van broke down")
        return {"id": "parcel-1"}

    with TestKit(module.app) as kit:
        shipping = kit.mock("ship", side_effect=ship)
        run = kit.start(_workflow(module, name, "place_order"), ORDER)
        until(lambda: shipping.calls, "the goods are being sent")
        run.cancel("changed my mind")
        goes_on.set()
        assert run.wait(10).state == "CANCELLED"
        undone = [call.task for call in kit.calls if call.task in ("release", "refund")]
        assert undone == ([] if arrives else ["refund", "release"])


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
