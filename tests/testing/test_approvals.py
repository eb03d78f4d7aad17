"""Approvals in the kit: asked, decided and timed out without waiting, by graphs, scripts and Python workflows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest

from dalsegno import App, InvalidInput, approval
from dalsegno.testing import Stuck, TestKit

GRAPH: dict[str, Any] = {
    "name": "refund",
    "nodes": [{"id": "gate", "type": "approval", "parameters": {"message": "Refund?"}}],
    "output": "$gate.decision",
}
SCRIPT = 'return (await approval("Refund?")).decision'
NIGHTLY: dict[str, Any] = {
    "name": "nightly",
    "nodes": [
        {"id": "time", "type": "schedule", "parameters": {"cron": "0 2 * * *"}},
        {"id": "say", "type": "log", "parameters": {"message": "good night"}},
    ],
    "edges": [{"src": "time", "dst": "say"}],
}


@dataclasses.dataclass
class Seats:
    seats: int


@pytest.mark.parametrize("workflow", [GRAPH, SCRIPT], ids=["graph", "script"])
def test_a_question_is_decided_in_the_kit(workflow: Any, workflows: TestKit) -> None:
    handle = workflows.start(workflow)
    assert [each.message for each in workflows.approvals(handle)] == ["Refund?"]
    workflows.decide(handle, "rejected", comment="no")
    assert handle.status().state == "COMPLETED"
    assert handle.result() == "rejected"


def test_python_workflows_ask_in_the_kit() -> None:
    app = App("memory:")

    @app.workflow
    async def enrol(name: str) -> Any:
        try:
            decision = await approval(f"Enrol {name}?", form=Seats, timeout="14d")
        except TimeoutError:
            return "nobody"
        return decision.data.seats

    with TestKit(app) as kit:
        handle = kit.start(enrol, "Ada")
        with pytest.raises(InvalidInput, match="'seats' is a required property"):
            kit.decide(handle, "approved", {})
        kit.decide(handle, "approved", {"seats": 3})
        assert handle.result() == 3
        before = kit.now
        assert kit.run(enrol, "Bo") == "nobody"
        assert kit.now - before == dt.timedelta(days=14)
        kit.crash()
        again = kit.start(enrol, "Cy")
        kit.idle()
        kit.crash()
        kit.decide(again, "approved", {"seats": 1})
        assert again.result() == 1


def test_a_question_that_nobody_decides_is_told(workflows: TestKit) -> None:
    with pytest.raises(Stuck, match=r"it waits for a decision: Refund\?"):
        workflows.run(SCRIPT)


def test_a_schedule_node_fires_in_the_tests_own_time() -> None:
    with TestKit(now=dt.datetime(2030, 1, 1, tzinfo=dt.UTC), skip=False) as kit:
        assert [each.status for each in kit.deploy(NIGHTLY).triggers] == ["added"]
        kit.advance("3d")
        runs = kit.app.executions("nightly")
        assert [run.status().state for run in runs] == ["COMPLETED"] * 3
