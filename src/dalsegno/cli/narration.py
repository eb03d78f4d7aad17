"""The history of a script as plain sentences, one line each: what logs and pipes are told while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from dalsegno.cli.facts import changed_tags
from dalsegno.cli.output import span
from dalsegno.cli.script_progress import event_data
from dalsegno.cli.tree import countdown
from dalsegno.model.event import Event

FEW = 3
"""Events of one kind about one task that are told singly; more of them in a row are counted."""

Sentence = Callable[[Event, Mapping[str, Any]], str]


def narrate(events: Iterable[Event]) -> list[str]:
    told: list[str] = []
    for (kind, name), group in groupby(events, key=lambda event: (event.kind, event.node)):
        sentence = _SENTENCES.get(kind)
        if sentence is None:
            continue
        same = list(group)
        if len(same) > FEW and kind in _COUNTED:
            told.append(f"{name} {_COUNTED[kind]} ({len(same):,} times)")
        else:
            told += [sentence(event, event_data(event)) for event in same]
        told += _then(event_data(same[-1]))
    return told


def _then(data: Mapping[str, Any]) -> list[str]:
    """Where the program went on to, if it did so in the same commit."""
    then = data.get("then")
    return (
        [f"line {then.get('line', '?')}: waits for {then.get('awaits')}"] if isinstance(then, Mapping) else []
    )


def message_of(data: Mapping[str, Any]) -> str:
    error = data.get("error")
    return str(error.get("message", "")) if isinstance(error, Mapping) else ""


def _suspended(event: Event, data: Mapping[str, Any]) -> str:
    return f"line {data.get('line', '?')}: waits for {event.node or 'something'}"


def _completed(event: Event, data: Mapping[str, Any]) -> str:
    attempt = data.get("attempt", 1)
    again = f" (attempt {attempt})" if attempt != 1 else ""
    started = data.get("started_at")
    took = f" in {span(event.at - started)}" if isinstance(started, float | int) else ""
    return f"{event.node} completed{took}{again}"


def _failed(event: Event, data: Mapping[str, Any]) -> str:
    return f"{event.node} failed: {message_of(data)}"


def _retrying(event: Event, data: Mapping[str, Any]) -> str:
    due = data.get("retry_at")
    left = f" in {countdown(due - event.at)}" if isinstance(due, float | int) else ""
    return f"{event.node} failed: {message_of(data)}; attempt {data.get('attempt', 1) + 1} follows{left}"


def _timer(event: Event, _data: Mapping[str, Any]) -> str:
    return f"signal {event.node} did not come in time" if event.node else "a timer fired"


def _child_ended(event: Event, data: Mapping[str, Any]) -> str:
    said = message_of(data)
    return f"workflow {event.node} failed: {said}" if said else f"workflow {event.node} completed"


def _tags(_event: Event, data: Mapping[str, Any]) -> str:
    return f"tags: {changed_tags(data)}"


def _cancel(_event: Event, data: Mapping[str, Any]) -> str:
    reason = data.get("reason")
    return f"asked to end: {reason}" if reason else "asked to end"


_SENTENCES: dict[str, Sentence] = {
    "Suspended": _suspended,
    "TaskStarted": lambda event, data: f"{event.node} is running",
    "TaskCompleted": _completed,
    "TaskFailed": _failed,
    "TaskRetrying": _retrying,
    "TaskCancelled": lambda event, data: f"{event.node} was cancelled",
    "TaskHandedOver": lambda event, data: f"{event.node} goes on as execution {data.get('execution', '')}",
    "TimerFired": _timer,
    "SignalReceived": lambda event, data: f"signal {event.node} received",
    "ChildStarted": lambda event, data: (
        f"workflow {event.node} started: execution {data.get('execution', '')}"
    ),
    "ChildEnded": _child_ended,
    "TagsChanged": _tags,
    "CancelRequested": _cancel,
}

_COUNTED = {
    "TaskStarted": "is running",
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskRetrying": "failed and is tried again",
    "TaskCancelled": "was cancelled",
}
