"""Open tasks as data, as a list, and in full."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text

from dalsegno.cli.output import iso, stdout
from dalsegno.engine.operations.manual_tasks import OpenTask


def as_object(task: OpenTask) -> dict[str, Any]:
    return {**msgspec.structs.asdict(task), "due": iso(task.due)}


def print_tasks(tasks: Sequence[OpenTask]) -> None:
    """Print each id on a line of its own, to be copied."""
    console = stdout()
    if not tasks:
        console.print("no task is pending or running")
        return
    for task in tasks:
        console.print(Text(task.id, "bold"), soft_wrap=True)
        console.print(Text(f"  {_what(task)}"), soft_wrap=True)


def print_task(task: OpenTask) -> None:
    console = stdout()
    print_tasks([task])
    if task.docs:
        console.print(Text(f"  {task.docs}", "dim"), soft_wrap=True)
    console.print(Text(f"  input: {_json(task.input)}"), soft_wrap=True)
    if task.returns is not None:
        console.print(Text(f"  returns: {_json(task.returns)}"), soft_wrap=True)


def _what(task: OpenTask) -> str:
    kind = "remote task" if task.is_remote else "task" if task.task is not None else "node"
    name = task.task if task.task is not None else task.node
    where = f" at node '{task.node}'" if task.task is not None and task.node != task.task else ""
    return f"{kind} '{name}'{where} of {task.workflow or 'unknown workflow'}: {_state(task)}, attempt {task.attempt}"


def _state(task: OpenTask) -> str:
    if task.lost is not None:
        return task.lost
    if task.state == "running":
        return f"held by {task.holder}" if task.holder else "running"
    if task.state == "queued":
        return f"waits in queue '{task.queue}'"
    if task.state == "waiting" and task.due is not None:
        return f"sleeps until {iso(task.due)}"
    return "its execution is paused" if task.state == "paused" else "waits for something from outside"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def person(given: str | None) -> str | None:
    """Return the name of the person who acts: the given one, else the user of this machine."""
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the account has no name
        return None
