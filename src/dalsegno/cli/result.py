"""What became of an execution: one JSON object, or a short summary for people."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.json import JSON
from rich.markup import escape

from dalsegno.cli.output import emit, several, span, stdout
from dalsegno.cli.screen import state_text
from dalsegno.core.values import decode_value
from dalsegno.engine.client import Client
from dalsegno.model.execution import ENDED, ExecutionView

COMPLETED = 0
NOT_COMPLETED = 1
SHOWN = 4000
"""Characters of an output that a terminal is shown."""


@dataclass(frozen=True, slots=True)
class Result:
    view: ExecutionView
    output: Any
    error: dict[str, Any] | None
    context: dict[str, Any]
    nodes: dict[str, dict[str, Any]]
    failed: int = 0
    """Runs that failed, whether or not that ended the execution."""

    @property
    def exit_code(self) -> int:
        return COMPLETED if self.view.state == "COMPLETED" else NOT_COMPLETED

    def as_object(self) -> dict[str, Any]:
        return {
            "execution_id": self.view.id,
            "workflow": self.view.workflow,
            "version": self.view.version,
            "status": self.view.state,
            "output": self.output,
            "context": self.context,
            "error": self.error,
            "nodes": self.nodes,
        }


async def read_result(client: Client, execution: str) -> Result:
    view = await client.status(execution)
    nodes = await client.nodes(execution)
    return Result(
        view,
        output_of(view),
        error_of(view),
        await client.context(execution),
        {name: {"state": summary.state, "runs": summary.runs} for name, summary in nodes.items()},
        sum(summary.failed for summary in nodes.values()),
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

    def line(self, verb: str, execution: str) -> str:
        words = ["dalsegno", verb, execution, "--store", self.store]
        if self.app is not None:
            words += ["--app", self.app]
        return shlex.join(words)


def _print_summary(result: Result, command: Command) -> None:
    console = stdout()
    view = result.view
    runs = sum(node["runs"] for node in result.nodes.values())
    took = span((view.ended_at or view.touched_at) - view.created_at)
    failed = f", [yellow]{result.failed:,} failed[/]," if result.failed and view.state == "COMPLETED" else ""
    console.print(
        f"{state_text(console, view.state)}  [bold]{escape(view.workflow)}[/] v{view.version}"
        f"  [dim]{view.id}[/]  {several(runs, 'run')}{failed} in {took}",
        soft_wrap=True,
    )
    if result.error is not None:
        print_error(result.error)
    if view.state == "COMPLETED":
        print_value(result.output)
    elif view.state in ENDED and not command.store.startswith("memory:"):
        console.print(f"[dim]From there again:[/] {escape(command.line('retry', view.id))}", soft_wrap=True)


def print_error(error: dict[str, Any]) -> None:
    console = stdout()
    where = f" at node '{error['node']}'" if error.get("node") else ""
    code = f" ({error['code']})" if error.get("code") else ""
    console.print(
        f"[red]error{escape(where)}:[/] {escape(str(error.get('message', '')))}[dim]{escape(code)}[/]",
        soft_wrap=not console.is_terminal,
    )


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
