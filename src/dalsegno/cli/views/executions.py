"""Executions of every kind: times, tags, related executions, history, and the list of executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast, get_args

import msgspec
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import (
    STYLES,
    error_text,
    execution_names,
    iso,
    moment,
    print_table,
    several,
    signs_for,
    span,
    stdout,
)
from dalsegno.model.event import Event
from dalsegno.model.execution import (
    CLEANUP_RELATION,
    ENDED,
    SCRIPTED,
    ExecutionKind,
    ExecutionState,
    ExecutionView,
)
from dalsegno.model.ids import ID_LENGTH
from dalsegno.model.search import RESERVED_TAGS
from dalsegno.ports.archive import ExecutionFilter

if TYPE_CHECKING:
    from dalsegno.cli.target.target import WorkflowApi

CHILDREN = 20
FIRST_EVENTS = 10
"""First events, of which one is the start."""


async def latest_events(client: WorkflowApi, view: ExecutionView, count: int) -> list[Event]:
    return await client.events(view.id, max(view.seq - count, 0), count) if count else []


async def children_of(client: WorkflowApi, execution: str) -> list[ExecutionView]:
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


async def origin_of(client: WorkflowApi, view: ExecutionView) -> Origin | None:
    """Return from where the execution goes on, if it began with the machine of a failed one."""
    if view.relation not in ("retry", "child") or view.kind not in SCRIPTED:
        return None
    for event in await client.events(view.id, 0, FIRST_EVENTS):
        if event.kind == "ExecutionStarted" and event.data is not None:
            facts = msgspec.json.decode(event.data)
            return Origin(facts["from"], facts["line"]) if "from" in facts else None
    return None


class Origin(NamedTuple):
    execution: str
    line: int

    def __str__(self) -> str:
        return f"{self.execution} at line {self.line}"


class Move(NamedTuple):
    """A change of an execution's version."""

    before: int
    after: int
    line: int

    def __str__(self) -> str:
        return f"from version {self.before} to {self.after} at line {self.line}"


def move_in(events: Sequence[Event]) -> Move | None:
    """Return the latest change of the version among these events."""
    for event in reversed(events):
        if event.kind == "VersionChanged" and event.data is not None:
            facts = msgspec.json.decode(event.data)
            return Move(facts["from"], facts["to"], facts.get("line", 0))
    return None


def print_facts(
    view: ExecutionView,
    children: Sequence[ExecutionView],
    origin: Origin | None = None,
    move: Move | None = None,
) -> None:
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
    if origin is not None:
        facts.add_row("continues", str(origin))
    if move is not None:
        facts.add_row("moved", str(move))
    for child in children:
        facts.add_row(child.relation or "child", Text(f"{child.id} {child.workflow} {child.state.lower()}"))
    console = stdout()
    console.print()
    print_table(console, facts)


def print_events(view: ExecutionView, events: Sequence[Event]) -> None:
    """Print events. Number, time and kind are never cut; the text of an event is cut on a terminal, not in a pipe."""
    if not events:
        return
    from dalsegno.lang.runtime.effects import display_name  # noqa: PLC0415 - `ls` needs no language

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
            f"  {_about(event, event.node if view.kind == 'graph' else display_name(event.node))}",
        )
        line.rstrip()
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    console.print()


def _happened(event: Event) -> float:
    """Return when the event happened. A start is recorded with a delay, to spare writes for steps that end at once, and
    carries its own time."""
    if not event.kind.endswith("Started") or event.data is None:
        return event.at
    data = msgspec.json.decode(event.data)
    started = data.get("started_at") if isinstance(data, dict) else None
    return float(started) if isinstance(started, float | int) else event.at


def _style(kind: str) -> str:
    for prefix in ("Node", "Execution", "Task"):
        kind = kind.removeprefix(prefix)
    return STYLES.get(kind.upper(), "")


def _about(event: Event, name: str) -> str:
    item = f" [{event.scope.rpartition(':')[2]}]" if event.scope else ""
    count = f" {event.arrived}/{event.expected}" if event.expected is not None else ""
    data = msgspec.json.decode(event.data) if event.data is not None else {}
    data = data if isinstance(data, dict) else {}
    said = error_text(data.get("error")) or changed_tags(data)
    if event.kind == "ExecutionStarted" and data.get("from"):
        said = f"continues {data['from']}"
    if event.kind == "VersionChanged":
        said = f"version {data['to']} (was {data['from']})"
    line = f" (line {data['line']})" if data.get("line") else ""
    # An event of the whole execution names no node.
    about = f"{name}{item}{count}{line}".strip()
    return " ".join(": ".join(part for part in (about, said, by_hand(data)) if part).split())


def by_hand(data: Mapping[str, Any]) -> str:
    """Return who settled a task by hand, and why."""
    hand = data.get("by_hand")
    if not isinstance(hand, Mapping):
        return ""
    who = f" by {hand['by']}" if hand.get("by") else ""
    why = f" ({hand['reason']})" if hand.get("reason") else ""
    return f"{_DONE.get(str(hand.get('action')), 'settled')} by hand{who}{why}"


_DONE = {"complete": "completed", "fail": "failed", "skip": "skipped", "requeue": "requeued"}


def changed_tags(data: Mapping[str, Any]) -> str:
    """Return the tags that an execution set while it ran, from its event."""
    tags = data.get("tags")
    given = tags if isinstance(tags, Mapping) else {}
    changes = [f"{name}={tag}" if tag is not None else f"{name} removed" for name, tag in given.items()]
    return ", ".join(changes)


def _short(text: str, length: int = 300) -> str:
    return text if len(text) <= length else text[:length] + " ..."


LEAST_NEEDED = ("tags", "took", "kind", "started")
"""Columns that a narrow screen omits, the least needed first."""
READABLE = 16
"""Characters of a workflow's name and version that are worth omitting another column."""


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
    """Split values: an option may be repeated, and may hold several words with commas."""
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
    """Print the executions. One more than ``limit`` means that there are more."""
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
    """Return the tags that users and workflows set."""
    return ", ".join(f"{name}={tag}" for name, tag in view.tags if not name.startswith(RESERVED_TAGS))


def _row(view: ExecutionView, now: float, *, tagged: bool) -> dict[str, str]:
    ended = view.ended_at if view.state in ENDED and view.ended_at else now
    workflow = f"{view.workflow} v{view.version}" if view.version else view.workflow
    row = {
        "execution": view.id,
        "workflow": f"{workflow} (clean-up)" if view.relation == CLEANUP_RELATION else workflow,
        "kind": view.kind,
        "started": moment(view.created_at)[5:-3],
        "took": span(ended - view.created_at),
    }
    return row | {"tags": _tags(view)} if tagged else row


def _fitting(rows: Sequence[dict[str, str]], width: int | None) -> tuple[list[str], int | None]:
    """Return the columns that fit the screen, and the width of the workflow column.

    Ids are copied by users, so they are never cut: other columns are omitted first. A pipe has no width.
    """
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
    """Return the width left for the workflow: minus the sign, the other columns, and two spaces before each column."""
    return width - 1 - 2 * len(names) - sum(wide[name] for name in names if name != "workflow")
