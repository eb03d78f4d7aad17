"""The checks of histories find every kind of error: each right history below is spoilt in one way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import msgspec
import pytest
from msgspec.structs import replace

from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ExecutionView
from dalsegno.model.ids import task_execution_id
from dalsegno.testing.histories import (
    RULES,
    Asked,
    History,
    Rows,
    SignalFact,
    TokenFact,
    order_problems,
    problems,
)
from tests.rows import rows

RUN, CHILD = "run", "child"
KINDS: frozenset[str] = frozenset(get_args(EventKind))


def view(id: str = RUN, state: str = "COMPLETED", kind: str = "graph", **fields: Any) -> ExecutionView:
    settings: dict[str, Any] = {
        "workflow": "w",
        "version": 1,
        "definition": "",
        "input": b"{}",
        "created_at": 0.0,
        "touched_at": 0.0,
        "epoch": 0,
        "live": 0,
        "seq": 0,
        "priority": 0,
        "tags": (),
        "idempotency_key": None,
        "parent": None,
        "relation": None,
        "paused_at": None,
        "ended_at": None,
        "output": None,
        "context": None,
        "error": None,
        **fields,
    }
    return ExecutionView(id=id, state=state, kind=kind, **settings)  # type: ignore[arg-type]


def told(kind: str, node: str = "", token: str | None = None, scope: str = "", **data: Any) -> Event:
    counts = {name: data.pop(name) for name in ("arrived", "expected") if name in data}
    raw = msgspec.json.encode(data) if data else None
    return Event(RUN, 0, kind, node, scope, 0.0, raw, token, **counts)  # type: ignore[arg-type]


def numbered(events: Iterable[Event]) -> list[Event]:
    return [replace(event, seq=number, at=float(number)) for number, event in enumerate(events, 1)]


STARTED, COMPLETED = told("ExecutionStarted"), told("ExecutionCompleted")
HANDED_OVER = task_execution_id("t3")
A_CHILD = view(CHILD, parent=RUN, relation="child")

GRAPH = History(
    view(),
    numbered(
        [
            told("ExecutionSubmitted"),
            STARTED,
            told("ExecutionPaused"),
            told("ExecutionResumed"),
            told("NodeStarted", "a", "a1", started_at=1.5),
            told("NodeRetrying", "a", "a1", error={"code": "X"}),
            told("NodeStarted", "a", "a1", attempt=2, started_at=3.5),
            told("NodeRequeued", "a", "a1", attempt=2, by_hand={"action": "requeue"}, decision="d1"),
            told("NodeCompleted", "a", "a1", attempt=2),
            told("NodeWaiting", "m", arrived=1, expected=3),
            told("NodeWaiting", "m", arrived=2, expected=3),
            told("ArrivalDropped", "m", "a1"),
            told("NodeWaiting", "s", "s1", signal="go"),
            told("SignalReceived", "go", id="g1"),
            told("NodeCompleted", "s", "s1"),
            told("ChildStarted", "c", "c1", execution=CHILD),
            told("NodeWaiting", "c", "c1", child=CHILD),
            told("ChildEnded", "w", execution=CHILD, error=None),
            told("NodeCompleted", "c", "c1"),
            told("NodeFailed", "f", "f1"),
            told("NodeSkipped", "x"),
            COMPLETED,
            told("NodeCancelled", "y", "y1"),
        ]
    ),
    Rows(
        (
            TokenFact("a1", "node", "a", "", "consumed", attempt=2),
            TokenFact("j1", "join", "x", "", "consumed"),
            TokenFact("y1", "node", "y", "", "cancelled"),
            TokenFact("z1", "node", "z", "", "parked"),
        ),
        (SignalFact("g1", "go", 14),),
    ),
    Asked(("g1",), pauses=1, resumes=1),
    {RUN: view(), CHILD: A_CHILD},
    settled=True,
)
SCRIPT = History(
    view(state="CANCELLED", kind="script", version=3, tags=(("stage", "two"),)),
    numbered(
        [
            STARTED,
            told("Suspended"),
            told("TagsChanged", tags={"stage": "one", "old": None}),
            told("TagsChanged", tags={"stage": "two"}),
            told("VersionChanged", **{"from": 1, "to": 2}),
            told("VersionChanged", **{"from": 2, "to": 3}),
            told("TaskStarted", "t", "t1", attempt=1, started_at=2.5),
            told("TaskRetrying", "t", "t1", attempt=1),
            told("TaskRequeued", "t", "t1", attempt=2, by_hand={"action": "requeue"}, decision="d1"),
            told("TaskCompleted", "t", "t1", attempt=2),
            told("TaskFailed", "t", "t2", attempt=1),
            told("TimerFired", "", "p1"),
            told("RequestReceived", "quote", id="q1"),
            told("RequestAnswered", "quote", id="q1"),
            told("CancelRequested", reason=None),
            told("TaskHandedOver", "t", "t3", execution=HANDED_OVER),
            told("ExecutionCancelled"),
            told("TaskCancelled", "t", "t4"),
        ]
    ),
    Rows(
        (
            TokenFact("t1", "task", "t", "", "consumed", attempt=2),
            TokenFact("p1", "timer", "", "", "consumed"),
            TokenFact("t4", "task", "t", "", "cancelled"),
        ),
        turns=1,
    ),
    others={HANDED_OVER: view(HANDED_OVER, kind="task", parent=RUN, relation="task")},
)
FAILED = History(view(state="FAILED"), numbered([STARTED, told("ExecutionFailed")]))
RIGHT = {"graph": GRAPH, "script": SCRIPT, "failed": FAILED}

Spoil = Callable[[History], History]


def with_events(history: History, events: Sequence[Event]) -> History:
    """Numbered anew: an event more or less is no gap. Signals are stored under the numbers of their events."""
    rows = history.rows
    if rows is not None and rows.signals:
        places = [number for number, event in enumerate(events, 1) if event.kind == "SignalReceived"]
        rows = replace(
            rows,
            signals=tuple(replace(each, number=at) for each, at in zip(rows.signals, places, strict=False)),
        )
    return replace(history, events=numbered(events), rows=rows)


def twice(kind: EventKind, place: int = 0) -> Spoil:
    """The event was recorded a second time, as by a second delivery."""

    def spoil(history: History) -> History:
        [*found] = [index for index, event in enumerate(history.events) if event.kind == kind]
        at = found[place]
        return with_events(history, [*history.events[: at + 1], *history.events[at:]])

    return spoil


def without(kind: EventKind, place: int = 0) -> Spoil:
    def spoil(history: History) -> History:
        [*found] = [index for index, event in enumerate(history.events) if event.kind == kind]
        return with_events(
            history, [event for index, event in enumerate(history.events) if index != found[place]]
        )

    return spoil


def later(kind: EventKind, after: EventKind) -> Spoil:
    """The first one of a kind was recorded after the last one of another kind."""

    def spoil(history: History) -> History:
        moved = next(event for event in history.events if event.kind == kind)
        others = [event for event in history.events if event is not moved]
        place = max(index for index, event in enumerate(others) if event.kind == after)
        return with_events(history, [*others[: place + 1], moved, *others[place + 1 :]])

    return spoil


def added(*events: Event, before: EventKind) -> Spoil:
    def spoil(history: History) -> History:
        place = next(index for index, event in enumerate(history.events) if event.kind == before)
        return with_events(history, [*history.events[:place], *events, *history.events[place:]])

    return spoil


def row(**fields: Any) -> Spoil:
    return lambda history: replace(history, execution=replace(history.execution, **fields))


def token(id: str, **fields: Any) -> Spoil:
    def spoil(history: History) -> History:
        rows = history.rows or Rows()
        changed = tuple(replace(each, **fields) if each.id == id else each for each in rows.tokens)
        return replace(history, rows=replace(rows, tokens=changed))

    return spoil


def other(execution: ExecutionView) -> Spoil:
    return lambda history: replace(history, others={**(history.others or {}), execution.id: execution})


def changed(kind: EventKind, **fields: Any) -> Spoil:
    def spoil(history: History) -> History:
        first = next(event for event in history.events if event.kind == kind)
        return replace(
            history, events=[replace(each, **fields) if each is first else each for each in history.events]
        )

    return spoil


def data(**fields: Any) -> bytes:
    return msgspec.json.encode(fields)


SPOILT: list[tuple[str, str, Spoil, str]] = [
    # kind, or what the rule is about · the right history · how it is spoilt · what is said of it
    ("order", "graph", changed("NodeFailed", seq=40), "has the number 40"),
    ("order", "graph", row(seq=99), "its row counts 99 events"),
    ("order", "graph", changed("NodeFailed", execution="another"), "has events of another"),
    ("order", "graph", changed("NodeFailed", at=1.0), "before event 19"),
    ("order", "graph", later("NodeSkipped", after="ExecutionCompleted"), "comes after the end"),
    ("order", "graph", added(told("ExecutionFailed"), before="ExecutionCompleted"), "it has 2 endings"),
    ("order", "graph", without("ExecutionCompleted"), "its history has no ending"),
    ("ExecutionSubmitted", "graph", twice("ExecutionSubmitted"), "submitted 2 times"),
    (
        "ExecutionSubmitted",
        "graph",
        later("ExecutionSubmitted", after="ExecutionStarted"),
        "not by the first",
    ),
    ("ExecutionStarted", "graph", twice("ExecutionStarted"), "started 2 times"),
    ("ExecutionStarted", "script", without("ExecutionStarted"), "neither a start nor a submission"),
    ("ExecutionStarted", "script", later("ExecutionStarted", after="Suspended"), "not by the first one"),
    ("ExecutionStarted", "graph", row(state="PENDING"), "it is PENDING, but was started"),
    ("ExecutionPaused", "graph", twice("ExecutionPaused"), "repeats event 3"),
    ("ExecutionPaused", "graph", lambda h: replace(h, asked=Asked(pauses=0)), "only 0 pauses"),
    ("ExecutionPaused", "graph", row(state="PAUSED"), "its last pause has ended"),
    ("ExecutionResumed", "graph", twice("ExecutionResumed"), "repeats event 4"),
    ("ExecutionResumed", "graph", without("ExecutionPaused"), "nothing had paused it"),
    ("ExecutionResumed", "graph", lambda h: replace(h, asked=Asked(resumes=0)), "only 0 resumes"),
    ("ExecutionCompleted", "graph", twice("ExecutionCompleted"), "it has 2 endings"),
    ("ExecutionCompleted", "graph", row(state="FAILED"), "says ExecutionCompleted, but it is FAILED"),
    ("ExecutionFailed", "failed", twice("ExecutionFailed"), "it has 2 endings"),
    ("ExecutionFailed", "failed", row(state="COMPLETED"), "says ExecutionFailed, but it is COMPLETED"),
    ("ExecutionCancelled", "script", twice("ExecutionCancelled"), "it has 2 endings"),
    ("ExecutionCancelled", "script", row(state="FAILED"), "says ExecutionCancelled, but it is FAILED"),
    ("NodeStarted", "graph", twice("NodeStarted"), "shown as started 2 times"),
    ("NodeStarted", "graph", later("NodeStarted", after="NodeRetrying"), "after event 5 (NodeRetrying)"),
    ("NodeStarted", "graph", later("NodeStarted", after="NodeSkipped"), "said that it is over"),
    ("NodeCompleted", "graph", twice("NodeCompleted"), "ended 2 times: NodeCompleted, NodeCompleted"),
    ("NodeCompleted", "graph", without("NodeCompleted"), "token a1 (node a) was consumed, but no event"),
    ("NodeCompleted", "graph", token("a1", state="ready"), "token a1 (node a) is ready, but has the events"),
    ("NodeCompleted", "graph", changed("NodeCompleted", token=None), "names no token"),
    ("NodeFailed", "graph", twice("NodeFailed"), "ended 2 times: NodeFailed, NodeFailed"),
    ("NodeRetrying", "graph", twice("NodeRetrying"), "after the attempts [1, 1]"),
    ("NodeRetrying", "graph", without("NodeRetrying"), "is at attempt 2, but was tried again after"),
    ("NodeRetrying", "graph", token("a1", attempt=3), "is at attempt 3"),
    ("NodeWaiting", "graph", twice("NodeWaiting"), "arrival 1 at m in scope '' is told 2 times"),
    ("NodeWaiting", "graph", twice("NodeWaiting", 2), "token s1 began to wait 2 times"),
    ("NodeWaiting", "graph", changed("NodeWaiting", arrived=4), "4 arrivals of 3"),
    ("NodeSkipped", "graph", twice("NodeSkipped"), "node x was skipped 2 times"),
    ("NodeSkipped", "graph", changed("NodeSkipped", node="a"), "node a was skipped and ran"),
    ("NodeSkipped", "graph", without("NodeSkipped"), "token j1 (join x) was consumed, but no event"),
    ("NodeCancelled", "graph", twice("NodeCancelled"), "ended 2 times: NodeCancelled, NodeCancelled"),
    (
        "NodeCancelled",
        "graph",
        without("NodeCancelled"),
        "token y1 (node y) was dropped, but has the events []",
    ),
    ("NodeCancelled", "graph", changed("NodeCancelled", token="a1"), "NodeCompleted, NodeCancelled"),
    ("ArrivalDropped", "graph", twice("ArrivalDropped"), "was dropped 2 times"),
    ("ArrivalDropped", "graph", changed("ArrivalDropped", token=None), "does not say whose"),
    ("Suspended", "script", twice("Suspended"), "suspended 2 times in 1 turns"),
    ("Suspended", "graph", added(told("Suspended"), before="NodeFailed"), "it is a graph, but"),
    ("TaskStarted", "script", twice("TaskStarted"), "shown as started 2 times"),
    ("TaskStarted", "script", later("TaskStarted", after="TaskCompleted"), "said that it is over"),
    ("TaskCompleted", "script", twice("TaskCompleted"), "ended 2 times: TaskCompleted, TaskCompleted"),
    ("TaskCompleted", "script", without("TaskCompleted"), "token t1 (task t) was consumed, but no event"),
    ("TaskFailed", "script", twice("TaskFailed"), "ended 2 times: TaskFailed, TaskFailed"),
    ("TaskRetrying", "script", twice("TaskRetrying"), "after the attempts [1, 1]"),
    ("TaskRetrying", "script", without("TaskRetrying"), "is at attempt 2, but was tried again after"),
    ("NodeRequeued", "graph", twice("NodeRequeued"), "(NodeRequeued) repeats event"),
    ("NodeRequeued", "graph", later("NodeRequeued", after="NodeFailed"), "said that it is over"),
    ("TaskRequeued", "script", twice("TaskRequeued"), "(TaskRequeued) repeats event"),
    ("TaskRequeued", "script", later("TaskRequeued", after="TaskFailed"), "said that it is over"),
    ("TaskCancelled", "script", twice("TaskCancelled"), "ended 2 times: TaskCancelled, TaskCancelled"),
    ("TaskCancelled", "script", without("TaskCancelled"), "token t4 (task t) was dropped, but has"),
    ("TaskHandedOver", "script", twice("TaskHandedOver"), "ended 2 times: TaskHandedOver, TaskHandedOver"),
    ("TaskHandedOver", "script", without("TaskHandedOver"), "no event hands it over"),
    ("TaskHandedOver", "script", lambda h: replace(h, others={}), "there is no execution"),
    ("TaskHandedOver", "script", changed("TaskHandedOver", data=data(execution="x")), "over to x, not to"),
    ("TimerFired", "script", twice("TimerFired"), "ended 2 times: TimerFired, TimerFired"),
    ("TimerFired", "script", without("TimerFired"), "token p1 (timer ) was consumed, but no event"),
    ("TimerFired", "script", token("p1", state="parked"), "is parked, but has the events ['TimerFired']"),
    ("SignalReceived", "graph", twice("SignalReceived"), "signal 'g1' was received 2 times"),
    ("SignalReceived", "graph", without("SignalReceived"), "signal 'g1' was accepted, but no event"),
    ("SignalReceived", "graph", without("SignalReceived"), "1 waits for signal 'go' went on, but 0"),
    ("SignalReceived", "graph", changed("SignalReceived", node="stop"), "event 14 does not say so"),
    (
        "SignalReceived",
        "graph",
        lambda h: replace(h, rows=Rows(signals=(SignalFact("g1", "go", 13), SignalFact("g2", "go", 13)))),
        "2 signals are stored for event 13",
    ),
    ("RequestReceived", "script", twice("RequestReceived"), "request 'q1' was received 2 times"),
    ("RequestAnswered", "script", twice("RequestAnswered"), "request 'q1' was answered 2 times"),
    (
        "RequestAnswered",
        "script",
        without("RequestReceived"),
        "but no event before says that it was received",
    ),
    (
        "RequestAnswered",
        "script",
        later("RequestReceived", after="RequestAnswered"),
        "but no event before says",
    ),
    ("ChildStarted", "graph", twice("ChildStarted"), "child child was started 2 times"),
    ("ChildStarted", "graph", without("ChildStarted"), "is a child of it, but no event says"),
    ("ChildStarted", "graph", other(replace(A_CHILD, parent="x")), "but is one of x"),
    ("ChildStarted", "graph", changed("ChildStarted", data=data(execution="gone")), "no such execution"),
    ("ChildStarted", "graph", changed("ChildStarted", data=None), "names no execution"),
    ("ChildEnded", "graph", twice("ChildEnded"), "child child ended 2 times"),
    ("ChildEnded", "graph", without("ChildEnded"), "no event before says that child child has ended"),
    ("ChildEnded", "graph", later("ChildStarted", after="ChildEnded"), "ended before it was started"),
    (
        "ChildEnded",
        "graph",
        changed("ChildStarted", data=data(execution="x")),
        "child child ended, but no event",
    ),
    (
        "ChildEnded",
        "graph",
        other(replace(A_CHILD, state="FAILED")),
        "ended without an error, but it is FAILED",
    ),
    ("ChildEnded", "graph", other(replace(A_CHILD, state="RUNNING")), "has ended, but it is RUNNING"),
    (
        "ChildEnded",
        "graph",
        lambda h: with_events(row(state="RUNNING")(h), [*h.events[:14], h.events[14]]),
        "child child is COMPLETED, but no event says",
    ),
    ("TagsChanged", "script", twice("TagsChanged"), "changes no tag"),
    ("TagsChanged", "script", row(tags=()), "leaves tag 'stage' as 'two', but it has None"),
    ("VersionChanged", "script", twice("VersionChanged"), "after version"),
    ("VersionChanged", "script", row(version=2), "leaves it with version 3, but it has version 2"),
    ("CancelRequested", "script", twice("CancelRequested"), "asked to end 2 times"),
    ("CancelRequested", "script", row(state="COMPLETED"), "asked to end, but COMPLETED"),
    ("CancelRequested", "script", row(kind="graph"), "a graph has no clean-up"),
    ("LogWritten", "graph", added(told("LogWritten"), before="NodeFailed"), "is a log line"),
]


@pytest.mark.parametrize("name", RIGHT)
def test_right_history_is_exact(name: str) -> None:
    assert problems(RIGHT[name]) == []
    assert order_problems(RIGHT[name]) == []


@rows(
    ("history", "spoil", "said"),
    [each[1:] for each in SPOILT],
    ids=[f"{number}-{each[0]}" for number, each in enumerate(SPOILT)],
)
def test_spoilt_history_is_noticed(history: str, spoil: Spoil, said: str) -> None:
    found = problems(spoil(RIGHT[history]))
    assert [sentence for sentence in found if said in sentence], found


def test_every_kind_of_event_has_a_rule() -> None:
    assert RULES.keys() == KINDS


def test_every_rule_is_seen_to_fail() -> None:
    assert {kind for kind, *_ in SPOILT} == KINDS | {"order"}


def test_every_kind_that_is_recorded_stands_in_a_right_history() -> None:
    seen = {event.kind for history in RIGHT.values() for event in history.events}
    assert seen == KINDS - {"LogWritten"}


@rows("kind", sorted(KINDS - {"LogWritten"}))
def test_an_event_that_is_recorded_twice_is_noticed_whatever_its_kind(kind: EventKind) -> None:
    history = next(each for each in RIGHT.values() if any(event.kind == kind for event in each.events))
    assert problems(twice(kind)(history))


def test_a_join_that_splits_tells_of_its_branches_and_then_of_its_items() -> None:
    waiting = told("NodeWaiting", "s", arrived=1, expected=2)
    events = [STARTED, waiting, told("NodeCompleted", "s", "s1"), waiting, COMPLETED]
    assert problems(History(view(), numbered(events))) == []
    assert problems(History(view(), numbered([*events[:4], waiting, COMPLETED]))) != []


def test_attempts_before_a_task_was_handed_over_are_told_by_its_script() -> None:
    task = view(kind="task", relation="task", parent="script")
    ended = numbered([STARTED, told("TaskCompleted", "t", "t1", attempt=3), COMPLETED])
    assert problems(History(task, ended)) == []
    assert problems(History(replace(task, relation=None), ended)) != []
