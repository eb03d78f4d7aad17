"""What became of an execution: one JSON object, or a short summary for people."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.json import JSON
from rich.markup import escape
from rich.text import Text

from dalsegno.cli.desk import Desk
from dalsegno.cli.lasting import fails_always, is_of_the_code
from dalsegno.cli.output import emit, execution_names, several, span, stdout
from dalsegno.cli.screen import state_text
from dalsegno.cli.script_progress import ScriptProgress
from dalsegno.cli.source_text import SourceText, stored_source
from dalsegno.cli.stack import print_stack
from dalsegno.core.values import decode_value
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.wiring import default_store, shown_url, store_of_environment

COMPLETED = 0
NOT_COMPLETED = 1
TRACEBACK = "Traceback (most recent call last):"
SHOWN = 4000
"""Characters of an output that a terminal is shown."""


@dataclass(frozen=True, slots=True)
class Result:
    view: ExecutionView
    output: Any
    error: dict[str, Any] | None
    parts: dict[str, dict[str, Any]]
    """State and runs of every node, or of every task of a script."""
    context: dict[str, Any] | None = None
    """Of a graph."""
    source: SourceText | None = None
    """Of a script or Python workflow."""
    failed: int = 0
    """Runs that failed, whether or not that ended the execution."""

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
            told = {"output": self.output, "context": self.context, "error": self.error, "nodes": self.parts}
        else:
            told = {"output": self.output, "error": self.error, "tasks": self.parts}
        return {**head, **told}


async def read_result(client: Desk, execution: str) -> Result:
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
    )


def output_of(view: ExecutionView) -> Any:
    return decode_value(view.output) if view.output is not None else None


def error_of(view: ExecutionView) -> dict[str, Any] | None:
    return msgspec.json.decode(view.error, type=dict[str, Any]) if view.error is not None else None


def print_result(result: Result, command: Command, *, as_json: bool) -> None:
    if as_json:
        emit(result.as_object())
    else:
        _print_summary(result, command)


@dataclass(frozen=True, slots=True)
class Command:
    """How this program is called about the same execution: what hints are made of."""

    store: str
    app: str | None = None
    server: str | None = None
    """Instead of a store."""

    @property
    def is_lasting(self) -> bool:
        """Whether another process could go on with it."""
        return self.server is not None or not self.store.startswith("memory:")

    def line(self, verb: str, execution: str) -> str:
        words = ["dalsegno", verb, execution, *self._place()]
        if self.app is not None:
            words += ["--app", self.app]
        return shlex.join(words)

    def signal(self, execution: str, name: str) -> str:
        """How a signal is sent; no code is needed for that."""
        return self.short("signal", execution, name)

    def short(self, verb: str, *words: str) -> str:
        """Short where it can be: it is shown while people wait."""
        words = ("dalsegno", verb, *words)
        if self.server is not None:
            usual = self.server == os.environ.get("DALSEGNO_SERVER")
        else:
            usual = self.store == default_store()
        return shlex.join(words if usual else (*words, *self._place()))

    def _place(self) -> tuple[str, ...]:
        if self.server is not None:
            return ("--server", self.server)
        if self.store == store_of_environment():
            return ()
        return ("--store", shown_url(self.store))  # a password is for whoever types it in again


def _print_summary(result: Result, command: Command) -> None:
    console = stdout()
    view = result.view
    runs = sum(part["runs"] for part in result.parts.values())
    noun = "run" if view.kind == "graph" else "task"
    took = span((view.ended_at or view.touched_at) - view.created_at)
    failed = f", [yellow]{result.failed:,} failed[/]," if result.failed and view.state == "COMPLETED" else ""
    version = f" v{view.version}" if view.version else ""
    count = f"{several(runs, noun)}{failed} in " if view.kind != "task" else ""
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
        _print_way_on(result, command)


def _print_way_on(result: Result, command: Command) -> None:
    console, view = stdout(), result.view
    if result.error is not None and fails_always(view.kind, result.error):
        console.print(
            "[dim]The same would fail again: change the workflow or its input, then run it anew.[/]",
            soft_wrap=True,
        )
        return
    if result.error is not None and is_of_the_code(view.kind, result.error):
        console.print(
            "[dim]A retry keeps this version and its input: mend what is wrong, then start it anew with"
            " `dalsegno run …`.[/]",
            soft_wrap=True,
        )
        return
    again = "From there again:" if view.kind == "graph" else "Once more, from the beginning:"
    console.print(f"[dim]{again}[/] {escape(command.line('retry', view.id))}", soft_wrap=True)


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
    """Of the task or node that raised it. That of a Python workflow says more than the stack, which is shown above,
    where it has a cause."""
    if error.get("traceback"):
        return str(error["traceback"])
    details = error.get("details")
    own = str(details.get("traceback") or "") if isinstance(details, dict) else ""
    return own if own.count(TRACEBACK) > 1 else ""


def _names(error: dict[str, Any]) -> str:
    """A node's error is known by its code; that of a program by its class, which it could have caught."""
    code, kind = error.get("code"), error.get("type")
    names = [code] if error.get("node") else [kind] if code == "TASK_FAILED" else [kind, code]
    told = ", ".join(dict.fromkeys(str(name) for name in names if name))
    return f" ({told})" if told else ""


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
