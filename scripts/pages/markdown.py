"""Pieces of Markdown that the pages share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by scripts/generate_docs.py; do not edit. -->\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: object) -> str:
    """Inline code, with a fence that the text does not contain."""
    shown = str(text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"
