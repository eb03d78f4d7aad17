"""One execution in full, for ``show``: a graph with its nodes, or a script or Python workflow with its variables.

Variables of any type are shown as text and as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.text import Text

from dalsegno.cli.live.graph_progress import Progress, Snapshot
from dalsegno.cli.live.graph_view import TreeView, head_line
from dalsegno.cli.live.script_progress import Pending, ScriptMoment, ScriptProgress, look_inside
from dalsegno.cli.live.script_view import ScriptView
from dalsegno.cli.next_command import Command
from dalsegno.cli.output import iso, print_table, reference_names, signs_for, stdout
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.cli.views.approvals import next_steps
from dalsegno.cli.views.executions import (
    Move,
    Origin,
    brief,
    children_of,
    event_as_object,
    latest_events,
    move_in,
    origin_of,
    print_events,
    print_facts,
)
from dalsegno.cli.views.result import (
    error_of,
    gone_hint,
    has_letter,
    output_of,
    print_error,
    print_letter,
    print_value,
)
from dalsegno.cli.views.source import stored_source
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.values import decode_value
from dalsegno.engine.operations.requests import RequestView
from dalsegno.engine.operations.why import ScriptSnapshotView
from dalsegno.errors import Finding, InvalidDefinition, UsageError
from dalsegno.graph.plan import Plan
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView


@dataclass(frozen=True, slots=True)
class ExecutionDetails:
    plan: Plan | None
    """None if a node type that the graph needs is not known here."""
    snapshot: Snapshot
    events: list[Event]
    children: list[ExecutionView]
    missing: tuple[Finding, ...] = ()
    """The reason why there is no plan."""

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
            "published": dict(self.snapshot.published),
            "events": [event_as_object(event) for event in self.events],
            "children": [brief(child) for child in self.children],
            **unknown,
        }


async def read_details(client: WorkflowApi, view: ExecutionView, events: int) -> ExecutionDetails:
    plan: Plan | None = None
    missing: tuple[Finding, ...] = ()
    try:
        plan = (await client.definitions.by_hash(view.definition)).plan
        snapshot = await Progress(client, plan, view.id).look(complete=True)
    except InvalidDefinition as error:
        missing = tuple(error.findings)
        snapshot = Snapshot(view, {}, now=client.stack.clock.now())
    latest = await latest_events(client, snapshot.execution, events)
    return ExecutionDetails(plan, snapshot, latest, await children_of(client, view.id), missing)


def print_details(details: ExecutionDetails, command: Command) -> None:
    console = stdout()
    console.height = 10_000  # show every node: this is not a live view
    if details.plan is not None:
        print_table(console, TreeView(details.plan, console).draw(details.snapshot))
    else:
        console.print(head_line(details.view, details.snapshot.now, signs_for(console)))
        _print_missing(console, details.missing, command.app)
    if details.view.state not in ENDED:
        for intro, line in next_steps(details.snapshot.activities, command, details.view.id):
            console.print(Text.assemble((f"  {intro} ", "dim"), line), soft_wrap=True)
    if any(activity.gone for activity in details.snapshot.activities.values()):
        console.print(Text(gone_hint(command, details.view.id), "yellow"), soft_wrap=True)
    print_facts(details.view, details.children)
    print_events(details.view, details.events)
    error = error_of(details.view)
    if error is not None:
        print_error(error)
    if details.view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(details.view))


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


SHOWN = 30
WIDEST_VARIABLE = 300


def as_json(value: Any) -> Any:
    """Return the value itself if JSON can represent it, else its text."""
    try:
        return json.loads(json.dumps(value, default=_text))
    except (TypeError, ValueError, RecursionError):
        return _text(value)


def print_variables(console: Console, variables: Mapping[str, Any]) -> None:
    """Print one line per variable. A terminal cuts long lines at its width, a pipe at a readable length."""
    if not variables:
        return
    console.print("\nvariables", style="dim")
    wide = max(len(name) for name in list(variables)[:SHOWN])
    for name, value in list(variables.items())[:SHOWN]:
        line = Text.assemble("  ", (f"{name:<{wide}}", "bold"), "  ", _line(value))
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    if len(variables) > SHOWN:
        console.print(f"  and {len(variables) - SHOWN:,} more; --json shows all", style="dim")


def _line(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=_text)
    except (TypeError, ValueError, RecursionError):
        text = _text(value)
    return text if len(text) <= WIDEST_VARIABLE else f"{text[:WIDEST_VARIABLE]} ..."


def _text(value: Any) -> str:
    """Return ``repr``, guarded: it may be the user's own code."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has no text
        return f"<{type(value).__name__}, whose text is not available: {type(error).__name__}>"


WIDEST_LINE = 500
"""Width of lines in a pipe: source lines and commands to copy are not cut."""


@dataclass(frozen=True, slots=True)
class ScriptDetails:
    moment: ScriptMoment
    source: SourceText | None
    picture: ScriptSnapshotView | None
    events: list[Event]
    children: list[ExecutionView]
    missing: str = ""
    """Why the program's state is not shown: the workflow's module is not available here."""
    has_letter: bool = False
    """True if a dead letter says that its clean-up did not finish."""
    requests: list[RequestView] = field(default_factory=list)
    """Requests to it that have no answer yet."""
    origin: Origin | None = None
    """The failed execution with whose machine it began."""
    move: Move | None = None
    """The last change of its version, among the events that are shown."""

    @property
    def view(self) -> ExecutionView:
        return self.moment.execution

    def as_object(self) -> dict[str, Any]:
        moment, picture = self.moment, self.picture
        return {
            **brief(self.view),
            "input": decode_value(self.view.input),
            "output": output_of(self.view),
            "error": error_of(self.view),
            "line": moment.line or None,
            "source": self.source.line(moment.line).strip() if self.source and moment.line else None,
            "awaiting": picture.awaiting or None if picture is not None else None,
            "pending": [_pending(each) for each in moment.pending],
            "requests": [{"id": each.id, "name": each.name, "state": each.state} for each in self.requests],
            "published": dict(moment.published),
            "variables": {name: as_json(value) for name, value in picture.variables.items()}
            if picture
            else {},
            "tasks": {
                name: {
                    "state": summary.state,
                    "runs": summary.runs,
                    "failed": summary.failed,
                    "due": iso(summary.due),
                }
                for name, summary in moment.tasks.items()
            },
            "events": [event_as_object(event) for event in self.events],
            "children": [brief(child) for child in self.children],
            "continues": self.origin._asdict() if self.origin is not None else None,
            "moved": self.move._asdict() if self.move is not None else None,
        }


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "kind": pending.kind,
        "name": pending.name or None,
        "due": iso(pending.due),
        **reference_names(pending.execution or None),
        "count": pending.count,
    }


async def read_script_details(client: WorkflowApi, view: ExecutionView, events: int) -> ScriptDetails:
    moment = await ScriptProgress(client, view.id).look(complete=True)
    source = await stored_source(client, view)
    picture, missing = await look_inside(client, view.id, source)
    latest = await latest_events(client, moment.execution, events)
    return ScriptDetails(
        moment,
        source,
        picture,
        latest,
        await children_of(client, view.id),
        missing,
        await has_letter(client, moment.execution),
        await _open_requests(client, moment.execution),
        await origin_of(client, view),
        move_in(latest),
    )


async def _open_requests(client: WorkflowApi, view: ExecutionView) -> list[RequestView]:
    if view.state in ENDED:
        return []
    try:
        return await client.open_requests(view.id)
    except UsageError:  # an older server
        return []


def _print_requests(console: Console, requests: Sequence[RequestView]) -> None:
    if not requests:
        return
    console.print("\nrequests without an answer", style="dim")
    for each in requests[:SHOWN]:
        said = "received" if each.state == "received" else "not received yet"
        console.print(
            Text.assemble("  ", (each.name, "bold"), f"  {said}  ", (each.id, "dim")), soft_wrap=True
        )
    if len(requests) > SHOWN:
        console.print(f"  and {len(requests) - SHOWN:,} more; --json shows all", style="dim")


def print_script_details(details: ScriptDetails, command: Command) -> None:
    console = stdout()
    console.height = 10_000  # show every task: this is not a live view
    if not console.is_terminal:
        console.width = WIDEST_LINE
    moment, view = details.moment, details.view
    print_table(console, ScriptView(details.source, console, command).draw(moment))
    if any(activity.gone for activity in moment.activities.values()):
        console.print(Text(gone_hint(command, view.id), "yellow"), soft_wrap=True)
    if details.picture is not None:
        print_variables(console, details.picture.variables)
    elif details.missing:
        given = f" ({command.app} does not import it)" if command.app is not None else ""
        console.print(
            Text(f"\nits variables cannot be shown here: {details.missing}{given}", "yellow"), soft_wrap=True
        )
    _print_requests(console, details.requests)
    print_facts(view, details.children, details.origin, details.move)
    print_events(view, details.events)
    error = error_of(view)
    if error is not None:
        print_error(error, details.source)
    if details.has_letter:
        print_letter(view, command)
    if view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(view))
