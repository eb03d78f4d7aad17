"""The live view of scripts, drawn from moments: no execution is needed."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from dalsegno.cli.live.graph_progress import Activity
from dalsegno.cli.live.screen import describe_events
from dalsegno.cli.live.script_progress import Pending, ScriptMoment
from dalsegno.cli.live.script_view import ScriptView
from dalsegno.cli.next_command import Command
from dalsegno.cli.views.show import as_json
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.states import NodeSummary
from dalsegno.model.event import Event
from tests.cli.test_tree import execution

SOURCE = SourceText("", 1, tuple(f"    step({number})" for number in range(1, 21)))


def draw(moment: ScriptMoment, *, encoding: str = "utf-8", width: int = 80, height: int = 30) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, height=height, highlight=False)
    console.print(ScriptView(SOURCE, console, Command("sqlite:///s.db")).draw(moment))
    file.flush()
    file.seek(0)
    return file.read()


def moment(tasks: dict[str, NodeSummary] | None = None, **parts: Any) -> ScriptMoment:
    return ScriptMoment(execution(parts.pop("state", "RUNNING")), tasks or {}, now=110.0, **parts)


def test_current_line_stands_marked_among_its_neighbours() -> None:
    lines = draw(moment(line=10)).splitlines()
    assert [line.strip() for line in lines[2:7]] == [
        "8 │ step(8)", "9 │ step(9)", "▶ 10 │ step(10)", "11 │ step(11)", "12 │ step(12)",
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "shown"), [(1, (1, 5)), (20, (16, 20))])
def test_at_an_end_of_the_text_more_of_the_other_side_is_shown(line: int, shown: tuple[int, int]) -> None:
    numbers = [number for number, _ in SOURCE.around(line)]
    assert (numbers[0], numbers[-1]) == shown


def test_a_line_that_the_text_does_not_have_shows_nothing() -> None:
    assert SOURCE.around(99) == []
    assert "│" not in draw(moment(line=99))


def test_running_tasks_show_attempt_and_duration_and_come_first() -> None:
    drawn = draw(
        moment(
            {"done": NodeSummary("COMPLETED", 3), "busy": NodeSummary("RUNNING", 0)},
            activities={"busy": Activity(running=1, attempt=2)},
            began={"busy": 98.0},
        )
    )
    first, second = drawn.splitlines()[1:3]
    assert "busy" in first
    assert "running (attempt 2)" in first
    assert first.rstrip().endswith("12.0 s")
    assert "3 done" in second


def test_waits_count_down_and_tell_how_to_signal() -> None:
    drawn = draw(
        moment(
            pending=(
                Pending("signal", "go", 175.0),
                Pending("timer", due=113.0, count=3),
                Pending("child", "bill", execution="abc"),
                Pending("limit", "grace", 120.0),
            )
        )
    )
    assert "signal go" in drawn
    assert "has not arrived · gives up in 1:05" in drawn
    assert "fires in 3 s · 2 more later" in drawn
    assert "execution abc" in drawn
    assert "in 10 s" in drawn
    assert f"send it: dalsegno signal {'0' * 32} go" in drawn
    assert "--store" in drawn


def test_retries_and_failures_are_counted() -> None:
    drawn = draw(
        moment(
            {"flaky": NodeSummary("WAITING", 4, failed=1)},
            activities={"flaky": Activity(sleeping=2, due=115.0, retrying=3)},
        )
    )
    assert "2 attempt 3 in 5 s · 3 done · 1 failed" in drawn


def test_program_itself_is_told_while_it_has_something_to_do() -> None:
    assert "is running" in draw(moment(turning="running"))
    assert "waits for a worker" in draw(moment(turning="queued"))
    assert "held" in draw(moment(turning="queued", state="PAUSED"))
    assert "it was cancelled and cleans up" in draw(moment(cleanup="it was cancelled and cleans up"))


def test_small_terminal_gets_the_loud_tasks_and_a_count() -> None:
    tasks = {f"t{number:03}": NodeSummary("COMPLETED", 1) for number in range(100)}
    tasks["busy"] = NodeSummary("RUNNING", 0)
    drawn = draw(moment(tasks, activities={"busy": Activity(running=1)}, line=3), height=20)
    assert len(drawn.splitlines()) <= 20
    assert "busy" in drawn
    assert "more" in drawn


def test_terminal_without_unicode_gets_plain_signs() -> None:
    drawn = draw(moment({"done": NodeSummary("COMPLETED", 1)}, line=3), encoding="ascii")
    assert drawn.isascii()
    assert "> 3 |" in drawn


def test_lines_fit_the_terminal() -> None:
    drawn = draw(moment({"x" * 200: NodeSummary("COMPLETED", 1)}, line=3), width=40)
    assert max(map(len, drawn.splitlines())) <= 40


# -- plain lines ------------------------------------------------------------------------------------------------


def event(kind: Any, node: str = "", seq: int = 1, **data: Any) -> Event:
    return Event("e", seq, kind, node, "", 100.0, msgspec.json.encode(data) if data else None, None)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (event("Suspended", "task charge", line=4), "line 4: waits for task charge"),
        (
            event("TaskCompleted", "charge", started_at=99.5, attempt=2),
            "charge completed in 500 ms (attempt 2)",
        ),
        (event("TaskFailed", "charge", error={"message": "no"}), "charge failed: no"),
        (
            event("TaskRetrying", "charge", error={"message": "no"}, attempt=1, retry_at=103.0),
            "charge failed: no; attempt 2 follows in 3 s",
        ),
        (
            event(
                "TaskFailed",
                "charge",
                error={"message": "'count'", "code": "TASK_FAILED", "type": "KeyError"},
            ),
            "charge failed: KeyError: 'count'",
        ),
        (
            event(
                "TaskFailed", "charge", error={"message": "", "code": "TASK_FAILED", "type": "AssertionError"}
            ),
            "charge failed: AssertionError",
        ),
        (event("TaskHandedOver", "mail", execution="x1"), "mail continues as execution x1"),
        (event("TimerFired"), "a timer fired"),
        (event("TimerFired", "go", signal=True), "signal go did not arrive in time"),
        (event("SignalReceived", "go", payload=1), "signal go received"),
        (event("ChildStarted", "bill", execution="c1"), "workflow bill started: execution c1"),
        (event("ChildEnded", "bill", error=None), "workflow bill completed"),
        (event("ChildEnded", "bill", error={"message": "no"}), "workflow bill failed: no"),
        (event("CancelRequested", reason="enough"), "asked to end: enough"),
    ],
)
def test_events_are_told_as_sentences(told: Event, line: str) -> None:
    assert describe_events([told]) == [line]


def test_where_the_program_went_on_in_the_same_commit_is_told_too() -> None:
    fused = event("TaskCompleted", "charge", then={"line": 9, "awaits": "timer"})
    assert describe_events([fused])[-1] == "line 9: waits for timer"


def test_many_alike_are_counted() -> None:
    assert describe_events([event("TaskCompleted", "charge")] * 1000) == ["charge completed (1,000 times)"]


def test_events_of_graphs_are_passed_over() -> None:
    assert describe_events([event("NodeCompleted", "n"), event("ExecutionStarted")]) == []


# -- variables --------------------------------------------------------------------------------------------------


def test_variables_that_json_cannot_carry_are_told_by_their_text() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    assert as_json({"a": (1, 2)}) == {"a": [1, 2]}
    assert as_json({"a": {1, 2}}) == {"a": "{1, 2}"}
    assert as_json({(1, 2): 3}) == "{(1, 2): 3}"
    assert "is not available" in as_json(Odd())
