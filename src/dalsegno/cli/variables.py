"""Variables of a workflow as text and as JSON, whatever they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

SHOWN = 30
WIDE = 300


def as_json(value: Any) -> Any:
    """The value itself where JSON can carry it, else its text."""
    try:
        return json.loads(json.dumps(value, default=_text))
    except (TypeError, ValueError, RecursionError):
        return _text(value)


def print_variables(console: Console, variables: Mapping[str, Any]) -> None:
    """One line each; a terminal cuts long ones at its edge, a pipe at a length that is still readable."""
    if not variables:
        return
    console.print("\nvariables", style="dim")
    wide = max(len(name) for name in list(variables)[:SHOWN])
    for name, value in list(variables.items())[:SHOWN]:
        line = Text.assemble("  ", (f"{name:<{wide}}", "bold"), "  ", _line(value))
        if console.is_terminal:
            line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    if len(variables) > SHOWN:
        console.print(f"  and {len(variables) - SHOWN:,} more; --json shows all", style="dim")


def _line(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, default=_text)
    except (TypeError, ValueError, RecursionError):
        text = _text(value)
    return text if len(text) <= WIDE else f"{text[:WIDE]} ..."


def _text(value: Any) -> str:
    """``repr`` may be the user's own code."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has no text
        return f"<{type(value).__name__}, whose text cannot be had: {type(error).__name__}>"
