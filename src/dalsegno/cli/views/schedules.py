"""Schedules as data and on a terminal, for ``schedule ls`` and ``schedule show``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from dalsegno.cli.errors import Unknown
from dalsegno.cli.output import (
    STYLES,
    fields_of,
    iso,
    moment,
    print_table,
    reference_names,
    several,
    signs_for,
    span,
    stdout,
)
from dalsegno.cli.target.schedules import Schedules
from dalsegno.cli.views.executions import brief
from dalsegno.core.schedules.cron import read_zone
from dalsegno.engine.schedules import ScheduleView
from dalsegno.errors import Conflict, NotFound
from dalsegno.model.definition import format_target
from dalsegno.model.execution import SCHEDULE_RELATION, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

COUNTED = 1000
"""Starts that are counted one by one."""
RUNS = 5
"""Number of latest starts that ``show`` lists."""
_STATES = {
    "RUNNING": "active",
    "PAUSED": "paused",
    "COMPLETED": "over",
    "FAILED": "failed",
    "CANCELLED": "removed",
}


class Taken(Conflict):
    """A conflict whose hint points to the list of schedules."""

    hint = "Write --replace to change it; `dalsegno schedule show NAME` shows what it does."


@contextmanager
def with_own_hint() -> Iterator[None]:
    """Replace the hint of an error: what is missing or taken is a schedule here, not an execution."""
    try:
        yield
    except NotFound as error:
        hint = "`dalsegno schedule ls` lists schedules; `dalsegno versions NAME` the versions of a workflow."
        raise Unknown(str(error), hint) from None
    except Conflict as error:
        raise Taken(str(error)) from None


async def read_schedule(
    schedules: Schedules, name: str, times: int
) -> tuple[ScheduleView, list[ExecutionView]]:
    """Return the schedule and its latest runs. The schedule counts its own starts; manual starts are counted here."""
    view = await schedules.describe(name, times)
    where = ExecutionFilter(parent=view.execution, relations=(SCHEDULE_RELATION,))
    runs = await schedules.stack.archive.executions(where, limit=COUNTED)
    return msgspec.structs.replace(view, started=max(view.started, len(runs))), runs[:RUNS]


def as_object(view: ScheduleView) -> dict[str, Any]:
    spec = view.spec
    return {
        "name": view.name,
        **reference_names(view.execution),
        "state": _STATES.get(view.state, view.state.lower()),
        **fields_of(spec, "cron", "every", "timezone", "workflow", "version"),
        "input": msgspec.json.decode(spec.input),
        **fields_of(spec, "missed", "overlap", "grace", "catch_up", "jitter", "start", "end"),
        "tags": dict(spec.tags),
        "priority": spec.priority,
        "created_at": iso(view.created_at),
        "next": [iso(time) for time in view.next],
        **fields_of(view, "overdue", "last"),
        **reference_names(view.last_execution, "last_"),
        **fields_of(view, "started", "passed", "error"),
    }


def print_schedules(views: Sequence[ScheduleView], now: float) -> None:
    console = stdout()
    if not views:
        console.print("no schedules", style="dim")
        return
    signs = signs_for(console)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for title in ("schedule", "when"):
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    table.add_column("zone", no_wrap=True, style="dim")
    table.add_column("workflow", no_wrap=True, overflow="ellipsis")
    table.add_column("next", no_wrap=True)
    table.add_column("last", no_wrap=True, style="dim")
    for view in views:
        table.add_row(
            Text(signs.states[view.state], STYLES[view.state]),
            Text(view.name, "bold"),
            Text(timing(view)),
            Text(view.spec.timezone),
            Text(format_target(view.spec.workflow, view.spec.version)),
            Text(_next(view, now)),
            Text(f"{span(now - view.last)} ago" if view.last is not None else "never"),
        )
    print_table(console, table)


def timing(view: ScheduleView) -> str:
    spec = view.spec
    if spec.cron is not None or spec.every is None:
        return spec.timing
    for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60)):
        if spec.every % seconds == 0:
            return f"every {spec.every / seconds:g}{unit}"
    return f"every {spec.every:g}s"


def _next(view: ScheduleView, now: float) -> str:
    if view.overdue is not None:
        return f"due {span(now - view.overdue)} ago"
    if not view.next:
        return _STATES.get(view.state, "")
    return f"in {span(view.next[0] - now)}"


def print_schedule(view: ScheduleView, runs: Sequence[ExecutionView], now: float) -> None:
    console = stdout()
    state = _STATES.get(view.state, view.state.lower())
    console.print(Text.assemble((view.name, "bold"), "  ", (state, STYLES[view.state])))
    if view.error is not None:
        console.print(Text(f"{view.error.get('message', '')}", "red"), soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for name, said in _facts(view):
        facts.add_row(name, Text(said))
    print_table(console, facts)
    _print_times(view, now)
    _print_runs(runs, now)


def _facts(view: ScheduleView) -> list[tuple[str, str]]:
    spec = view.spec
    facts = [
        ("when", f"{timing(view)} ({spec.timezone})" if spec.cron is not None else timing(view)),
        ("workflow", format_target(spec.workflow, spec.version)),
        ("input", bytes(spec.input).decode()),
        ("missed", f"{spec.missed}, after {span(spec.grace)}"),
        ("overlap", spec.overlap),
    ]
    if spec.jitter:
        facts.append(("jitter", f"up to {span(spec.jitter)}"))
    zone = read_zone(spec.timezone)
    facts += [(name, _local(time, zone)) for name, time in (("from", spec.start), ("to", spec.end)) if time]
    if spec.tags:
        facts.append(("tags", ", ".join(f"{name}={tag}" for name, tag in spec.tags)))
    counted = several(view.started, "start") + (f", {view.passed:,} passed over" if view.passed else "")
    return [*facts, ("so far", counted), ("execution", view.execution)]


def _print_times(view: ScheduleView, now: float) -> None:
    console = stdout()
    zone = read_zone(view.spec.timezone)
    if view.overdue is not None:
        late = f"due since {_local(view.overdue, zone)}: it fires when a worker runs (dalsegno worker)"
        console.print(Text(late, "yellow"), soft_wrap=True)
    if not view.next:
        return
    console.print("\nnext", style="dim")
    for time in view.next:
        console.print(Text.assemble(_local(time, zone), (f"  in {span(time - now)}", "dim")))


def _print_runs(runs: Sequence[ExecutionView], now: float) -> None:
    if not runs:
        return
    console = stdout()
    signs = signs_for(console)
    console.print("\nlatest runs", style="dim")
    for run in runs:
        console.print(
            Text.assemble(
                (signs.states[run.state], STYLES[run.state]),
                f" {run.id}  {moment(run.created_at)}",
                (f"  {span(now - run.created_at)} ago", "dim"),
            )
        )


def _local(time: float, zone: tzinfo) -> str:
    """Format a time in the schedule's own zone, in which its cron line is read."""
    return datetime.fromtimestamp(time, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def runs_as_objects(runs: Sequence[ExecutionView]) -> list[dict[str, Any]]:
    return [brief(run) for run in runs]
