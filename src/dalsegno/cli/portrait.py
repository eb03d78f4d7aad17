"""One execution in full: what ``show`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dalsegno.cli.listing import brief
from dalsegno.cli.output import STYLES, iso, moment, print_table, several, signs_for, span, stdout
from dalsegno.cli.progress import Progress, Snapshot
from dalsegno.cli.result import Command, error_of, output_of, print_error, print_value
from dalsegno.cli.tree import TreeView, head_line
from dalsegno.cli.waits import gone_hint
from dalsegno.core.values import decode_value
from dalsegno.engine.client import Client
from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.archive import ExecutionFilter

CHILDREN = 20
_RECORD_KEYS = ("attempt", "error", "edges", "retry_at", "resume_at")


@dataclass(frozen=True, slots=True)
class Portrait:
    plan: Plan | None
    """None if a node type that it needs is not known here."""
    snapshot: Snapshot
    events: list[Event]
    children: list[ExecutionView]
    missing: tuple[Finding, ...] = ()
    """Why there is no plan."""

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
        unknown = {"findings": [finding.as_dict() for finding in self.missing]} if self.missing else {}
        return {
            **brief(self.view),
            "input": decode_value(self.view.input),
            "output": output_of(self.view),
            "error": error_of(self.view),
            "nodes": nodes,
            "events": [event_as_object(event) for event in self.events],
            "children": [brief(child) for child in self.children],
            **unknown,
        }


async def portray(client: Client, execution: str, events: int) -> Portrait:
    view = await client.status(execution)
    plan: Plan | None = None
    missing: tuple[Finding, ...] = ()
    try:
        plan = (await client.definitions.by_hash(view.definition)).plan
        snapshot = await Progress(client, plan, execution).look(complete=True)
    except InvalidDefinition as error:
        missing = tuple(error.findings)
        snapshot = Snapshot(view, {}, now=client.stack.clock.now())
    latest = await client.events(execution, max(snapshot.execution.seq - events, 0), events) if events else []
    children = await client.executions(ExecutionFilter(parent=execution), limit=CHILDREN)
    return Portrait(plan, snapshot, latest, children, missing)


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


def print_portrait(portrait: Portrait, command: Command) -> None:
    console = stdout()
    console.height = 10_000  # every node is shown: this is no live view
    if portrait.plan is not None:
        print_table(console, TreeView(portrait.plan, console).draw(portrait.snapshot))
    else:
        console.print(head_line(portrait.snapshot, signs_for(console)))
        _print_missing(console, portrait.missing)
    if any(activity.gone for activity in portrait.snapshot.activities.values()):
        console.print(Text(gone_hint(command, portrait.view.id), "yellow"), soft_wrap=True)
    _print_facts(portrait)
    if portrait.events:
        _print_events(portrait)
    error = error_of(portrait.view)
    if error is not None:
        print_error(error)
    if portrait.view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(portrait.view))


def _print_missing(console: Console, findings: Sequence[Finding]) -> None:
    console.print(
        "its nodes cannot be shown here; give the application that has their types: --app module:attr",
        style="yellow",
        soft_wrap=True,
    )
    for finding in findings:
        if finding.severity == "error":
            console.print(Text(f"  {finding.message}", "dim"), soft_wrap=True)


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
    print_table(console, facts)


def _print_events(portrait: Portrait) -> None:
    """Number, time and kind are always whole; a terminal cuts what is said about an event, a pipe nothing."""
    console = stdout()
    began = portrait.view.created_at
    rows = [(str(event.seq), f"+{span(event.at - began)}", event) for event in portrait.events]
    digits = max(len(number) for number, _, _ in rows)
    wide = max(len(time) for _, time, _ in rows)
    kinds = max(len(event.kind) for event in portrait.events)
    console.print(f"\nlatest of {several(portrait.view.seq, 'event')}", style="dim")
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


def _style(kind: str) -> str:
    return STYLES.get(kind.removeprefix("Node").removeprefix("Execution").upper(), "")


def _about(event: Event) -> str:
    item = f" [{event.scope.rpartition(':')[2]}]" if event.scope else ""
    count = f" {event.arrived}/{event.expected}" if event.expected is not None else ""
    data = msgspec.json.decode(event.data) if event.data is not None else {}
    error = data.get("error") if isinstance(data, dict) else None
    said = f": {error.get('message', '')}" if isinstance(error, dict) else ""
    return " ".join(f"{event.node}{item}{count}{said}".split())


def _short(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + " ..."
