"""Opens a stored fixture with the present code and finishes every execution in it. Public interface only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dalsegno import App, Handle

T = TypeVar("T")
PATIENCE = 30.0
BY_LOAD = ("TaskStarted", "NodeStarted", "Suspended", "NodeCancelled")
"""Events whose number depends on how busy the machine is: what ends at once was never noted as started, and signals
that come together are taken in one turn, and nodes that an end cancels are noted after it."""


def until(look: Callable[[], T | None], what: str) -> T:
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE:g} s for {what}")
        time.sleep(0.01)
    return found


def picture(handle: Handle) -> dict[str, Any]:
    """An execution before it goes on."""
    view = handle.status()
    return {
        "state": view.state,
        "events": view.seq,
        "paused": view.paused_at is not None,
        "waits": sorted({wait.kind for wait in handle.why()}),
        "awaits": shown.line > 0 if (shown := handle.picture()) is not None else None,
        "approvals": [[asked.node, asked.message] for asked in handle.approvals()],
    }


def do(app: App, handle: Handle, step: list[Any]) -> None:
    match step:
        case ["signal", name, payload]:
            handle.signal(name, payload)
        case ["decide", node, decision, data]:
            until(handle.approvals, f"an approval of {handle.id}")
            handle.decide(node, decision, data, by="ann", comment="as agreed")
        case ["child", workflow, *rest]:
            do(app, child_of(app, handle, workflow), rest)
        case [("resume" | "trigger" | "cancel" | "terminate" | "pause") as verb]:
            getattr(handle, verb)()
        case _:
            raise AssertionError(f"no such step: {step}")


def child_of(app: App, handle: Handle, workflow: str) -> Handle:
    def look() -> Handle | None:
        children = app.executions(workflow, parent=handle.id)
        return children[0] if children else None

    return until(look, f"{handle.id} to start {workflow}")


def ending(handle: Handle, varies: Iterable[str] = ()) -> dict[str, Any]:
    """How an execution ended, and what its history holds; ``varies``: events that are not counted."""
    view = handle.wait(PATIENCE)
    try:
        output = handle.result(0)
    except Exception as failed:  # noqa: BLE001 - how it failed is the result
        error = getattr(failed, "error", None) or {}
        found: dict[str, Any] = {key: error.get(key) for key in ("code", "type", "message") if key in error}
    else:
        found = {"output": output}
    events = handle.events(limit=10_000)
    if len(events) < view.seq or [event.seq for event in events] != list(range(1, len(events) + 1)):
        raise AssertionError(f"the history of {handle.id} has gaps: {[event.seq for event in events]}")
    passed_over = {*BY_LOAD, *varies}
    counts = Counter(event.kind for event in events if event.kind not in passed_over)
    return {"state": view.state, **found, "events": dict(sorted(counts.items()))}


def finish(app: App, cases: dict[str, dict[str, Any]], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Does for each execution what its case says, and returns the endings. The application's worker runs."""
    handles = {name: app.handle(cases[name]["id"]) for name in names}
    for name, handle in handles.items():
        for step in cases[name]["after"]:
            do(app, handle, step)
    found, late = {}, []
    for name, handle in handles.items():
        try:
            found[name] = ending(handle, cases[name]["varies"])
        except TimeoutError as error:
            late.append(f"{name}: {error}")
            if len(late) > 3:
                break
    if late:
        raise TimeoutError("\n".join(late))
    return found
