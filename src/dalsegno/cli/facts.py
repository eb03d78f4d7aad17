"""What every execution has, whatever its kind: times, tags, relatives and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from dalsegno.cli.desk import Desk
from dalsegno.cli.output import STYLES, iso, moment, print_table, several, span, stdout
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter

CHILDREN = 20


async def latest_events(client: Desk, view: ExecutionView, count: int) -> list[Event]:
    return await client.events(view.id, max(view.seq - count, 0), count) if count else []


async def children_of(client: Desk, execution: str) -> list[ExecutionView]:
    return await client.executions(ExecutionFilter(parent=execution), limit=CHILDREN)


def event_as_object(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "kind": event.kind,
        "node": event.node or None,
        "scope": event.scope or None,
        "at": iso(event.at),
        "data": msgspec.json.decode(event.data) if event.data is not None else None,
        "arrived": event.arrived,
        "expected": event.expected,
    }


def print_facts(view: ExecutionView, children: Sequence[ExecutionView]) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("submitted" if view.state == "PENDING" else "started", moment(view.created_at))
    if view.ended_at is not None:
        facts.add_row("ended", moment(view.ended_at))
    facts.add_row("input", Text(_short(view.input.decode())))
    if view.tags:
        facts.add_row("tags", Text(", ".join(f"{key}={tag}" for key, tag in view.tags)))
    if view.idempotency_key:
        facts.add_row("key", Text(view.idempotency_key))
    if view.parent:
        facts.add_row(f"{view.relation or 'child'} of", view.parent)
    for child in children:
        facts.add_row(child.relation or "child", Text(f"{child.id} {child.workflow} {child.state.lower()}"))
    console = stdout()
    console.print()
    print_table(console, facts)


def print_events(view: ExecutionView, events: Sequence[Event]) -> None:
    """Number, time and kind are always whole; a terminal cuts what is said about an event, a pipe nothing."""
    if not events:
        return
    console = stdout()
    began = view.created_at
    rows = [(str(event.seq), f"+{span(_happened(event) - began)}", event) for event in events]
    digits = max(len(number) for number, _, _ in rows)
    wide = max(len(time) for _, time, _ in rows)
    kinds = max(len(event.kind) for event in events)
    console.print(f"\nlatest of {several(view.seq, 'event')}", style="dim")
    for number, time, event in rows:
        line = Text.assemble(
            (f"{number:>{digits}}  {time:<{wide}}  ", "dim"),
            (f"{event.kind:<{kinds}}", _style(event.kind)),
            f"  {_about(event)}",
        )
        line.rstrip()
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    console.print()


def _happened(event: Event) -> float:
    """A start is told with some delay, to spare the store those that end at once; it says when it was."""
    if not event.kind.endswith("Started") or event.data is None:
        return event.at
    data = msgspec.json.decode(event.data)
    started = data.get("started_at") if isinstance(data, dict) else None
    return float(started) if isinstance(started, float | int) else event.at


def _style(kind: str) -> str:
    for prefix in ("Node", "Execution", "Task"):
        kind = kind.removeprefix(prefix)
    return STYLES.get(kind.upper(), "")


def _about(event: Event) -> str:
    item = f" [{event.scope.rpartition(':')[2]}]" if event.scope else ""
    count = f" {event.arrived}/{event.expected}" if event.expected is not None else ""
    data = msgspec.json.decode(event.data) if event.data is not None else {}
    data = data if isinstance(data, dict) else {}
    error = data.get("error")
    said = str(error.get("message", "")) if isinstance(error, dict) else changed_tags(data)
    line = f" (line {data['line']})" if data.get("line") else ""
    # What an execution as a whole suffers has no node to be named before it.
    about = f"{event.node}{item}{count}{line}".strip()
    return " ".join(": ".join(part for part in (about, said) if part).split())


def changed_tags(data: Mapping[str, Any]) -> str:
    """What an execution has set while it ran, as its event says."""
    tags = data.get("tags")
    given = tags if isinstance(tags, Mapping) else {}
    told = [f"{name}={tag}" if tag is not None else f"{name} removed" for name, tag in given.items()]
    return ", ".join(told)


def _short(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + " ..."
