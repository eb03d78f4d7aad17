"""Statuses made from histories, as a table of events and what is told of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dalsegno.core.wire.statuses import Statuses, completion_body, names_of, status_body, utc_text
from dalsegno.graph.build import load_graph
from dalsegno.model.event import Event
from dalsegno.nodes.registry import builtin_registry
from tests.wire.documents import SPLIT

PLAN = load_graph(SPLIT, builtin_registry(plugins=False)).plan
AT = 1_760_000_000.0


def event(seq: int, kind: Any, node: str = "w", *, scope: str = "", token: str = "t1", **data: Any) -> Event:
    counts = {name: data.pop(name, None) for name in ("arrived", "expected")}
    at = data.pop("at", AT + seq)
    raw = json.dumps(data).encode() if data else None
    return Event("e1", seq, kind, node, scope, at, raw, token, **counts)


def told(*events: Event) -> list[tuple[int, str, str]]:
    statuses = Statuses(PLAN)
    return [(found.number, found.node, found.status) for each in events for found in statuses.add(each)]


RUN: dict[str, Any] = {"started_at": AT, "attempt": 1}
CASES: dict[str, tuple[list[Event], list[tuple[int, str]]]] = {
    "a short run": ([event(2, "NodeCompleted", **RUN)], [(2, "running"), (2, "success")]),
    "a long run": (
        [event(2, "NodeStarted", **RUN), event(3, "NodeCompleted", **RUN)],
        [(2, "running"), (3, "success")],
    ),
    "a long run told twice": (
        [event(2, "NodeStarted", **RUN), event(3, "NodeStarted", **RUN), event(4, "NodeFailed", **RUN)],
        [(2, "running"), (4, "failed")],
    ),
    "two attempts": (
        [event(2, "NodeRetrying", retry_at=AT, **RUN), event(3, "NodeCompleted", **{**RUN, "attempt": 2})],
        [(2, "running"), (2, "waiting"), (3, "running"), (3, "success")],
    ),
    "a long first attempt": (
        [
            event(2, "NodeStarted", **RUN),
            event(3, "NodeRetrying", retry_at=AT, **RUN),
            event(4, "NodeStarted", started_at=AT, attempt=2),
            event(5, "NodeCompleted", started_at=AT, attempt=2),
        ],
        [(2, "running"), (3, "waiting"), (4, "running"), (5, "success")],
    ),
    "a wait": (
        [event(2, "NodeWaiting", resume_at=AT + 9, **RUN), event(3, "NodeCompleted", **RUN)],
        [(2, "waiting"), (3, "running"), (3, "success")],
    ),
    "two runs of one node": (
        [event(2, "NodeCompleted", token="t1", **RUN), event(3, "NodeCompleted", token="t2", **RUN)],
        [(2, "running"), (2, "success"), (3, "running"), (3, "success")],
    ),
    "a split that an item fails": (
        [event(2, "NodeCompleted", items=2, **RUN), event(3, "NodeFailed", tripped=True, **RUN)],
        [(2, "running"), (2, "success"), (3, "failed")],
    ),
    "skipped": ([event(2, "NodeSkipped")], [(2, "skipped")]),
    "dropped, requeued, paused": (
        [event(2, "ArrivalDropped"), event(3, "NodeRequeued"), event(4, "ExecutionPaused", "")],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_events_become_statuses(name: str) -> None:
    events, expected = CASES[name]
    assert [(number, status) for number, _, status in told(*events)] == expected


def test_what_the_ending_called_off_has_its_time() -> None:
    statuses = Statuses(PLAN)
    statuses.add(event(1, "ExecutionStarted", "", at=AT))
    statuses.add(
        event(2, "ExecutionFailed", "w", at=AT + 5, error={"message": "m", "code": "C", "details": None})
    )
    [cancelled] = statuses.add(event(3, "NodeCancelled", "z", at=AT + 9))
    completion = statuses.completion()
    assert completion is not None
    assert (cancelled.status, cancelled.at) == ("cancelled", completion.at)
    assert (completion.id("e1"), completion.duration) == ("e1:2:halted", 5)


@pytest.mark.parametrize(
    ("kind", "node", "status", "code"),
    [
        ("ExecutionCompleted", "", "completed", None),
        ("ExecutionFailed", "w", "halted", "C"),
        ("ExecutionFailed", "", "failed", "C"),
        ("ExecutionCancelled", "", "failed", "CANCELLED"),
    ],
)
def test_endings(kind: str, node: str, status: str, code: str | None) -> None:
    statuses = Statuses(PLAN)
    statuses.add(event(1, "ExecutionStarted", "", at=AT))
    statuses.add(event(2, kind, node, error={"message": "m", "code": "C"}))
    completion = statuses.completion()
    assert completion is not None
    body = json.loads(completion_body(names_of(statuses, "e1", "wf"), completion, {}))
    assert body["status"] == status
    assert (body["error"] or {}).get("code") == code
    assert body["final_context"] == {}


def test_every_status_has_every_field_and_its_lineage() -> None:
    statuses = Statuses(PLAN)
    start: dict[str, Any] = {"adopted": {"workflow_id": "theirs", "keys": ["$x"], "node": "s"}}
    statuses.add(event(1, "ExecutionStarted", "", **start))
    statuses.add(event(2, "NodeCompleted", "s", token="0123456789abcdef-rest", items=3, **RUN))
    scope = "/0123456789abcdef:1"
    _, success = statuses.add(event(3, "NodeCompleted", scope=scope, at=AT + 1.5, output={"n": 1}, **RUN))
    body = json.loads(status_body(names_of(statuses, "e1", "wf"), statuses, success, None))
    assert body == {
        "workflow_id": "theirs",
        "execution_id": "e1",
        "node_id": "w",
        "node_name": "W",
        "status": "success",
        "output": {"n": 1},
        "error": None,
        "executed_at": "2025-10-09T08:53:21.500Z",
        "duration_ms": 1500,
        "lineage_stack": [{"split_node_id": "s", "branch_id": "s-1", "item_index": 1, "total_items": 3}],
        "from_node": "s",
        "attempt": 1,
    }
    assert statuses.keys == ("$x",)


def test_progress_of_barriers() -> None:
    statuses = Statuses(PLAN)
    [merge] = statuses.add(event(2, "NodeWaiting", "z", arrived=1, expected=2))
    [items] = statuses.add(event(3, "NodeWaiting", "g", arrived=4, expected=9))
    assert merge.details == {"arrived": 1, "expected": 2}
    assert items.details == {"processed": 4, "total": 9}
    [wait] = statuses.add(event(4, "NodeWaiting", "z", resume_at=AT, **RUN))
    body = json.loads(status_body(names_of(statuses, "e1", "wf"), statuses, wait, None))
    assert body["details"] == body["metadata"] == {"resume_at": AT * 1000}


def test_time_is_utc_with_milliseconds() -> None:
    assert utc_text(AT + 0.0019) == "2025-10-09T08:53:20.001Z"
