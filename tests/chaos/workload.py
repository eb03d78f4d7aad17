"""Workflows of every kind, with tasks that take a moment, so that a kill finds something in every state."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dalsegno import App
from dalsegno.engine.settings import EngineSettings
from dalsegno.graph.build import load_graph
from dalsegno.nodes.registry import builtin_registry
from dalsegno.ports.node import NodeError
from tests.scenarios.documents import aggregator, conditional, echo, graph, merge, split, task, wait

RETRY = {"max_attempts": 4, "initial_delay": 0.02, "factor": 1}


def step(value: Any, **fields: Any) -> dict[str, Any]:
    return task("step", value, **fields)


DOCUMENTS: dict[str, dict[str, Any]] = {
    "diamond": graph(
        "a > b > m, a > c > d > m, m > z",
        {name: step(f"{name} {{{{ $trigger.n }}}}") for name in "abcdz"} | {"m": merge()},
        name="diamond",
    ),
    "dead-paths": graph(
        "a > x > gate, a > y > gate, gate > left > m, gate > right > m, a > work > m, work !> rescue > m",
        {
            "x": step("x"),
            "y": step("y"),
            "gate": conditional("$json == 'x'"),
            "left": step("left"),
            "right": step("right"),
            "work": task("step_if", {"fails": "{{ $trigger.n % 2 == 0 }}", "value": "fine"}),
            "rescue": step("{{ $work.error.code }}"),
            "m": merge(),
            "a": echo("a"),
        },
        name="dead-paths",
    ),
    "items": graph(
        "s > one > two > g > z",
        {
            "s": split("$trigger.items", max_concurrency=6),
            "one": task("step_if", {"fails": "{{ $item % 7 == 3 }}", "value": "{{ $item * 2 }}"}),
            "two": step("{{ $one + $trigger.n }}"),
            "g": aggregator(),
            "z": step("{{ $s }}"),
        },
        name="items",
    ),
    "nested": graph(
        "outer > inner > w > g1 > g2",
        {
            "outer": split("$trigger.rows"),
            "inner": split("$item"),
            "w": step("{{ [$outer.index, $index, $item] }}"),
            "g1": aggregator(),
            "g2": aggregator(),
        },
        name="nested",
    ),
    "timers": graph(
        "a > w1 > b > m, a > w2 > m, s > w3 > g > m",
        {
            "a": step("a"),
            "b": step("b"),
            "w1": wait(0.05),
            "w2": wait(0.15),
            "s": split([1, 2, 3]),
            "w3": wait(0.1),
            "g": aggregator(output="$item * 2"),
            "m": merge(),
        },
        name="timers",
    ),
    "retries": graph(
        "a > f > z, a > s > g > h",
        {
            "a": echo("a"),
            "f": task("weak", {"failures": 2}, retry=RETRY),
            "s": split([0, 1, 2]),
            "g": task("weak", {"failures": "{{ $item }}"}, retry=RETRY),
            "h": aggregator(),
            "z": step("{{ $f }}"),
        },
        name="retries",
    ),
}


def payload(number: int) -> dict[str, Any]:
    return {"n": number, "items": list(range(number % 17)), "rows": [[1, 2], [], [number]]}


def prepare() -> None:
    """What is built on first use is then inherited by every worker."""
    for document in DOCUMENTS.values():
        load_graph(document, builtin_registry())


def application(url: str, settings: EngineSettings) -> App:
    return register(App(url, settings=settings))


def register(app: App, *, moment: float = 0.01) -> App:
    """``moment``: about how long each step takes."""

    async def step(value: Any) -> Any:
        await asyncio.sleep(moment)
        return value

    async def step_if(value: Any) -> Any:
        await asyncio.sleep(moment)
        if value["fails"]:
            raise NodeError("refused", code="REFUSED", retryable=False)
        return value["value"]

    async def weak(ctx, plan: Any) -> Any:  # type: ignore[no-untyped-def]
        await asyncio.sleep(moment)
        if ctx.attempt <= plan["failures"]:
            raise NodeError(f"attempt {ctx.attempt} failed", code="WEAK")
        return f"strong after {plan['failures']}"

    async def deadly(_value: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    async def hang_once(marker: str) -> str:
        """Whoever comes first stays for ever."""
        if not Path(marker).exists():  # noqa: ASYNC240 - a stat of a local file
            Path(marker).touch()  # noqa: ASYNC240 - the same
            await asyncio.Event().wait()
        return "done"

    tasks: list[Callable[..., Any]] = [step, step_if, weak, deadly, hang_once]
    for function in tasks:
        app.task(function)

    @app.task
    async def echo(value: Any) -> Any:
        return value

    return app
