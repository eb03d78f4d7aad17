"""Approvals as data and on a terminal: what ``approvals`` lists, and which of them ``approve`` and ``reject`` mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.text import Text

from dalsegno.cli.output import STYLES, iso, moment, reference_names, signs_for, span, stdout
from dalsegno.cli.problems import Refusal
from dalsegno.cli.result import Command
from dalsegno.cli.tree import countdown
from dalsegno.engine.approvals import Approval
from dalsegno.errors import Conflict

HINT = "`dalsegno approvals` lists what waits to be decided."


class NotOpen(Conflict):
    """With the hint that helps here."""

    hint = HINT


@contextmanager
def in_our_words() -> Iterator[None]:
    """What was decided already, or never asked, is found in the list of approvals."""
    try:
        yield
    except Conflict as error:
        raise NotOpen(str(error)) from None


def as_object(approval: Approval, command: Command) -> dict[str, Any]:
    return {
        **reference_names(approval.execution),
        "workflow": approval.workflow,
        "node": approval.node,
        "index": list(approval.indexes) or None,
        "message": approval.message,
        "approvers": list(approval.approvers),
        "form": approval.form,
        "since": iso(approval.since),
        "due": iso(approval.due),
        "command": deciding(approval, command),
    }


def deciding(approval: Approval, command: Command) -> str:
    """How it is approved; whoever rejects writes ``reject`` instead."""
    items = [word for index in approval.indexes for word in ("--index", str(index))]
    return command.short("approve", approval.execution, approval.node, *items)


def print_approvals(approvals: Sequence[Approval], command: Command, now: float, limit: int) -> None:
    """One approval more than ``limit`` tells that there are more."""
    console = stdout()
    if not approvals:
        console.print("nothing waits to be decided", style="dim")
        return
    sign = (signs_for(console).states["WAITING"], STYLES["WAITING"])
    for approval in approvals[:limit]:
        said = approval.message or f"node '{approval.node}' waits for a decision"
        console.print(Text.assemble(sign, " ", (said, "bold")), soft_wrap=True)
        console.print(Text(f"  {_about(approval, now)}", "dim"), soft_wrap=True)
        console.print(Text(f"  {deciding(approval, command)}"), soft_wrap=True)
    if len(approvals) > limit:
        console.print(f"the first {limit}; --limit shows more", style="dim")
    console.print("`dalsegno reject` instead of `dalsegno approve` says no", style="dim", markup=False)


def _about(approval: Approval, now: float) -> str:
    item = f" {list(approval.indexes)}" if approval.indexes else ""
    told = [
        f"{approval.workflow}, node '{approval.node}'{item}",
        f"asked {span(now - approval.since)} ago",
    ]
    if approval.due is not None:
        told.append(f"gives up in {countdown(approval.due - now)} ({moment(approval.due)})")
    if approval.approvers:
        told.append(f"for {', '.join(approval.approvers)}")
    if approval.form:
        fields = ", ".join(approval.form.get("properties", {}))
        told.append(f"takes --data{f' with {fields}' if fields else ''}")
    return "; ".join(told)


def meant(found: Sequence[Approval], execution: str) -> tuple[str, str]:
    """The execution and the node of the only question there is, for whoever names no node. The question may be one of
    a child."""
    places = list(dict.fromkeys((approval.execution, approval.node) for approval in found))
    if not places:
        raise NotOpen(f"execution {execution} waits for no decision now")
    if len({asking for asking, _ in places}) > 1:
        listed = ", ".join(f"'{node}' of {asking}" for asking, node in places)
        raise Refusal(f"execution {execution} waits for several decisions: at {listed}", HINT)
    if len(places) > 1:
        listed = ", ".join(f"'{node}'" for _, node in places)
        raise Refusal(f"execution {execution} waits for several decisions: at {listed}", "Name the node.")
    return places[0]
