"""What a contender measured, and the table in which contenders stand beside each other. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any


class NoFigures(Exception):
    """A contender ended without telling what it measured."""


@dataclass(frozen=True, slots=True)
class Figures:
    """``per_s`` are steps, parts or executions; the times are those of whole executions."""

    per_s: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_s: float | None = None
    """Of the contender's own processes from start to end; PostgreSQL's and Redis's are not in it."""


def read(output: str) -> Figures:
    """From the last line of a contender's output: a JSON object with the names of our own report."""
    lines = output.strip().splitlines()
    try:
        report: dict[str, Any] = json.loads(lines[-1])
        return Figures(float(report["steps_per_s"]), report["p50_ms"], report["p99_ms"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        shown = lines[-1][:200] if lines else "nothing"
        raise NoFigures(f"the last line should be a report, and is: {shown}") from error


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of each number over several runs."""
    return Figures(
        median(run.per_s for run in runs),
        _median([run.p50_ms for run in runs]),
        _median([run.p99_ms for run in runs]),
        _median([run.cpu_s for run in runs]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def table(workload: str, measured: Mapping[str, Figures | str]) -> str:
    """One line per contender; a text instead of figures is the reason why there are none. The first one is compared
    with the others: by throughput, or where one thing runs at a time, by its median time."""
    rows: list[tuple[str, ...]] = [("contender", "per second", "p50 ms", "p99 ms", "ratio", "CPU s")]
    first = next(iter(measured.values()))
    for name, figures in measured.items():
        if isinstance(figures, str):
            rows.append((name, f"failed: {figures}", "", "", "", ""))
        else:
            ratio = _ratio(workload, first, figures)
            times = _number(figures.p50_ms), _number(figures.p99_ms)
            rows.append((name, f"{figures.per_s:,.0f}", *times, ratio, _number(figures.cpu_s)))
    widths = [_width(rows, column) for column in range(len(rows[0]))]
    return "\n".join([workload, *(_line(row, widths) for row in rows)])


def _width(rows: Sequence[Sequence[str]], column: int) -> int:
    """Reasons of failures run over the columns, and do not widen them."""
    return max(len(row[column]) for row in rows if column == 0 or not row[1].startswith("failed"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _ratio(workload: str, first: Figures | str, figures: Figures) -> str:
    """How many times better the first one is."""
    if isinstance(first, str):
        return "-"
    if workload == "latency":
        return f"{figures.p50_ms / first.p50_ms:.1f}" if figures.p50_ms and first.p50_ms else "-"
    return f"{first.per_s / figures.per_s:.1f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *others = row
    if others[0].startswith("failed"):
        return f"  {name.ljust(widths[0])}  {others[0]}"
    numbers = [number.rjust(width) for number, width in zip(others, widths[1:], strict=True)]
    return "  " + "  ".join([name.ljust(widths[0]), *numbers])
