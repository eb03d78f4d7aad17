"""Limits as data and on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import iso, print_table, stdout
from dalsegno.model.limits import LimitView, show_rate


def as_object(view: LimitView) -> dict[str, Any]:
    rate = view.rule.rate
    return {
        "key": view.key,
        "concurrency": view.rule.concurrency,
        "rate": show_rate(rate) if rate is not None else None,
        "in_use": view.in_use,
        "waiting": view.waiting,
        "opens_at": iso(view.opens_at),
    }


def told(view: LimitView) -> str:
    """What operators have set, in a few words."""
    rule = view.rule
    parts = [f"{rule.concurrency} at once"] if rule.concurrency is not None else []
    parts += [show_rate(rule.rate)] if rule.rate is not None else []
    return ", ".join(parts) or "as definitions say"


def print_limits(views: Sequence[LimitView]) -> None:
    console = stdout()
    if not views:
        console.print("no limits are set, and nothing uses one", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis")
    for title in ("limit", "in use", "waiting"):
        table.add_column(title, no_wrap=True)
    for view in views:
        table.add_row(Text(view.key, "bold"), told(view), f"{view.in_use:,}", f"{view.waiting:,}")
    print_table(console, table)
