"""Records golden snapshots: ``python -m tests.lang.recording`` from the root of the repository.

A golden file holds a stored program, a snapshot of it and how it goes on from there. It is written once, when a new
format or a new kind of content appears, and never again: executions in the field were stored like that, and must resume
for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dalsegno.lang import Machine, Ok, compile
from tests.lang.driver import CONTEXT, START, leaf_ids

FOLDER = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Recording:
    """``before`` instructions run, or the answers are given, before the snapshot; ``after`` are given later."""

    source: str
    inputs: Any = None
    before: list[Any] = field(default_factory=list)
    instructions: int | None = None
    after: list[Any] = field(default_factory=list)
    apart: bool = False


RECORDINGS = {
    "closures-1": Recording(
        """
        function counter(step = 1) { let n = 0; return {up: () => { n += step; return n }, get: () => n} }
        let a = counter(), b = counter(10), fs = []
        for (let i = 0; i < 3; i++) { fs.push(() => { i += 100; return i }) }
        a.up(); b.up(); fs[1]()
        let same = a
        let x = await Task.run("t", {seen: a.get() + b.get()})
        return [a.up(), same.get(), b.up(), fs.map(f => f()), x, a == same]
        """,
        after=["answer"],
    ),
    "loops-and-errors-1": Recording(
        """
        workflow order(ctx, {items, customer}) {
          total = 0
          let lines = [], problem = null
          try { null.x } catch (e) { problem = e }
          for (let [sku, count] of items) {
            for (let index in lines) { total += index * 0 }
            try {
              let price = await Task.run("price", {sku, customer})
              if (price < 0) { throw {code: "NEGATIVE", sku} }
              total += price * count
              lines.push({sku, price})
            } catch (failure) { lines.push(failure.code) }
            finally { lines.push(await Task.run("audit", lines.length)) }
          }
          return {total, lines, code: problem.code, who: ctx.executionId, nan: `${0 / 0}`}
        }
        """,
        inputs={"items": {"a": 2, "b": 3}, "customer": {"id": "c-1", "$": "odd key"}},
        before=[5, "audited"],
        after=[-1, "again"],
    ),
    "promises-1": Recording(
        """
        let ps = []
        for (let i = 0; i < 20; i++) { ps.push(Task.run("t", i)) }
        let fast = Task.with({queue: "fast", retries: 2})
        let mixed = {p: ps[3], all: Promise.all({a: ps[0], b: 5, c: Promise.allSettled([ps[1], ps[2]])})}
        let timer = Timer.delay(60), signal = Signal.when("go", {timeout: "1h"}), nan = 0 / 0, inf = -1 / 0
        let first = await Promise.race([timer, signal, Promise.any_kv({x: ps[4], y: ps[5]})], {cancel: true})
        let all = await mixed.all
        let last = await fast.run("end", 1)
        return [first, all, last, mixed.p == ps[3], mixed.p.id, `${nan} ${inf}`, Math.max(...[1, 2])]
        """,
        after=["won", "settled", "last"],
    ),
    "awaiting-in-a-callback-1": Recording(
        """
        function twice(n) { return n + await Task.run("same", n) }
        let total = [1, 2, 3].map(x => [x, twice(x)]).filter(([x, y]) => await Task.run("keep", y))
        return total.reduce((sum, [x, y]) => sum + y * await Task.run("weight", x), 0)
        """,
        before=[1, 2],
        after=[3, True, False, True, 10, 100],
    ),
    "paused-in-a-sort-1": Recording(
        """
        let o = {rows: [{n: 3}, {n: 1}, {n: 2}, {n: 5}, {n: 4}]}, turns = 0
        o.rows.sort((a, b) => { turns++; return a.n - b.n })
        o.rows.push(await Task.run("t", turns))
        return o
        """,
        instructions=60,
        after=["end"],
    ),
    "large-values-1": Recording(
        """
        let rows = inputs, mixed = {rows, p: Task.run("side", 1)}, text = "x".repeat(40000)
        let got = await Task.run("t", rows.length)
        return [rows.length, mixed.rows[0].n, text.length, got, Context.workflow]
        """,
        inputs=[{"n": number, "text": "some text to make it long"} for number in range(900)],
        after=["got"],
        apart=True,
    ),
}  # fmt: skip


def answer(machine: Machine, value: Any) -> None:
    assert machine.awaiting is not None
    machine.resume({leaf: Ok(value) for leaf in leaf_ids(machine.awaiting)}, now=START + 1)


def finish(machine: Machine, after: list[Any], blobs: dict[str, str]) -> dict[str, Any]:
    """Goes on to the end; what a resumed machine asked for and came to."""
    effects = [repr(effect) for effect in machine.take_effects()]
    answers = iter(after)
    while machine.status in ("suspended", "paused"):
        if machine.missing:
            machine.provide({name: blobs[name].encode() for name in machine.missing})
        if machine.status == "paused":
            machine.resume({}, now=START + 1)
        else:
            answer(machine, next(answers))
        effects += [repr(effect) for effect in machine.take_effects()]
    error = machine.error and [machine.error.code, machine.error.message, list(machine.error.stack)]
    return {"status": machine.status, "result": machine.result, "error": error, "effects": effects}


def record(recording: Recording) -> dict[str, Any]:
    program = compile(recording.source, "golden")
    budget = recording.instructions
    machine = Machine.start(program, recording.inputs, CONTEXT, now=START, budget=budget)
    for value in recording.before:
        answer(machine, value)
    machine.take_effects()
    blobs: dict[str, str] = {}

    def put(data: bytes) -> str:
        blobs[f"blob-{len(blobs)}"] = data.decode()
        return f"blob-{len(blobs) - 1}"

    snapshot = machine.dumps(put if recording.apart else None)
    return {
        "program": program.dump().decode(),
        "snapshot": snapshot.decode(),
        "blobs": blobs,
        "after": recording.after,
        "ending": finish(machine, recording.after, blobs),
    }


def main() -> None:
    for name, recording in RECORDINGS.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(record(recording), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
