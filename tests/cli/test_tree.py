"""The live view, drawn from snapshots: no execution is needed."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from dalsegno.cli.live.graph_progress import Activity, Snapshot, activities
from dalsegno.cli.live.graph_view import TreeView
from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import span
from dalsegno.core.states import NodeSummary
from dalsegno.graph.build import load_graph
from dalsegno.graph.plan import Plan
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenView
from dalsegno.nodes.registry import builtin_registry
from tests.cli.documents import STEPS


def plan_of(text: str) -> Plan:
    return load_graph(text, builtin_registry()).plan


def execution(state: Any = "RUNNING") -> ExecutionView:
    ended = 112.0 if state == "COMPLETED" else None
    return ExecutionView(
        "0" * 32, "steps", 1, "hash", state, b"{}", 100.0, 110.0, 1, 1, 9, 0, (), None, None, None, None, ended,
        None, None, None,
    )  # fmt: skip


def draw(plan: Plan, snapshot: Snapshot, *, encoding: str = "utf-8", height: int = 30) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=80, height=height, highlight=False)
    console.print(TreeView(plan, console).draw(snapshot))
    file.flush()
    file.seek(0)
    return file.read()


def snapshot(plan: Plan, states: dict[str, str], **parts: Any) -> Snapshot:
    summaries = {
        name: NodeSummary(states.get(name, "PENDING"), 1 if states.get(name) == "COMPLETED" else 0)  # type: ignore[arg-type]
        for name in plan.nodes
    }
    return Snapshot(execution(parts.pop("state", "RUNNING")), summaries, now=110.0, **parts)


def test_items_stand_below_their_split_with_a_bar() -> None:
    plan = plan_of(STEPS)
    drawn = draw(
        plan,
        snapshot(
            plan,
            {"list": "COMPLETED", "each": "COMPLETED", "work": "RUNNING", "all": "WAITING"},
            counts={"each": (4, 8), "all": (4, 8)},
            activities={"work": Activity(running=4), "all": Activity(sleeping=1)},
            began={"list": 100.0, "work": 105.0},
            ended={"list": 100.5},
        ),
    )
    lines = drawn.splitlines()
    assert lines[0].startswith("● steps v1 · 000000")
    assert "├─ ✓ list" in lines[1]
    assert "500 ms" in lines[1]
    assert "├─ ● each" in lines[2]
    assert "━━━━━━━━╸─────── 4/8" in lines[2]
    assert "│  └─ ● work" in lines[3]
    assert "4 running" in lines[3]
    assert "5.0 s" in lines[3]
    assert "└─ ◔ all" in lines[4]
    assert "4 of 8 arrived" in lines[4]
    assert max(map(len, lines)) <= 80


def test_waits_and_retries_count_down() -> None:
    plan = plan_of(
        "nodes: [{id: nap, type: wait}, {id: call, type: http, parameters: {url: 'http://x.y'}}]\nname: n"
    )
    drawn = draw(
        plan,
        snapshot(
            plan,
            {"nap": "WAITING", "call": "WAITING"},
            activities={
                "nap": Activity(sleeping=1, due=175.0),
                "call": Activity(sleeping=1, due=113.0, retrying=2),
            },
        ),
    )
    assert "wakes in 1:05" in drawn
    assert "attempt 2 in 3 s" in drawn


def test_terminal_without_unicode_gets_plain_signs() -> None:
    plan = plan_of(STEPS)
    drawn = draw(plan, snapshot(plan, {"list": "COMPLETED"}, counts={"each": (2, 4)}), encoding="ascii")
    assert drawn.isascii()
    assert "|- + list" in drawn
    assert "#########------- 2/4" in drawn


def test_large_graph_shows_what_matters_in_a_small_terminal() -> None:
    nodes = ", ".join(f"{{id: n{number:03}, type: log, parameters: {{message: x}}}}" for number in range(200))
    edges = ", ".join(f"{{id: e{number}, src: n{number:03}, dst: n{number + 1:03}}}" for number in range(199))
    plan = plan_of(f"name: large\nnodes: [{nodes}]\nedges: [{edges}]")
    states = {f"n{number:03}": "COMPLETED" for number in range(150)}
    drawn = draw(plan, snapshot(plan, {**states, "n150": "RUNNING"}), height=24)
    assert len(drawn.splitlines()) <= 24
    assert "n150" in drawn
    assert "more" in drawn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250 ms"), (12.34, "12.3 s"), (185, "3:05 min"), (7800, "2 h 10 min"), (273_600, "3 d 4 h")],
)
def test_spans_read_well(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0 s"), (0.2, "1 s"), (65, "1:05"), (7209, "2:00:09")])
def test_countdowns_read_well(seconds: float, text: str) -> None:
    assert countdown(seconds) == text


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ({"awaits": "signal:go"}, "waiting for signal go"),
        ({"awaits": "signal:go", "due": 170.0}, "waiting for signal go, gives up in 1:00"),
        ({"awaits": "child:abc", "attempt": 2}, "waiting for execution abc"),
    ],
)
def test_a_node_that_waits_for_something_from_outside_says_so(token: dict[str, Any], words: str) -> None:
    plan = plan_of("{name: a, nodes: [{id: gate, type: approval}]}")
    view = TokenView(
        "t", "", "node", "gate", "parked", "default", 0, None, True, 1, 0, "", None, None, 1, b""
    )
    parked = msgspec.structs.replace(view, **token)
    drawn = draw(plan, snapshot(plan, {"gate": "WAITING"}, activities=activities([parked])))
    assert words in drawn


@pytest.mark.parametrize(
    ("activity", "told"),
    [
        (Activity(sleeping=1, awaits="a decision", signal="d", asks=True), "decide it: dalsegno approve"),
        (Activity(sleeping=2, awaits="a decision", signal="d", asks=True), "decide them: dalsegno approvals"),
        (Activity(sleeping=1, awaits="signal go", signal="go"), "send it: dalsegno signal"),
    ],
)
def test_what_people_can_do_stands_below_the_tree(activity: Activity, told: str) -> None:
    plan = plan_of("{name: a, nodes: [{id: gate, type: approval}]}")
    moment = snapshot(plan, {"gate": "WAITING"}, activities={"gate": activity})
    console = Console(file=io.StringIO(), width=200, height=30, highlight=False)
    console.print(TreeView(plan, console, Command("sqlite:///here.db")).draw(moment))
    assert isinstance(console.file, io.StringIO)
    assert told in console.file.getvalue()
    assert "dalsegno" not in draw(plan, moment)
