"""The list of executions, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import STYLES, iso, moment, print_table, signs_for, span, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.model.execution import ENDED, ExecutionKind, ExecutionState, ExecutionView
from dalsegno.ports.archive import ExecutionFilter


def execution_filter(
    workflow: str | None, states: Sequence[str], tags: Mapping[str, str], kinds: Sequence[str] = ()
) -> ExecutionFilter:
    wanted = _words([state.upper() for state in states])
    of = _words([kind.lower() for kind in kinds])
    for word in wanted:
        if word not in (known := get_args(ExecutionState)):
            raise Refusal(f"no execution is ever in the state '{word}'", f"States: {', '.join(known)}.")
    for word in of:
        if word not in (known := get_args(ExecutionKind)):
            raise Refusal(f"no execution is of the kind '{word}'", f"Kinds: {', '.join(known)}.")
    return ExecutionFilter(
        workflow,
        cast("tuple[ExecutionState, ...]", wanted),
        tuple(sorted(tags.items())),
        kinds=cast("tuple[ExecutionKind, ...]", of),
    )


def _words(given: Sequence[str]) -> tuple[str, ...]:
    """An option may be given several times, and name several things with commas."""
    return tuple(word.strip() for text in given for word in text.split(","))


def list_as_object(views: Sequence[ExecutionView]) -> dict[str, Any]:
    return {"executions": [brief(view) for view in views]}


def brief(view: ExecutionView) -> dict[str, Any]:
    return {
        "execution_id": view.id,
        "workflow": view.workflow,
        "version": view.version,
        "kind": view.kind,
        "status": view.state,
        "created_at": iso(view.created_at),
        "ended_at": iso(view.ended_at),
        "tags": dict(view.tags),
        "idempotency_key": view.idempotency_key,
        "parent": view.parent,
        "relation": view.relation,
    }


def print_list(views: Sequence[ExecutionView], now: float, limit: int) -> None:
    """One view more than ``limit`` tells that there are more."""
    console = stdout()
    if not views:
        console.print("no executions", style="dim")
        return
    signs = signs_for(console)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("execution", no_wrap=True)
    table.add_column("workflow", no_wrap=True, overflow="ellipsis")
    table.add_column("kind", no_wrap=True, style="dim")
    table.add_column("started", no_wrap=True, style="dim")
    table.add_column("took", no_wrap=True, justify="right", style="dim")
    for view in views[:limit]:
        table.add_row(
            Text(signs.states[view.state], STYLES[view.state]),
            view.id,
            Text(f"{view.workflow} v{view.version}" if view.version else view.workflow),
            view.kind,
            moment(view.created_at)[5:-3],
            span((view.ended_at if view.state in ENDED and view.ended_at else now) - view.created_at),
        )
    print_table(console, table)
    if len(views) > limit:
        console.print(f"the newest {limit}; --limit shows more", style="dim")
