"""One execution of a graph in full: what ``show`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from dalsegno.cli.asking import ways_on
from dalsegno.cli.desk import Desk
from dalsegno.cli.facts import children_of, event_as_object, latest_events, print_events, print_facts
from dalsegno.cli.listing import brief
from dalsegno.cli.output import iso, print_table, signs_for, stdout
from dalsegno.cli.progress import Progress, Snapshot
from dalsegno.cli.reasons import gone_hint
from dalsegno.cli.result import Command, error_of, output_of, print_error, print_value
from dalsegno.cli.tree import TreeView, head_line
from dalsegno.core.values import decode_value
from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView


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


async def portray(client: Desk, view: ExecutionView, events: int) -> Portrait:
    plan: Plan | None = None
    missing: tuple[Finding, ...] = ()
    try:
        plan = (await client.definitions.by_hash(view.definition)).plan
        snapshot = await Progress(client, plan, view.id).look(complete=True)
    except InvalidDefinition as error:
        missing = tuple(error.findings)
        snapshot = Snapshot(view, {}, now=client.stack.clock.now())
    latest = await latest_events(client, snapshot.execution, events)
    return Portrait(plan, snapshot, latest, await children_of(client, view.id), missing)


def print_portrait(portrait: Portrait, command: Command) -> None:
    console = stdout()
    console.height = 10_000  # every node is shown: this is no live view
    if portrait.plan is not None:
        print_table(console, TreeView(portrait.plan, console).draw(portrait.snapshot))
    else:
        console.print(head_line(portrait.view, portrait.snapshot.now, signs_for(console)))
        _print_missing(console, portrait.missing, command.app)
    if portrait.view.state not in ENDED:
        for intro, line in ways_on(portrait.snapshot.activities, command, portrait.view.id):
            console.print(Text.assemble((f"  {intro} ", "dim"), line), soft_wrap=True)
    if any(activity.gone for activity in portrait.snapshot.activities.values()):
        console.print(Text(gone_hint(command, portrait.view.id), "yellow"), soft_wrap=True)
    print_facts(portrait.view, portrait.children)
    print_events(portrait.view, portrait.events)
    error = error_of(portrait.view)
    if error is not None:
        print_error(error)
    if portrait.view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(portrait.view))


def _print_missing(console: Console, findings: Sequence[Finding], given: str | None) -> None:
    cure = (
        "give the application that has their types: --app module:attr"
        if given is None
        else f"the application {given} does not have all their types"
    )
    console.print(Text(f"its nodes cannot be shown here; {cure}", "yellow"), soft_wrap=True)
    for finding in findings:
        if finding.severity == "error":
            console.print(Text(f"  {finding.message}", "dim"), soft_wrap=True)
