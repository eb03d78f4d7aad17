"""One execution of a script or Python workflow in full: what ``show`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.text import Text

from dalsegno.cli.desk import Desk
from dalsegno.cli.facts import children_of, event_as_object, latest_events, print_events, print_facts
from dalsegno.cli.inside import look_inside
from dalsegno.cli.listing import brief
from dalsegno.cli.output import iso, print_table, reference_names, stdout
from dalsegno.cli.reasons import gone_hint
from dalsegno.cli.result import Command, error_of, output_of, print_error, print_value
from dalsegno.cli.script_progress import Pending, ScriptMoment, ScriptProgress
from dalsegno.cli.script_view import ScriptView
from dalsegno.cli.source_text import SourceText, stored_source
from dalsegno.cli.variables import as_json, print_variables
from dalsegno.core.values import decode_value
from dalsegno.engine.scripting.looking import Picture
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView

WIDE = 500
"""A pipe has no edge: lines of the program and commands to copy stay whole."""


@dataclass(frozen=True, slots=True)
class ScriptPortrait:
    moment: ScriptMoment
    source: SourceText | None
    picture: Picture | None
    events: list[Event]
    children: list[ExecutionView]
    missing: str = ""
    """Why there is no picture: the workflow's module is not here."""

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
        }


def _pending(pending: Pending) -> dict[str, Any]:
    return {
        "kind": pending.kind,
        "name": pending.name or None,
        "due": iso(pending.due),
        **reference_names(pending.execution or None),
        "count": pending.count,
    }


async def portray_script(client: Desk, view: ExecutionView, events: int) -> ScriptPortrait:
    moment = await ScriptProgress(client, view.id).look(complete=True)
    source = await stored_source(client, view)
    picture, missing = await look_inside(client, view.id, source, variables=True)
    return ScriptPortrait(
        moment,
        source,
        picture,
        await latest_events(client, moment.execution, events),
        await children_of(client, view.id),
        missing,
    )


def print_script_portrait(portrait: ScriptPortrait, command: Command) -> None:
    console = stdout()
    console.height = 10_000  # every task is shown: this is no live view
    if not console.is_terminal:
        console.width = WIDE
    moment, view = portrait.moment, portrait.view
    print_table(console, ScriptView(portrait.source, console, command).draw(moment))
    if any(activity.gone for activity in moment.activities.values()):
        console.print(Text(gone_hint(command, view.id), "yellow"), soft_wrap=True)
    if portrait.picture is not None:
        print_variables(console, portrait.picture.variables)
    elif portrait.missing:
        given = f" ({command.app} does not import it)" if command.app is not None else ""
        console.print(
            Text(f"\nits variables cannot be shown here: {portrait.missing}{given}", "yellow"), soft_wrap=True
        )
    print_facts(view, portrait.children)
    print_events(view, portrait.events)
    error = error_of(view)
    if error is not None:
        print_error(error, portrait.source)
    if view.output is not None:
        console.print("\noutput", style="dim")
        print_value(output_of(view))
