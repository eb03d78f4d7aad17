"""What an execution has published, as rows of a terminal and as plain lines: bars of progress, and values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import Signs
from dalsegno.cli.target.target import WorkflowApi
from dalsegno.errors import NotFound
from dalsegno.lang.runtime.effects import display_name
from dalsegno.model.published import PROGRESS

BAR = 16
MOST_ROWS = 12
"""Published values that are shown; the others are counted."""
WIDEST_VALUE = 300
STEPS = 10
"""Plain lines report a progress again after each of so many parts of its total."""


async def shown_values(client: WorkflowApi, execution: str) -> Mapping[str, Any]:
    """Return the published values; none of an execution that was removed, or from a server without them."""
    try:
        return await client.published(execution)
    except NotFound:
        return {}


def is_progress(key: str) -> bool:
    return key == PROGRESS or key.startswith(f"{PROGRESS}/")


def published_rows(values: Mapping[str, Any], signs: Signs, width: int) -> list[Table]:
    """Return a table with a row per value, progress first; nothing if there is none."""
    if not values:
        return []
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 16))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    rows = [*_bars(values, signs), *_texts(values)]
    for label, shown in rows[:MOST_ROWS]:
        grid.add_row(Text.assemble("  ", label, overflow="ellipsis"), shown)
    if len(rows) > MOST_ROWS:
        grid.add_row(Text(f"  {signs.ellipsis} {len(rows) - MOST_ROWS:,} more", "dim"), "")
    return [grid]


def _bars(values: Mapping[str, Any], signs: Signs) -> Iterator[tuple[Text, Text]]:
    for key, value in values.items():
        if is_progress(key) and isinstance(value, Mapping):
            yield Text(label_of(key), "bold"), bar_of(value, signs)


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[Text, Text]]:
    for key, value in values.items():
        if not is_progress(key):
            yield Text(_printable(key), "bold"), Text(value_text(value), overflow="ellipsis")


def label_of(key: str) -> str:
    """Return whose progress it is: of the workflow, or of a task with the number of its call."""
    name = key.removeprefix(PROGRESS).removeprefix("/")
    return _printable(display_name(name)) if name else PROGRESS


def bar_of(value: Mapping[str, Any], signs: Signs) -> Text:
    done, total, text = value.get("done"), value.get("total"), value.get("text")
    shown = Text(overflow="ellipsis")
    share = share_of(value)
    if share is not None:
        full = int(BAR * share)
        whole, edge, rest = signs.bar
        shown.append(whole * full, "green")
        if full < BAR:
            shown.append(edge if share else rest, "green" if share else "dim")
            shown.append(rest * (BAR - full - 1), "dim")
        shown.append(f" {_number(done)}/{_number(total)} {share:4.0%}")
    else:
        shown.append(_number(done))
    if text:
        shown.append(f"  {_printable(str(text))}", "dim")
    return shown


def share_of(value: Mapping[str, Any]) -> float | None:
    """Return which part is done; None if there is no total."""
    done, total = value.get("done"), value.get("total")
    if not isinstance(done, int | float) or not isinstance(total, int | float) or total <= 0:
        return None
    return min(max(done / total, 0.0), 1.0)


def _number(value: Any) -> str:
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else "?"


def value_text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _printable(text)
    return text if len(text) <= WIDEST_VALUE else f"{text[:WIDEST_VALUE]} ..."


def _printable(text: str) -> str:
    """Return the text as one line without control characters, which could change the terminal."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


class PublishedLines:
    """Plain lines for logs and pipes: each value when it changes, a progress after each tenth of its total."""

    def __init__(self) -> None:
        self._seen: dict[str, Any] = {}

    def new(self, values: Mapping[str, Any]) -> list[str]:
        lines: list[str] = []
        for key, value in values.items():
            mark = _mark(key, value)
            if key not in self._seen or self._seen[key] != mark:
                self._seen[key] = mark
                lines.append(_line(key, value))
        return lines


def _mark(key: str, value: Any) -> Any:
    share = share_of(value) if is_progress(key) and isinstance(value, Mapping) else None
    return value if share is None else int(share * STEPS)


def _line(key: str, value: Any) -> str:
    if not is_progress(key) or not isinstance(value, Mapping):
        return f"{_printable(key)}: {value_text(value)}"
    share, text = share_of(value), value.get("text")
    far = _number(value.get("done"))
    if share is not None:
        far = f"{far}/{_number(value.get('total'))} ({share:.0%})"
    label = "" if key == PROGRESS else f" of {label_of(key)}"
    return f"progress{label} {far}" + (f": {_printable(str(text))}" if text else "")
