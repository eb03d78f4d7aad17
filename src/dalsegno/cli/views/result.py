"""The result of an execution: one JSON object, or a short summary on a terminal.

Also the tasks and workflows that an ended execution started without waiting for them, and that still run.

Failures that a retry would meet again are those of a definition or of an input, not of a task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.json import JSON
from rich.markup import escape
from rich.text import Text

from dalsegno.cli.live.script_progress import ScriptProgress
from dalsegno.cli.next_command import Command
from dalsegno.cli.output import emit, execution_names, several, span, state_text, stderr, stdout
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.cli.views.source import print_stack, stored_source
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.values import decode_value
from dalsegno.engine.client import Client
from dalsegno.engine.engine import OWN, Engine
from dalsegno.errors import (
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotJson,
)
from dalsegno.lang.python import NotStorable, UnsupportedPython
from dalsegno.lang.runtime.effects import asks_people
from dalsegno.model.execution import CLEANUP_RELATION, ENDED, NOT_ENDED, SCRIPTED, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

OF_PROGRAMS = frozenset(
    kind.__name__ for kind in (InvalidDefinition, InvalidInput, LimitExceeded, NotStorable, UnsupportedPython)
)
"""Codes of errors of the program itself, not of its tasks."""


OF_GRAPHS = OF_PROGRAMS | {
    "EDIT_FAILED",
    "INVALID_PARAMETERS",
    "NOT_AN_OBJECT",
    "NOT_A_LIST",
    "OUTPUT_FAILED",
    "WRONG_NODE_TYPE",
}
"""Codes for graphs. A retry starts where the graph failed, with the recorded outputs, so it would fail again."""


def fails_always(kind: str, error: Mapping[str, Any]) -> bool:
    """Return whether a retry would fail again. ``kind``: of the execution. A program starts over, so its tasks may
    succeed."""
    known = OF_GRAPHS if kind == "graph" else OF_PROGRAMS
    return kind != "task" and error.get("code") in known and _is_ours(error)


OF_SCRIPTS = frozenset(
    (
        "NOT_A_FUNCTION",
        "PROPERTY_NOT_FOUND",
        "ReferenceError",
        "TYPE_ERROR",
        "TypeError",
        "WRONG_ARG_COUNT",
        "WRONG_ARG_TYPE",
    )
)
"""Codes that the script language gives to mistakes in the program's own text."""


OF_PYTHON = frozenset(
    ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", NotJson.__name__)
)


FORGOTTEN_AWAIT = "is an await missing?"


def is_of_the_code(kind: str, error: Mapping[str, Any]) -> bool:
    """Return whether the workflow's own text must be fixed. Errors of tasks have other codes, or name their classes."""
    if kind not in SCRIPTED:
        return False
    code = error.get("code")
    if not error.get("classes"):
        return code in OF_SCRIPTS
    return code in OF_PYTHON or FORGOTTEN_AWAIT in str(error.get("message"))


def _is_ours(error: Mapping[str, Any]) -> bool:
    """Return whether the exception is ours: a user's exception may have the same name."""
    classes = error.get("classes")
    return not classes or str(classes[0]).startswith("dalsegno.")


MOST_NAMED = 5


async def still_running(engine: Engine, execution: str) -> list[ExecutionView]:
    """Return what still runs. Call it when this process runs nothing any more."""
    await engine.outbox.drain()  # orders of its last step exist only after this
    return await unfinished(engine.client, execution)


async def unfinished(client: Client, execution: str) -> list[ExecutionView]:
    where = ExecutionFilter(None, NOT_ENDED, parent=execution, relations=OWN)
    found: list[ExecutionView] = []
    before: str | None = None
    while page := await client.executions(where, before):
        found += page
        before = page[-1].id
    return found


def explain_unfinished(left: Sequence[ExecutionView], command: Command) -> None:
    if not left:
        return
    console = stderr()
    what = (
        "1 execution that it started has"
        if len(left) == 1
        else f"{len(left)} executions that it started have"
    )
    if not command.is_lasting:
        console.print(f"{what} not ended; a memory: store ends with its process, so nothing continues that")
        return
    console.print(f"{what} not ended. A worker continues that, or:")
    for view in left[:MOST_NAMED]:
        console.print("  " + command.line("resume", view.id), markup=False, soft_wrap=True)
    if len(left) > MOST_NAMED:
        console.print(f"  … and {len(left) - MOST_NAMED} more")


COMPLETED = 0
NOT_COMPLETED = 1
TRACEBACK = "Traceback (most recent call last):"
SHOWN = 4000
"""Characters of an output that a terminal shows."""


@dataclass(frozen=True, slots=True)
class Result:
    view: ExecutionView
    output: Any
    error: dict[str, Any] | None
    parts: dict[str, dict[str, Any]]
    """State and runs of every node of a graph, or of every task of a script."""
    context: dict[str, Any] | None = None
    """Only of a graph."""
    source: SourceText | None = None
    """Only of a script or Python workflow."""
    failed: int = 0
    """Failed runs, whether or not one ended the execution."""
    has_letter: bool = False
    """True if a dead letter says that its clean-up did not finish."""

    @property
    def exit_code(self) -> int:
        return COMPLETED if self.view.state == "COMPLETED" else NOT_COMPLETED

    def as_object(self) -> dict[str, Any]:
        view = self.view
        head = {
            **execution_names(view.id, view.state),
            "workflow": view.workflow,
            "version": view.version,
            "kind": view.kind,
        }
        if view.kind == "graph":
            shown = {"output": self.output, "context": self.context, "error": self.error, "nodes": self.parts}
        else:
            shown = {"output": self.output, "error": self.error, "tasks": self.parts}
        return {**head, **shown}


async def read_result(client: WorkflowApi, execution: str) -> Result:
    view = await client.status(execution)
    if view.kind == "graph":
        summaries, context = await client.nodes(execution), await client.context(execution)
    else:
        moment = await ScriptProgress(client, execution).look(complete=True)
        summaries, context = dict(moment.tasks), None
    return Result(
        view,
        output_of(view),
        error_of(view),
        {name: {"state": summary.state, "runs": summary.runs} for name, summary in summaries.items()},
        context,
        await stored_source(client, view),
        sum(summary.failed for summary in summaries.values()),
        await has_letter(client, view),
    )


async def has_letter(client: WorkflowApi, view: ExecutionView) -> bool:
    may_have = view.kind in SCRIPTED and view.state in ENDED and view.state != "COMPLETED"
    return may_have and await client.has_cleanup_letter(view.id)


def output_of(view: ExecutionView) -> Any:
    return decode_value(view.output) if view.output is not None else None


def error_of(view: ExecutionView) -> dict[str, Any] | None:
    return msgspec.json.decode(view.error, type=dict[str, Any]) if view.error is not None else None


def print_result(result: Result, command: Command, *, as_json: bool) -> None:
    if as_json:
        emit(result.as_object())
    else:
        _print_summary(result, command)


def gone_hint(command: Command, execution: str) -> str:
    return f"its process has ended; continue with `{command.line('resume', execution)}` or start a worker"


def _print_summary(result: Result, command: Command) -> None:
    console = stdout()
    view = result.view
    took = span((view.ended_at or view.touched_at) - view.created_at)
    failed = f", [yellow]{result.failed:,} failed[/]," if result.failed and view.state == "COMPLETED" else ""
    version = f" v{view.version}" if view.version else ""
    count = f"{_counted(result)}{failed} in " if view.kind != "task" else ""
    console.print(
        f"{state_text(console, view.state)}  [bold]{escape(view.workflow)}[/]{version}"
        f"  [dim]{view.id}[/]  {count}{took}",
        soft_wrap=True,
    )
    if result.error is not None:
        print_error(result.error, result.source)
    if view.state == "COMPLETED":
        print_value(result.output)
    elif view.state in ENDED and command.is_lasting:
        _print_next_step(result, command)


def _counted(result: Result) -> str:
    """Return how many nodes of a graph ran, or how many tasks and approvals of a script."""
    runs = sum(part["runs"] for part in result.parts.values())
    if result.view.kind == "graph":
        return several(runs, "run")
    asked = sum(part["runs"] for name, part in result.parts.items() if asks_people(name))
    counts = [(runs - asked, "task"), (asked, "approval")]
    return " and ".join(several(*each) for each in counts if each[0]) or several(0, "task")


def _print_next_step(result: Result, command: Command) -> None:
    console, view = stdout(), result.view
    if result.has_letter:
        print_letter(view, command)
        if view.state == "FAILED" and result.error is not None and fails_always(view.kind, result.error):
            console.print(
                "[dim]Run again from the beginning it would fail the same way: change the workflow, its input or "
                "the limit first.[/]",
                soft_wrap=True,
            )
        return
    if view.relation == CLEANUP_RELATION:
        return  # it never starts over
    if result.error is not None and fails_always(view.kind, result.error):
        console.print(
            "[dim]The same would fail again: change the workflow or its input, then run it again.[/]",
            soft_wrap=True,
        )
        return
    if result.error is not None and is_of_the_code(view.kind, result.error):
        console.print(
            "[dim]A retry keeps this version and its input: fix the cause, then start it again with "
            "`dalsegno run …`.[/]",
            soft_wrap=True,
        )
        return
    from_there = view.kind == "graph" or view.context is not None
    again = "From there again:" if from_there else "To run it again:"
    console.print(f"[dim]{again}[/] {escape(command.line('retry', view.id))}", soft_wrap=True)


def print_letter(view: ExecutionView, command: Command) -> None:
    line = command.line("dead retry", f"cleanup:{view.id}")
    stdout().print(
        f"[dim]Its clean-up is unfinished. To continue it:[/] {escape(line)}",
        soft_wrap=True,
    )


def print_error(error: dict[str, Any], source: SourceText | None = None) -> None:
    console = stdout()
    where = f" at node '{error['node']}'" if error.get("node") else ""
    said = escape(str(error.get("message", "")))
    console.print(
        f"[red]error{escape(where)}:[/] {said}[dim]{escape(_names(error))}[/]",
        soft_wrap=not console.is_terminal,
    )
    print_stack(console, error, source)
    traceback = traceback_in(error)
    if traceback:
        console.print(Text(traceback, "dim"), soft_wrap=True)


def traceback_in(error: dict[str, Any]) -> str:
    """Return the traceback of the task or node that raised. That of a Python workflow is only returned if it has a
    cause: otherwise the stack, which is shown above, says the same."""
    if error.get("traceback"):
        return str(error["traceback"])
    details = error.get("details")
    own = str(details.get("traceback") or "") if isinstance(details, dict) else ""
    return own if own.count(TRACEBACK) > 1 else ""


def _names(error: dict[str, Any]) -> str:
    """Return the name of an error: the code of a node's error, or the class of a program's error, which the program
    could have caught."""
    code, kind = error.get("code"), error.get("type")
    names = [code] if error.get("node") else [kind] if code == "TASK_FAILED" else [kind, code]
    listed = ", ".join(dict.fromkeys(str(name) for name in names if name))
    return f" ({listed})" if listed else ""


def print_value(value: Any) -> None:
    console = stdout()
    text = json.dumps(value, ensure_ascii=False, indent=2)
    if not console.is_terminal:
        print(text)
    elif len(text) <= SHOWN:
        console.print(JSON(text), soft_wrap=True)
    else:
        print(text[:SHOWN])
        console.print(f"[dim]{len(text) - SHOWN:,} more characters; --json prints all of it[/]")
