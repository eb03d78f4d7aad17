"""The list of executions, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import STYLES, execution_names, iso, moment, print_table, signs_for, span, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.model.execution import ENDED, ExecutionKind, ExecutionState, ExecutionView
from dalsegno.model.ids import ID_LENGTH
from dalsegno.model.tags import RESERVED_TAGS
from dalsegno.ports.archive import ExecutionFilter

LEAST_NEEDED = ("tags", "took", "kind", "started")
"""Columns that a narrow screen does without, the least needed first."""
READABLE = 16
"""Characters of a workflow's name and version that are worth another column."""


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
        **execution_names(view.id, view.state),
        "workflow": view.workflow,
        "version": view.version,
        "kind": view.kind,
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
    tagged = any(_tags(view) for view in views[:limit])
    rows = [_row(view, now, tagged=tagged) for view in views[:limit]]
    names, room = _fitting(rows, console.width if console.is_terminal else None)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, min_width=1)
    for name in names:
        table.add_column(
            name,
            no_wrap=True,
            min_width=ID_LENGTH if name == "execution" else None,
            max_width=room if name == "workflow" else None,
            overflow="ellipsis",
            justify="right" if name == "took" else "left",
            style="dim" if name in LEAST_NEEDED else "",
        )
    for view, row in zip(views, rows, strict=False):
        sign = Text(signs.states[view.state], STYLES[view.state])
        table.add_row(sign, *(Text(row[name]) for name in names))
    print_table(console, table, crop=False)
    if len(views) > limit:
        console.print(f"the newest {limit}; --limit shows more", style="dim")


def _tags(view: ExecutionView) -> str:
    """Those that people and workflows set."""
    return ", ".join(f"{name}={tag}" for name, tag in view.tags if not name.startswith(RESERVED_TAGS))


def _row(view: ExecutionView, now: float, *, tagged: bool) -> dict[str, str]:
    ended = view.ended_at if view.state in ENDED and view.ended_at else now
    row = {
        "execution": view.id,
        "workflow": f"{view.workflow} v{view.version}" if view.version else view.workflow,
        "kind": view.kind,
        "started": moment(view.created_at)[5:-3],
        "took": span(ended - view.created_at),
    }
    return row | {"tags": _tags(view)} if tagged else row


def _fitting(rows: Sequence[dict[str, str]], width: int | None) -> tuple[list[str], int | None]:
    """The columns that a screen has room for, and the room for the workflow. An id is copied by people, so it is never
    cut: other columns go first. A pipe has no edge."""
    names = list(rows[0])
    if width is None:
        return names, None
    wide = {name: max(len(name), *(cell_len(row[name]) for row in rows)) for name in names}
    for least in (name for name in LEAST_NEEDED if name in names):
        if _room(wide, names, width) >= min(wide["workflow"], READABLE):
            break
        names.remove(least)
    room = _room(wide, names, width)
    if room < len("workflow"):
        names.remove("workflow")
    return names, room


def _room(wide: Mapping[str, int], names: Sequence[str], width: int) -> int:
    """What the sign, the other columns and two spaces before each column leave for the workflow."""
    return width - 1 - 2 * len(names) - sum(wide[name] for name in names if name != "workflow")
