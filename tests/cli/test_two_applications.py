"""Two applications on one store, or two versions of one: each worker has its own code only, and what it lacks is left
to the one that has it."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.engine.worker.directory import read_info
from tests.cli.documents import write
from tests.cli.programs import Program, Programs
from tests.waiting import until

SHOP = """
from dalsegno import App, sleep

app = App()


@app.workflow
async def {name}(inputs):
    for _ in range(3):
        await sleep(0.1)
    return "{name}"
"""
NAMES = ("shop", "bank")
RUNS = 6
SOON = 20.0
"""Many times as long as it takes; a turn that is only put off comes again after 2, 4, 8 and 15 seconds."""


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, folder: Path) -> Iterator[App]:
    is_shared = request.param == "postgres"
    url = request.getfixturevalue("postgres_url") if is_shared else f"sqlite:///{folder / 'shared.db'}"
    app = App(url)
    yield app
    app.close()


def served(app: App) -> set[str]:
    views = app.host.call(app.client.stack.ledger.workers())
    return {queue for view in views for queue in read_info(view.info).queues}


def test_each_turn_finds_the_worker_that_has_its_code(programs: Programs, folder: Path, app: App) -> None:
    write(folder, **{f"{name}_py": SHOP.format(name=name) for name in NAMES})
    for name in NAMES:
        programs.begin("worker", "--app", f"{name}:app", "--store", app.url)
    until(lambda: {"python:shop", "python:bank"} <= served(app), "both workers")

    began = time.monotonic()
    handles = [app.start(name, {}) for name in NAMES for _ in range(RUNS)]
    results = [handle.result(60) for handle in handles]

    assert results == [name for name in NAMES for _ in range(RUNS)]
    assert time.monotonic() - began < SOON


WITH_TASK = """
from dalsegno import App

app = App()


@app.task
async def ask_{name}(n):
    return "{name} " + str(n)
"""
SCRIPT = """
return await Promise.all([Task.run("ask_{name}", 1), Task.run("ask_{name}", 2)])
"""
GRAPH = """
name: {name}_graph
nodes:
  - {{id: ask, type: task, parameters: {{task: ask_{name}, input: 1}}}}
"""
NOBODYS = """
name: nobodys
nodes:
  - {id: ask, type: task, parameters: {task: ask_nobody}}
"""


def offers(app: App) -> set[str]:
    views = app.host.call(app.client.stack.ledger.workers())
    return {offer for view in views for offer in read_info(view.info).offers}


@pytest.fixture
def workers(programs: Programs, folder: Path, app: App) -> dict[str, Program]:
    """One of each application."""
    write(folder, **{f"{name}_py": WITH_TASK.format(name=name) for name in NAMES})
    begun = {name: programs.begin("worker", "--app", f"{name}:app", "--store", app.url) for name in NAMES}
    until(lambda: {"task:ask_shop", "task:ask_bank"} <= offers(app), "both workers")
    return begun


@pytest.fixture
def both_working(app: App, workers: dict[str, Program]) -> App:
    return app


def test_each_task_of_a_script_finds_the_worker_that_has_it(both_working: App) -> None:
    for name in NAMES:
        both_working.deploy_script(SCRIPT.format(name=name), f"{name}_script")
    handles = [both_working.start(f"{name}_script") for name in NAMES for _ in range(RUNS)]

    expected = [[f"{name} 1", f"{name} 2"] for name in NAMES for _ in range(RUNS)]
    assert [handle.result(60) for handle in handles] == expected


def test_each_task_of_a_graph_finds_the_worker_that_has_it(both_working: App) -> None:
    for name in NAMES:
        both_working.deploy(GRAPH.format(name=name))
    handles = [both_working.start(f"{name}_graph") for name in NAMES for _ in range(RUNS)]

    assert [handle.result(60) for handle in handles] == [f"{name} 1" for name in NAMES for _ in range(RUNS)]


def test_task_that_no_worker_has_waits_for_one(programs: Programs, folder: Path, both_working: App) -> None:
    both_working.deploy(NOBODYS)
    handle = both_working.start("nobodys")
    until(lambda: "'ask_nobody' is missing in every running worker" in str(handle.why()), "why says so")
    write(folder, nobody_py=WITH_TASK.format(name="nobody"))
    began = time.monotonic()
    programs.begin("worker", "--app", "nobody:app", "--store", both_working.url)

    assert handle.result(SOON) == "nobody None"
    assert time.monotonic() - began < SOON


def test_task_whose_only_worker_was_killed_waits_for_it(
    programs: Programs, both_working: App, workers: dict[str, Program]
) -> None:
    both_working.deploy(GRAPH.format(name="bank"))
    workers["bank"].send(signal.SIGKILL)
    workers["bank"].finish()

    handle = both_working.start("bank_graph")
    programs.begin("worker", "--app", "bank:app", "--store", both_working.url)

    assert handle.result(60) == "bank 1"


BOTH = """
from dalsegno import App

app = App()


@app.task
async def price(n):
    return n
"""
OLD = (
    BOTH
    + """

@app.workflow
async def order(n):
    return await price(n)
"""
)
NEW = (
    BOTH
    + """

@app.task
async def discount(n):
    return n * 2


def rounded(n):
    return n + 100


@app.workflow
async def order(n):
    first = rounded(await price(n))
    return rounded(await discount(first))
"""
)


def test_newer_version_waits_for_a_worker_that_has_it(programs: Programs, folder: Path, app: App) -> None:
    """Whoever starts executions may be upgraded before those who run them."""
    for name, text in (("old", OLD), ("new", NEW)):
        (folder / name).mkdir()
        write(folder / name, shop_py=text)
    programs.begin("worker", "--app", "old/shop.py", "--store", app.url)
    until(lambda: "task:price" in offers(app), "the old one")
    assert programs.begin("deploy", "new/shop.py", "--store", app.url).finish()[0] == 0

    handle = app.start("order", 1)
    until(lambda: "no worker that took it has the code" in str(handle.why()), "it is put off")
    programs.begin("worker", "--app", "new/shop.py", "--store", app.url)

    assert handle.result(60) == 302


def test_version_is_left_to_workers_whose_program_has_what_it_uses(
    programs: Programs, folder: Path, app: App
) -> None:
    for name, text in (("old", OLD), ("new", NEW)):
        (folder / name).mkdir()
        write(folder / name, shop_py=text)
        programs.begin("worker", "--app", f"{name}/shop.py", "--store", app.url)
        until(
            lambda awaited="task:" + {"old": "price", "new": "discount"}[name]: awaited in offers(app), name
        )

    handles = [app.start("order", n) for n in range(2 * RUNS)]

    assert [handle.result(60) for handle in handles] == [2 * (n + 100) + 100 for n in range(2 * RUNS)]
