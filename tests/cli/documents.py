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
