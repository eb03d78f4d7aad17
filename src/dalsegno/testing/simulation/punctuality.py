"""Whether things happened when they were due, in a run whose clock nobody touched."""

from __future__ import annotations

import msgspec

from dalsegno.model.event import Event
from dalsegno.testing.simulation.world import Observation

SLACK = 0.5
"""Seconds between a time and what it causes, where nothing fails."""
ROUNDING = 1e-3


def lateness(run: Observation) -> list[str]:
    """Waits and retries that became ready too early or too late; when they then run is a matter of free workers."""
    due: dict[str, float] = {}
    found = []
    for event in run.events:
        if event.token is None or event.data is None or event.kind == "NodeStarted":
            continue
        promised = due.pop(event.token, None)
        if promised is not None:
            found += _judge(event, promised)
        record = msgspec.json.decode(event.data)
        moment = record.get("resume_at") or record.get("retry_at")
        if moment is not None:
            due[event.token] = max(moment, event.at)
    return found


def _judge(event: Event, promised: float) -> list[str]:
    woken = msgspec.json.decode(event.data or b"{}").get("queued_at", event.at)
    if promised - ROUNDING <= woken <= promised + SLACK:
        return []
    return [f"time: node {event.node} was due at {promised:.3f}, but woke at {woken:.3f}"]
