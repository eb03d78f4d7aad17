"""A process that moves, retries or reruns orders and runs them, until it is killed.

Usage: ``python -m tests.chaos.moving_workload URL NOTES ROLE …``, with the roles ``serve``, ``move LANGUAGE FROM TO``,
``retry`` and ``rerun``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from dalsegno import App, signal
from dalsegno.engine.settings import EngineLimits, EngineSettings
from dalsegno.ports.node import NodeContext

ORDERS = 60
STEPS = 12
"""Of every third order, so that some run while they are moved."""
UNCOUNTED = 1_000_000
CHUNK = 5

OLD = """workflow script_order(inputs) {
  let paid = await Task.run("charge", inputs.n)
  for (let step = 0; step < inputs.steps; step++) { await Task.run("step", step) }
  let word = await Signal.when("go")
  let sent = await Task.run("ship", inputs.n)
  return {n: inputs.n, paid, word, sent}
}
"""
NEW = OLD.replace("  let paid", "  let checked = true\n  let paid").replace(
    "return {n", "return {version: 2, n"
)
BROKEN = """workflow broken_order(inputs) {
  let paid = await Task.run("charge", inputs.n)
  let word = await Signal.when("go")
  let sent = await Task.run("ship", paid.order.number)
  return {n: inputs.n, paid, word, sent}
}
"""
MENDED = BROKEN.replace("paid.order.number", "paid / 100")
GRAPH = {
    "name": "graph_order",
    "nodes": [
        {"id": "charge", "type": "task", "parameters": {"task": "charge", "input": "{{ $trigger.n }}"}},
        {"id": "ship", "type": "task", "parameters": {"task": "ship_if_mended", "input": "{{ $trigger.n }}"}},
    ],
    "edges": [{"src": "charge", "dst": "ship"}],
}


def application(url: str, notes: Path, version: int = 2) -> App:
    settings = EngineSettings(
        lease_seconds=1.0, reconcile_every=0.3, limits=EngineLimits(losses=UNCOUNTED), concurrency=20
    )
    app = App(url, settings=settings)

    def note(word: str, ctx: NodeContext) -> None:
        with notes.open("a") as file:
            file.write(f"{word} {ctx.idempotency_key}\n")

    @app.task
    async def charge(ctx: NodeContext, n: int) -> int:
        note(f"charge {n}", ctx)
        return n * 100

    @app.task
    async def step(ctx: NodeContext, number: int) -> int:
        note("step", ctx)
        return number

    @app.task
    async def ship(ctx: NodeContext, n: int) -> str:
        note(f"ship {n}", ctx)
        return f"sent {n}"

    @app.task
    async def ship_if_mended(ctx: NodeContext, n: int) -> str:
        if not notes.with_suffix(".mended").exists():
            raise ValueError("no address")
        return await ship.function(ctx, n)  # type: ignore[no-any-return]

    if version == 1:

        @app.workflow(name="python_order")
        async def order(n: int, steps: int) -> dict[str, Any]:
            paid = await charge(n)
            for number in range(steps):
                await step(number)
            word = await signal("go")
            sent = await ship(n)
            return {"n": n, "paid": paid, "word": word, "sent": sent}

    else:

        @app.workflow(name="python_order")
        async def order(n: int, steps: int) -> dict[str, Any]:
            if n < 0:
                raise ValueError("there is no such order")
            paid = await charge(n)
            for number in range(steps):
                await step(number)
            word = await signal("go")
            sent = await ship(n)
            return {"version": 2, "n": n, "paid": paid, "word": word, "sent": sent}

    return app


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def move(app: App, workflow: str, old: int, new: int) -> None:
    """Move chunk after chunk, and say when it is done."""
    while True:
        cursor: str | None = None
        refused = 0
        while True:
            report = app.host.call(app.client.move_some(workflow, old, new, cursor=cursor, limit=CHUNK))
            refused += len(report.refusals)
            cursor = report.next
            if cursor is None:
                break
        if not refused:
            return


def again(app: App, role: str) -> None:
    failed = app.executions(limit=1000, states=["FAILED"])
    for handle in failed:
        if handle.status().relation is None:
            if role == "retry":
                handle.retry(version=2, idempotency_key="once")
            else:
                handle.rerun("ship", idempotency_key="once")


def main() -> None:
    url, notes, role, *rest = sys.argv[1:]
    app = application(url, Path(notes))
    with app.running():
        say("begun")
        if role == "move":
            move(app, rest[0], int(rest[1]), int(rest[2]))
        elif role != "serve":
            again(app, role)
        say("done")
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main()
