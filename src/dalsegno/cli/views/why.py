"""Output of ``why``: the engine's explanation, for a terminal and as JSON. Nothing is computed here."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from rich.text import Text

from dalsegno.cli.next_command import Command, countdown
from dalsegno.cli.output import STYLES, execution_names, iso, moment, signs_for, stdout
from dalsegno.cli.views.executions import Origin
from dalsegno.core.diagnosis import Explanation, Wait
from dalsegno.model.execution import ENDED

LOOKS = {
    "running": "RUNNING",
    "lost": "FAILED",
    "stuck": "FAILED",
    "trouble": "FAILED",
    "queued": "QUEUED",
    "paused": "PAUSED",
    "cleanup": "CANCELLED",
}


def as_object(explanation: Explanation, command: Command, origin: Origin | None = None) -> dict[str, Any]:
    return {
        **execution_names(explanation.execution, explanation.state),
        "waits": [_wait_as_object(wait, explanation.now, command) for wait in explanation.waits],
        "continues": origin._asdict() if origin is not None else None,
    }


def _wait_as_object(wait: Wait, now: float, command: Command) -> dict[str, Any]:
    seconds = math.ceil(max(wait.due - now, 0) * 1000) / 1000 if wait.due is not None else None
    return {
        **msgspec.to_builtins(wait),
        "since": iso(wait.since),
        "due": iso(wait.due),
        "seconds_left": seconds,
        "process_gone": wait.lost,
        "hint": _hint(wait, command) or None,
        "commands": [command.completed(line) for line in wait.commands],
    }


def print_explanation(explanation: Explanation, command: Command, origin: Origin | None = None) -> None:
    console = stdout()
    if origin is not None:
        console.print(Text(f"It continues {origin}.", "dim"), soft_wrap=True)
    signs = signs_for(console)
    if explanation.state in ENDED:
        console.print(f"It waits for nothing: it has ended ({explanation.state}).")
        return
    for wait in explanation.waits:
        state = LOOKS.get(wait.kind, "WAITING")
        line = Text.assemble((signs.states[state], STYLES[state]), " ", _sentence(wait, explanation.now))
        if wait.line is not None:
            line.append(f" (line {wait.line})", "dim")
        if wait.hint:
            line.append(f"; {_hint(wait, command)}", "yellow")
        console.print(line, soft_wrap=not console.is_terminal)


def _hint(wait: Wait, command: Command) -> str:
    """Return the hint with commands that name the same store or server."""
    hint = wait.hint
    for line in wait.commands:
        hint = hint.replace(f"`{line}`", f"`{command.completed(line)}`")
    return hint


def _sentence(wait: Wait, now: float) -> str:
    text = wait.sentence
    if wait.count > 1:
        text = f"{wait.count:,} × {text}"
    if wait.claimed_at is not None and not wait.claims:
        text = f"{text} ({countdown(max(now - wait.claimed_at, 0.0))} ago)"
    if wait.due is None:
        return text
    if wait.kind == "signal":
        return f"{text}; it gives up in {countdown(wait.due - now)} ({moment(wait.due)})"
    return f"{text}: in {countdown(wait.due - now)} ({moment(wait.due)})"
