"""Every example does what its first lines promise, by the very commands that stand there."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from tests.cli.programs import Programs
from tests.examples.commands import NEEDS_NETWORK, Example, example, examples
from tests.waiting import until


def _runs_alone(each: Example) -> list[tuple[str, ...]]:
    """Runs that end by themselves; the others wait for the signal that follows them."""
    pairs = zip(each.commands, (*each.commands[1:], ("",)), strict=True)
    return [command for command, following in pairs if command[0] == "run" and following[0] != "signal"]


ALONE = [
    (each, command)
    for each in examples()
    if each.file.name not in NEEDS_NETWORK
    for command in _runs_alone(each)
]
DECIDED = ("approval/expense.py", "approval/expense.flow", "approval/expense.yaml")


def run(desk: Programs, command: tuple[str, ...]) -> dict[str, Any]:
    told = desk.begin(*command, "--json").result()
    assert "status" in told, told
    return told


@pytest.mark.parametrize("each", examples(), ids=lambda each: each.name)
def test_example_tells_how_it_is_run(each: Example) -> None:
    assert any(f"examples/{each.name}" in word for command in each.runs() for word in command)


@pytest.mark.parametrize(("each", "command"), ALONE, ids=lambda part: getattr(part, "name", ""))
def test_example_completes(each: Example, command: tuple[str, ...], desk: Programs) -> None:
    told = run(desk, command)
    assert told["status"] == "COMPLETED", told
    assert told["exit_code"] == 0


@pytest.mark.parametrize("name", ["saga/order.py", "saga/order.flow", "saga/order.yaml"])
def test_saga_ships_or_undoes_everything_newest_first(name: str, desk: Programs) -> None:
    shipped, undone = example(name).runs()
    assert run(desk, shipped)["output"] == {"status": "shipped", "parcel": "parcel-A-1"}
    code, _, told = desk.begin(*undone).finish()
    assert code == 0
    said = [line.split(": ")[1] for line in told.splitlines() if ": " in line and not line.startswith(" ")]
    assert said == [
        "2 × A-1 reserved", "500 cents charged", "payment-A-1 refunded", "reservation-A-1 released",
    ]  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_expense_expires_when_nobody_decides(name: str, desk: Programs) -> None:
    assert run(desk, example(name).runs()[0])["output"] == {"status": "expired"}


@pytest.mark.parametrize("name", DECIDED)
def test_expense_is_approved_by_a_signal(name: str, desk: Programs) -> None:
    chosen = example(name)
    waiting = desk.begin(*chosen.runs()[1], "--json")
    until(lambda: _awaits(desk, "signal"), "the workflow waits for the decision")
    [decide] = [command for command in chosen.commands if command[0] == "signal"]
    code, _, _ = desk.begin(*decide).finish()
    assert code == 0
    assert waiting.result()["output"] == {"status": "approved", "by": "Grace"}


def test_reminders_are_sent_until_the_deadline(desk: Programs) -> None:
    told = run(desk, example("approval/expense.flow").runs()[0])
    assert told["tasks"]["mail"]["runs"] == 3


@pytest.mark.parametrize("name", ["report/report.py", "report/report.flow", "report/report.yaml"])
def test_report_adds_up_all_shops(name: str, desk: Programs) -> None:
    told = run(desk, example(name).runs()[0])
    assert told["output"] == {"published": "Sales, 3 lines", "total": 120_700, "best": "Oslo"}


@pytest.mark.parametrize("name", ["report/report.py", "report/report.flow", "report/report.yaml"])
def test_report_runs_on_its_schedule(name: str, desk: Programs) -> None:
    chosen = example(name)
    for command in chosen.commands:
        if command[0] in ("deploy", "schedule"):
            code, out, err = desk.begin(*command).finish()
            assert code == 0, out + err
    worker = desk.begin("worker", "--app", "examples/report/report.py", "--quiet")
    assert desk.begin("schedule", "trigger", "nightly").finish()[0] == 0
    ended = until(lambda: _newest_ended(desk), "the report that the schedule started")
    worker.send(signal.SIGTERM)
    assert worker.finish()[0] == 0
    assert ended["status"] == "COMPLETED"


@pytest.mark.parametrize("name", ["agent/agent.py", "agent/agent.flow"])
def test_agent_calls_tools_until_it_knows(name: str, desk: Programs) -> None:
    told = run(desk, example(name).runs()[0])
    assert told["output"] == {"answer": "Rome is 15 degrees warmer than Oslo.", "turns": 3}
    assert {task: part["runs"] for task, part in told["tasks"].items()} == {
        "think": 3, "temperature": 2, "subtract": 1,
    }  # fmt: skip


def _awaits(desk: Programs, kind: str) -> bool:
    code, out, _ = desk.begin("why", "last", "--json").finish()
    return code == 0 and kind in {wait["kind"] for wait in json.loads(out)["waits"]}


def _newest_ended(desk: Programs) -> dict[str, Any] | None:
    listed = desk.begin("ls", "--json").result()["executions"]
    return next((each for each in listed if each["ended_at"] is not None), None)
