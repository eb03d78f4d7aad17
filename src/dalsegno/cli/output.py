"""Output: results to stdout, everything else to stderr; symbols, durations and times."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

ENDLESS = 10_000
"""A width that no table reaches."""


def stdout() -> Console:
    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def print_table(console: Console, table: RenderableType, *, crop: bool = True) -> None:
    """Print a table. In a pipe lines have no trailing spaces, and without ``crop`` no maximum width."""
    if console.is_terminal:
        console.print(table, crop=crop)
        return
    if not crop:
        console.width = ENDLESS
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.print(Text(line.rstrip()), soft_wrap=True)


def emit(value: Any) -> None:
    """Print one JSON value on stdout: on one line in a pipe, indented on a terminal."""
    ascii_only = not is_unicode(sys.stdout.encoding)
    indent = 2 if sys.stdout.isatty() else None
    print(json.dumps(value, ensure_ascii=ascii_only, indent=indent), flush=True)


def execution_names(id: str, state: str) -> dict[str, Any]:
    """Return the names of an execution in ``--json``: ``id`` and ``state``, as over HTTP. The earlier names,
    ``execution_id`` and ``status``, are removed in 0.2."""
    return {"id": id, "state": state, "execution_id": id, "status": state}


def reference_names(execution: str | None, prefix: str = "") -> dict[str, Any]:
    """Return the reference to an execution in ``--json``: ``execution``, and its earlier name."""
    return {f"{prefix}execution": execution, f"{prefix}execution_id": execution}


def is_unicode(encoding: str | None) -> bool:
    return (encoding or "").lower().replace("-", "").startswith("utf")


@dataclass(frozen=True, slots=True)
class Signs:
    """The symbols for states and shapes; ASCII where a terminal has no others."""

    states: dict[str, str]
    branch: str
    last: str
    through: str
    bar: tuple[str, str, str]
    """Done, the boundary, not done."""
    dot: str
    ellipsis: str
    here: str
    """Marks the current line of a program."""
    gutter: str
    spinner: str

    def spin(self, now: float) -> str:
        """Return a frame of the spinner."""
        return self.spinner[int(now * 8) % len(self.spinner)]


UNICODE = Signs(
    {
        "PENDING": "○",
        "QUEUED": "◌",
        "RUNNING": "●",
        "WAITING": "◔",
        "PAUSED": "◫",
        "COMPLETED": "✓",
        "FAILED": "✗",
        "SKIPPED": "–",
        "CANCELLED": "⊘",
    },
    "├─ ",
    "└─ ",
    "│  ",
    ("━", "╸", "─"),
    "·",
    "…",
    "▶",
    "│",
    "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
)
ASCII = Signs(
    {
        "PENDING": ".",
        "QUEUED": "o",
        "RUNNING": ">",
        "WAITING": "~",
        "PAUSED": "=",
        "COMPLETED": "+",
        "FAILED": "x",
        "SKIPPED": "-",
        "CANCELLED": "/",
    },
    "|- ",
    "`- ",
    "|  ",
    ("#", "#", "-"),
    "-",
    "...",
    ">",
    "|",
    "|/-\\",
)

STYLES = {
    "PENDING": "dim",
    "QUEUED": "cyan",
    "RUNNING": "bold cyan",
    "WAITING": "yellow",
    "PAUSED": "yellow",
    "COMPLETED": "green",
    "FAILED": "bold red",
    "SKIPPED": "dim",
    "CANCELLED": "magenta",
}


def signs_for(console: Console) -> Signs:
    return UNICODE if is_unicode(console.encoding) and not console.legacy_windows else ASCII


def span(seconds: float) -> str:
    """Format a duration: ``420 ms``, ``12.3 s``, ``3:05 min``, ``2 h 10 min``, ``3 d 4 h``."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24} h"


def several(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment(at: float | None) -> str:
    """Format a time in the user's time zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S") if at is not None else ""


def iso(at: float | None) -> str | None:
    return (
        datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds") if at is not None else None
    )


MOMENTS = frozenset(("at", "since", "due", "start", "end", "overdue", "last"))
"""Names of fields with a time, besides those that end in ``_at``."""


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """Return these fields of a value for ``--json``, in this order."""
    return {name: _shown(name, getattr(value, name)) for name in names}


def _shown(name: str, value: Any) -> Any:
    if name in MOMENTS or name.endswith("_at"):
        return iso(value)
    return list(value) if isinstance(value, tuple) else value


def error_text(error: Any) -> str:
    """Return what an event says of an error: that of user code with its class, because `'count'` alone says little."""
    if not isinstance(error, Mapping):
        return ""
    message, kind = str(error.get("message", "")), str(error.get("type", ""))
    if error.get("code") not in ("TASK_FAILED", "NODE_FAILED") or kind in ("", "Error", "NodeError"):
        return message
    return f"{kind}: {message}" if message else kind


def state_text(console: Console, state: str) -> str:
    return f"[{STYLES[state]}]{escape(signs_for(console).states[state])} {state}[/]"
