"""Two applications on one store: each worker has the code of its own workflows only, and nobody waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.engine.worker_info import read_info
from tests.cli.documents import write
from tests.cli.programs import Programs
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
