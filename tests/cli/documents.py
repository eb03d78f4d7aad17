"""Documents and tasks that the tests run."""

from __future__ import annotations

from pathlib import Path

HELLO = """\
name: hello
nodes:
  - id: greet
    type: edit
    parameters: {assignments: [{name: text, value: "Hello {{ input.name ?? 'you' }}"}]}
output: "$greet.text"
"""

LONG_WAIT = """\
name: sleeper
nodes:
  - {id: nap, type: wait, parameters: {amount: 1, unit: hours}}
"""

FAILING = """\
name: failing
nodes:
  - {id: first, type: edit, parameters: {assignments: [{name: n, value: 1}]}}
  - {id: broken, type: task, parameters: {task: "{{ 'nowhere' }}"}}
  - {id: never, type: log, parameters: {message: hi}}
edges:
  - {id: e1, src: first, dst: broken}
  - {id: e2, src: broken, dst: never}
"""

BROKEN = FAILING.replace(
    "type: task, parameters: {task: \"{{ 'nowhere' }}\"}",
    'type: edit, parameters: {assignments: [{name: n, value: "{{ $first.n.toUpperCase() }}"}]}',
)
"""Fails wherever it runs: a server waits for a worker that has the task of the other one."""

BAD = """\
name: bad
nodes:
  - id: one
    type: htpp
  - id: two
    type: wait
    parameters:
      amountt: 3
edges:
  - {id: e1, src: one, dst: three}
"""

STEPS = """\
name: steps
nodes:
  - {id: list, type: task, parameters: {task: numbers}}
  - {id: each, type: split, parameters: {input_array: "{{ $list }}", max_concurrency: 4}}
  - {id: work, type: task, queue: heavy, parameters: {task: work, input: "{{ $item }}"}}
  - {id: all, type: aggregator}
edges:
  - {id: e1, src: list, dst: each}
  - {id: e2, src: each, dst: work}
  - {id: e3, src: work, dst: all}
"""

TASKS = '''\
import asyncio
from pathlib import Path
from dalsegno import App, TaskContext

app = App()
other = 3


@app.task
async def numbers() -> list[int]:
    return list(range(8))


@app.task
async def work(ctx: TaskContext, number: int) -> int:
    """Each run leaves a line; later ones wait until they are let go."""
    with Path("runs.txt").open("a") as file:
        file.write(f"{number} {ctx.idempotency_key}\\n")
    while number >= 4 and not Path("go").exists():
        await asyncio.sleep(0.02)
    return number * number
'''


UNKNOWN_TASK = """\
name: unknown
nodes:
  - {id: hello, type: edit, parameters: {assignments: [{name: n, value: 1}]}}
  - id: count
    type: python
    parameters:
      name: wrok
      input: "{{ $hello.n }}"
edges: [{id: e1, src: hello, dst: count}]
"""

COLLECTING = """\
name: collecting
nodes:
  - {id: list, type: edit, parameters: {assignments: [{name: all, value: [1, 2, 3]}]}}
  - {id: each, type: split, parameters: {input_array: "{{ $list.all }}"}}
  - {id: odd, type: task, parameters: {task: "{{ 'nowhere' }}"}}
  - {id: all, type: aggregator}
edges:
  - {id: e1, src: list, dst: each}
  - {id: e2, src: each, dst: odd}
  - {id: e3, src: odd, dst: all}
"""

CUSTOM = """\
name: custom
nodes:
  - {id: one, type: twice, parameters: {number: 4}}
"""

CUSTOM_TYPES = '''\
from dalsegno import App

app = App()


@app.node("twice")
async def twice(ctx, parameters):
    """Doubles a number."""
    return parameters["number"] * 2
'''


def write(folder: Path, **files: str) -> None:
    """``name_yaml=text`` becomes ``name.yaml``."""
    for name, text in files.items():
        stem, _, ending = name.rpartition("_")
        (folder / f"{stem}.{ending}").write_text(text)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


SCRIPT = """\
// Charges an order, rests, and waits for somebody.
async function main() {
  const paid = await Task.run("charge", inputs.cents)
  await Timer.delay("10ms")
  const [a, b] = await Promise.all([Task.run("charge", 1), Task.run("charge", 2)])
  const go = await Signal.when("go", {timeout: "1h"})
  return {paid, sum: a + b, by: go.by}
}
"""

SHORT_SCRIPT = """\
workflow double(inputs) {
  return await Task.run("charge", inputs.n) * 2
}
"""

THROWING_SCRIPT = """\
function price(order) {
  return order.price
}
await Task.run("charge", 1)
return price(inputs)
"""

SCRIPT_TASKS = """\
import asyncio
from pathlib import Path
from dalsegno import App, TaskContext

app = App()


@app.task
async def charge(cents: int) -> int:
    return cents


@app.task
async def slow(ctx: TaskContext, number: int) -> int:
    with Path("runs.txt").open("a") as file:
        file.write(f"{number} {ctx.idempotency_key}\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return number
"""

PROGRAM = '''\
from dataclasses import dataclass
from dalsegno import App, signal, sleep

app = App()


@dataclass
class Order:
    cents: int
    customer: str = "Ada"


@app.task
async def charge(order: Order) -> int:
    return order.cents


def greeting(name):
    return {"Ada": "Hello"}[name]


@app.workflow
async def shop(order: Order):
    """Sells something."""
    paid = await charge(order)
    by = (await signal("go"))["by"]
    return f"{greeting(order.customer)}: {paid} by {by}"


async def not_a_workflow():
    pass
'''

TWO_WORKFLOWS = """\
from dalsegno import App

app = App()


@app.workflow
async def one():
    return 1


@app.workflow
async def two(n: int = 2):
    return n
"""

UNFIT = """\
from dalsegno import App

app = App()


async def fetch():
    return 1


@app.workflow
async def unfit(items):
    await fetch()
    class Inner: pass
    return [x async for x in items]
"""
