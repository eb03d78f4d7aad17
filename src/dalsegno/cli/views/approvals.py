"""Approvals as data and on a terminal, and the commands that decide them.

Lists for ``approvals``, the request that ``approve`` and ``reject`` mean, and the commands shown for an execution that
waits for a person.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from dalsegno.cli.errors import Refusal
from dalsegno.cli.live.graph_progress import Activity
from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import STYLES, fields_of, moment, reference_names, signs_for, span, stdout
from dalsegno.core.graph.external_waits import required_fields
from dalsegno.engine.operations.approvals import Approval
from dalsegno.errors import Conflict, InvalidInput

HINT = "`dalsegno approvals` lists the open decisions."
NAMED = 3
"""Other executions that a refusal names."""


class NotOpen(Conflict):
    """A conflict whose hint points to the list of approvals."""

    hint = HINT


@contextmanager
def with_own_hint() -> Iterator[None]:
    """Replace the hint of a conflict: requests that were decided or never made are looked up in the list."""
    try:
        yield
    except Conflict as error:
        raise NotOpen(str(error)) from None


class UnfitData(InvalidInput):
    """Data that do not fit the form. The hint is a command with data that have its fields."""

    def __init__(self, error: InvalidInput, approval: Approval, command: Command) -> None:
        super().__init__(str(error))
        self.findings = error.findings
        data = json.dumps(example_data(approval.form or {}), ensure_ascii=False)
        self.hint = f"Give them with --data: {deciding(approval, command)} --data {shlex.quote(data)}"


def example_data(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with the required fields of a form, or with all if none is required."""
    fields = form.get("properties")
    known: Mapping[str, Any] = fields if isinstance(fields, dict) else {}
    return {name: _example(known.get(name)) for name in required_fields(form) or known}


def _example(schema: Any) -> Any:
    """Return a value that the field's schema suggests."""
    if not isinstance(schema, dict):
        return "…"
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if isinstance(schema.get(key), list) and schema[key]:
            return schema[key][0]
    return EXAMPLES.get(str(schema.get("type")), "…")


EXAMPLES: dict[str, Any] = {
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def as_object(approval: Approval, command: Command) -> dict[str, Any]:
    return {
        **reference_names(approval.execution),
        **fields_of(approval, "workflow", "node"),
        "index": list(approval.indexes) or None,
        **fields_of(approval, "message", "approvers", "form", "since", "due"),
        "command": deciding(approval, command),
    }


def deciding(approval: Approval, command: Command) -> str:
    """Return the command that approves; to reject, ``reject`` replaces ``approve``."""
    items = [word for index in approval.indexes for word in ("--index", str(index))]
    return command.short("approve", approval.execution, approval.node, *items)


def print_approvals(approvals: Sequence[Approval], command: Command, now: float, limit: int) -> None:
    """Print the approvals. One more than ``limit`` means that there are more."""
    console = stdout()
    if not approvals:
        console.print("no decision is open", style="dim")
        return
    sign = (signs_for(console).states["WAITING"], STYLES["WAITING"])
    for approval in approvals[:limit]:
        message = approval.message or f"node '{approval.node}' waits for a decision"
        console.print(Text.assemble(sign, " ", (message, "bold")), soft_wrap=True)
        console.print(Text(f"  {_about(approval, now)}", "dim"), soft_wrap=True)
        console.print(Text(f"  {deciding(approval, command)}"), soft_wrap=True)
    if len(approvals) > limit:
        console.print(f"the first {limit}; --limit shows more", style="dim")
    console.print("`dalsegno reject` instead of `dalsegno approve` rejects", style="dim", markup=False)


def _about(approval: Approval, now: float) -> str:
    item = f" {list(approval.indexes)}" if approval.indexes else ""
    parts = [
        f"{approval.workflow}, node '{approval.node}'{item}",
        f"asked {span(now - approval.since)} ago",
    ]
    if approval.due is not None:
        parts.append(f"gives up in {countdown(approval.due - now)} ({moment(approval.due)})")
    if approval.approvers:
        parts.append(f"for {', '.join(approval.approvers)}")
    if approval.form:
        fields = ", ".join(approval.form.get("properties", {}))
        parts.append(f"takes --data{f' with {fields}' if fields else ''}")
    return "; ".join(parts)


def meant(found: Sequence[Approval], execution: str, others: Sequence[Approval] = ()) -> tuple[str, str]:
    """Return the execution and node of the only pending request, if no node was named. It may be a child's request.

    ``others``: requests of other executions, named if this one waits for none.
    """
    places = list(dict.fromkeys((approval.execution, approval.node) for approval in found))
    if not places:
        asking = ", ".join(f"{each.execution} ('{each.node}' of {each.workflow})" for each in others[:NAMED])
        elsewhere = f"; these are: {asking}" if asking else ""
        raise NotOpen(f"execution {execution} is not waiting for a decision{elsewhere}")
    if len({asking for asking, _ in places}) > 1:
        listed = ", ".join(f"'{node}' of {asking}" for asking, node in places)
        raise Refusal(f"execution {execution} waits for several decisions: at {listed}", HINT)
    if len(places) > 1:
        listed = ", ".join(f"'{node}'" for _, node in places)
        raise Refusal(f"execution {execution} waits for several decisions: at {listed}", "Name the node.")
    return places[0]


def form_asked(found: Sequence[Approval], node: str, index: Sequence[int] | None) -> Approval | None:
    """Return the request of the node if it has a form."""
    of_node = [each for each in found if each.node == node and each.form]
    return next((each for each in of_node if not index or list(each.indexes) == list(index)), None)


def next_steps(activities: Mapping[str, Activity], command: Command, execution: str) -> list[tuple[str, str]]:
    """Return, for every node that waits for a decision or a signal, what it asks for and the command that gives it."""
    return [
        _next_step(node, activity, command, execution)
        for node, activity in activities.items()
        if activity.signal
    ]


def next_program_steps(
    activities: Mapping[str, Activity], command: Command, execution: str
) -> list[tuple[str, str]]:
    """The same for the requests of a script or Python workflow."""
    questions = sum(activity.sleeping for activity in activities.values() if activity.asks)
    if not questions:
        return []
    if questions > 1:  # each is decided by its index
        return [("decide them:", command.short("approvals", execution))]
    return [("decide it:", command.short("approve", execution))]


def _next_step(node: str, activity: Activity, command: Command, execution: str) -> tuple[str, str]:
    if not activity.asks:
        return "send it:", command.signal(execution, activity.signal)
    if activity.sleeping > 1:  # items of a split: each is decided by its index
        return "decide them:", command.short("approvals")
    return "decide it:", command.short("approve", execution, node)
