"""A soak as one SVG: panels over the same time, readable on light and on dark pages, without any library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from bench.soak.samples import HISTORY, HOT, Sample, depth_of, latency, rss_of
from bench.soak.verdict import SERVERS

WIDTH, LEFT, RIGHT = 920, 64, 24
TOP, PANEL, GAP = 92, 132, 66
INNER = WIDTH - LEFT - RIGHT
NEARLY = 1.01
"""A run that is over a moment before its last mark of time is marked all the same."""

STYLE = """
svg { --paper: #ffffff; --ink: #1f2430; --faint: #6b7280; --grid: #e5e7eb; --band: #f6f7f9;
      --a: #2563eb; --b: #d97706; --c: #059669; --d: #9333ea; --e: #dc2626; --f: #0891b2 }
@media (prefers-color-scheme: dark) {
  svg { --paper: #14161c; --ink: #e6e8ee; --faint: #9aa3b2; --grid: #2b303b; --band: #1a1d25;
        --a: #7aa2ff; --b: #f5b14c; --c: #4ed6a5; --d: #c79bff; --e: #ff8a8a; --f: #5bd0e6 }
}
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: var(--faint) }
.title { font-size: 17px; font-weight: 600; fill: var(--ink) }
.name { font-size: 13px; font-weight: 600; fill: var(--ink) }
.paper { fill: var(--paper) } .band { fill: var(--band) } .grid { stroke: var(--grid); stroke-width: 1 }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round }
.a { stroke: var(--a) } .b { stroke: var(--b) } .c { stroke: var(--c) } .d { stroke: var(--d) }
.e { stroke: var(--e) } .f { stroke: var(--f) }
.key-a { fill: var(--a) } .key-b { fill: var(--b) } .key-c { fill: var(--c) } .key-d { fill: var(--d) }
.key-e { fill: var(--e) } .key-f { fill: var(--f) }
"""
COLOURS = "abcdef"
TITLES = {
    "": "Soak on PostgreSQL",
    "redis": "Soak on Redis and PostgreSQL",
    "rabbitmq": "Soak on RabbitMQ, Redis and PostgreSQL",
}


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    lines: dict[str, list[float]]


def draw(samples: Sequence[Sample], found: dict[str, Any], broker: str = "") -> str:
    if not samples:
        raise ValueError("there are no samples to draw: the soak was shorter than the time between two")
    panels = panels_of(samples)
    height = TOP + len(panels) * (PANEL + GAP)
    times = [sample.at for sample in samples]
    words = escape(headline(samples, found))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{words}">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}" rx="8"/>',
        text(LEFT, 34, TITLES[broker], "title"),
        text(LEFT, 56, headline(samples, found)),
    ]
    for place, panel in enumerate(panels):
        parts += draw_panel(panel, times, TOP + place * (PANEL + GAP) + 20)
    return "\n".join([*parts, "</svg>", ""])


def panels_of(samples: Sequence[Sample]) -> list[Panel]:
    def over(value: Callable[[Sample], float]) -> list[float]:
        return [value(sample) for sample in samples]

    rss = {name: over(rss_of(name)) for name in samples[-1].rss}
    others = {name: rss.pop(name) for name in list(rss) if name in SERVERS or name.endswith(" worker")}
    depths = {name: over(depth_of(name)) for name in samples[-1].depths}
    queues = {name: line for name, line in depths.items() if max(line) > 0}
    of_brokers = [
        Panel("Memory of brokers and workers of others", "MB", others),
        Panel("What waits in queues and streams", "messages", dict(list(queues.items())[: len(COLOURS)])),
    ]
    return [
        Panel("Work done", "steps/s", {"steps per second": over(lambda each: each.steps / each.seconds)}),
        Panel(
            "From start to end", "ms",
            {"p99": over(lambda each: latency([each], 0.99)), "p50": over(lambda each: latency([each], 0.5))},
        ),
        Panel("Memory of processes", "MB", rss),
        Panel(
            "Tables with their indexes", "MB",
            {"history": over(lambda each: each.size(HISTORY)), "in flight": over(lambda each: each.size(HOT))},
        ),
        Panel(
            "Dead rows that wait for vacuum", "thousands",
            {
                "history": over(lambda each: each.dead(HISTORY) / 1000),
                "in flight": over(lambda each: each.dead(HOT) / 1000),
            },
        ),
        *(panel for panel in of_brokers if panel.lines),
    ]  # fmt: skip


def headline(samples: Sequence[Sample], found: dict[str, Any]) -> str:
    lasted = samples[-1].at
    time = f"{lasted / 60:.0f} min" if lasted >= 300 else f"{lasted:.0f} s"
    peak = found["peak_executions_per_s"]
    of = f" (peak {peak:,.0f} executions/s)" if peak is not None else ""
    return (
        f"{time}, {len(samples[-1].rss)} processes; {found['executions_per_s']:,.0f} executions/s"
        f" = {found['steps_per_s']:,.0f} steps/s{of}"
    )


def draw_panel(panel: Panel, times: Sequence[float], top: float) -> list[str]:
    end = max(times)
    highest, step = scale(max((max(line) for line in panel.lines.values()), default=0.0))
    bottom = top + PANEL

    def x(time: float) -> float:
        return LEFT + INNER * time / end

    def y(value: float) -> float:
        return bottom - PANEL * value / highest

    parts = [f'<rect class="band" x="{x(end / 3):.1f}" y="{top}" width="{INNER / 3:.1f}" height="{PANEL}"/>']
    for number in range(round(highest / step) + 1):
        at = y(number * step)
        parts += [
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>',
            text(LEFT - 8, at + 4, f"{number * step:,g}", anchor="end"),
        ]
    parts += [text(LEFT, top - 10, f"{panel.title}, {panel.unit}", "name"), draw_keys(panel, top - 10)]
    for colour, line in zip(COLOURS, panel.lines.values(), strict=False):
        points = " ".join(f"{x(time):.1f},{y(value):.1f}" for time, value in zip(times, line, strict=True))
        parts.append(f'<polyline class="line {colour}" points="{points}"/>')
    return [*parts, *draw_times(end, bottom + 16, x)]


def draw_keys(panel: Panel, y: float) -> str:
    """What each line is and where it ends. One text, so that no width need be guessed."""
    words = "".join(
        f'<tspan class="key-{colour}" dx="14">●</tspan> {escape(name)} {line[-1]:,.0f}'
        for colour, (name, line) in zip(COLOURS, panel.lines.items(), strict=False)
    )
    return f'<text x="{WIDTH - RIGHT}" y="{y:.1f}" text-anchor="end">{words}</text>'


def draw_times(end: float, y: float, x: Callable[[float], float]) -> list[str]:
    unit, name = (60.0, "min") if end >= 300 else (1.0, "s")
    _, step = scale(end / unit)
    marks = [number * step for number in range(int(end / unit / step * NEARLY) + 1)]
    return [
        *(text(x(mark * unit), y, f"{mark:g}", anchor="middle") for mark in marks[:-1]),
        text(min(x(marks[-1] * unit), WIDTH - RIGHT), y, f"{marks[-1]:g} {name}", anchor="end"),
    ]


def scale(largest: float) -> tuple[float, float]:
    """A round number that is not smaller, and the step between grid lines: three to five of them."""
    if largest <= 0:
        return 1.0, 1.0
    rough = largest / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return step * math.ceil(largest / step), step


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
