"""One execution in full: what ``show`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from dalsegno.cli.listing import brief
from dalsegno.cli.output import STYLES, iso, moment, several, span, stdout
from dalsegno.cli.progress import Progress, Snapshot
from dalsegno.cli.result import error_of, output_of, print_error, print_value
from dalsegno.cli.tree import TreeView
from dalsegno.core.values import decode_value
from dalsegno.engine.client import Client
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter

CHILDREN = 20
_RECORD_KEYS = ("attempt", "error", "edges", "retry_at", "resume_at")


@dataclass(frozen=True, slots=True)
class Portrait:
    plan: Plan
    snapshot: Snapshot
    events: list[Event]
    children: list[ExecutionView]

    @property
    def view(self) -> ExecutionView:
        return self.snapshot.execution

    def as_object(self) -> dict[str, Any]:
        nodes = {
            name: {
                "state": summary.state,
                "runs": summary.runs,
                "failed": summary.failed,
                "due": iso(summary.due),
            }
            for name, summary in self.snapshot.summaries.items()
        }
        return {
            **brief(self.view),
            "input": decode_value(self.view.input),
            "output": output_of(self.view),
            "error": error_of(self.view),
            "nodes": nodes,
            "events": [event_as_object(event) for event in self.events],
            "children": [brief(child) for child in self.children],
        }


async def portray(client: Client, execution: str, events: int) -> Portrait:
    view = await client.status(execution)
    program = await client.definitions.by_hash(view.definition)
    snapshot = await Progress(client, program.plan, execution).look(complete=True)
    latest = await client.events(execution, max(snapshot.execution.seq - events, 0), events) if events else []
    children = await client.executions(ExecutionFilter(parent=execution), limit=CHILDREN)
    return Portrait(program.plan, snapshot, latest, children)


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


def print_portrait(portrait: Portrait) -> None:
    console = stdout()
    console.height = 10_000  # every node is shown: this is no live view
    console.print(TreeView(portrait.plan, console).draw(portrait.snapshot))
    _print_facts(portrait)
    if portrait.events:
        _print_events(portrait)
    error = error_of(portrait.view)
    if error is not None:
        print_error(error)
    if portrait.view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(portrait.view))


def _print_facts(portrait: Portrait) -> None:
    view = portrait.view
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    facts.add_row("started", moment(view.created_at))
    if view.ended_at is not None:
        facts.add_row("ended", moment(view.ended_at))
    facts.add_row("input", Text(_short(view.input.decode())))
    if view.tags:
        facts.add_row("tags", Text(", ".join(f"{key}={tag}" for key, tag in view.tags)))
    if view.idempotency_key:
        facts.add_row("key", Text(view.idempotency_key))
    if view.parent:
        facts.add_row(f"{view.relation or 'child'} of", view.parent)
    for child in portrait.children:
        facts.add_row(child.relation or "child", f"{child.id} {child.state.lower()}")
    console = stdout()
    console.print()
    console.print(facts)


def _print_events(portrait: Portrait) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for style in ("dim", "dim", "", ""):
        table.add_column(style=style, no_wrap=True, overflow="ellipsis")
    for event in portrait.events:
        table.add_row(
            str(event.seq),
            f"+{span(event.at - portrait.view.created_at)}",
            Text(
                event.kind, STYLES.get(event.kind.removeprefix("Node").removeprefix("Execution").upper(), "")
            ),
            Text(_about(event)),
        )
    console = stdout()
    console.print(f"\nlatest of {several(portrait.view.seq, 'event')}", style="dim")
    console.print(table)
    console.print()


def _about(event: Event) -> str:
    item = f" [{event.scope.rpartition(':')[2]}]" if event.scope else ""
    count = f" {event.arrived}/{event.expected}" if event.expected is not None else ""
    data = msgspec.json.decode(event.data) if event.data is not None else {}
    error = data.get("error") if isinstance(data, dict) else None
    said = f"  {error.get('message', '')}" if isinstance(error, dict) else ""
    return f"{event.node}{item}{count}{said}"


def _short(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + " ..."
