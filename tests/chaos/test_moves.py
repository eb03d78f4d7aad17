"""``kill -9`` while executions are moved, retried and rerun: nothing is lost or doubled, a half-done move goes on.

A build kills a few times; ``make chaos`` kills ``DALSEGNO_MOVE_KILLS`` times (100).
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dalsegno import App
from dalsegno.handle import Handle
from tests.chaos import moving_workload
from tests.chaos.counting import check_histories
from tests.chaos.moving_workload import BROKEN, GRAPH, MENDED, NEW, OLD, ORDERS, STEPS, application
from tests.chaos.reporting import Report
from tests.servers.forking import Forked

SHORT = 5
LONG = int(os.environ.get("DALSEGNO_MOVE_KILLS", "100"))
PATIENCE = 60.0
WORKFLOWS = pytest.mark.parametrize("workflow", ["script_order", "python_order"])
ROLES = pytest.mark.parametrize("role", ["retry", "rerun"])


def until(what: str, holds: Any) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, f"never came true: {what}"
        time.sleep(0.01)


class Orders:
    """Orders on a store, the processes that work on them, and what these note."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.url = f"sqlite:///{folder / 'orders.db'}"
        self.notes = folder / "notes"
        self.notes.touch()
        self.chance = random.Random(seed)
        self.client = App(self.url)

    @contextmanager
    def process(self, *arguments: object) -> Iterator[Forked]:
        given = [self.url, str(self.notes), *map(str, arguments)]
        with Forked(moving_workload.__name__, given, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "begun\n"
                yield process
            finally:
                process.kill()

    def killed(self, *arguments: object, longest: float = 0.25) -> bool:
        """Kill a process at a random moment; return whether it had done its work."""
        with self.process(*arguments) as process:
            seconds = self.chance.uniform(0.0, longest)
            return bool(select.select([process.stdout], [], [], seconds)[0])

    def finished(self, *arguments: object) -> None:
        with self.process(*arguments) as process:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], PATIENCE)[0]
            assert process.stdout.readline() == "done\n"

    def keys(self) -> dict[str, set[str]]:
        """What tasks have noted: the idempotency keys of each."""
        found: dict[str, set[str]] = {}
        for line in self.notes.read_text().splitlines():
            word, _, key = line.rpartition(" ")
            found.setdefault(word, set()).add(key)
        return found


def start_orders(orders: Orders, workflow: str) -> list[Handle[Any]]:
    """Start them with the first version, and deploy the second one."""
    old = application(orders.url, orders.notes, version=1)
    with old.running():
        old.deploy_script(OLD)
        handles = [old.start(workflow, n=n, steps=STEPS if n % 3 == 0 else 0).id for n in range(ORDERS)]
        old.deploy_script(NEW)
    return [orders.client.handle(handle) for handle in handles]


def move_under_kills(folder: Path, workflow: str, kills: int, seed: int) -> str:
    orders = Orders(folder, seed)
    handles = start_orders(orders, workflow)
    versions, rounds = (1, 2), 0
    for _ in range(kills):
        if orders.killed("move", workflow, *versions):
            versions, rounds = versions[::-1], rounds + 1
    orders.finished("move", workflow, *versions)
    if versions == (2, 1):
        orders.finished("move", workflow, 1, 2)
    for handle in handles:
        handle.signal("go", "yes")
    with orders.process("serve"):
        found = [handle.result(PATIENCE) for handle in handles]

    steps = {n: {"n": n, "paid": n * 100, "word": "yes", "sent": f"sent {n}"} for n in range(ORDERS)}
    assert [{name: result[name] for name in steps[n]} for n, result in enumerate(found)] == list(
        steps.values()
    )
    assert {handle.status().version for handle in handles} == {2}
    assert len(orders.client.executions(limit=1000)) == ORDERS
    keys = orders.keys()
    assert {len(keys[f"{word} {n}"]) for n in range(ORDERS) for word in ("charge", "ship")} == {1}
    assert len(keys["step"]) == STEPS * len(range(0, ORDERS, 3))
    check_histories(orders.client)
    moved = changes(handles)
    assert min(moved) >= 1
    orders.client.close()
    return f"{kills} kills of moves of '{workflow}', {rounds} of them done, {sum(moved)} moves of {ORDERS} executions"


def changes(handles: list[Handle[Any]]) -> list[int]:
    """How often each was moved: from the version that it had, each time."""
    found = []
    for handle in handles:
        facts = [
            msgspec.json.decode(event.data or b"{}")
            for event in handle.events()
            if event.kind == "VersionChanged"
        ]
        assert [(each["from"], each["to"]) for each in facts] == [(1, 2), (2, 1)] * (len(facts) // 2) + [
            (1, 2)
        ]
        found.append(len(facts))
    return found


def retry_under_kills(folder: Path, role: str, kills: int, seed: int) -> str:
    orders = Orders(folder, seed)
    app = application(orders.url, orders.notes)
    with app.running():
        app.deploy_script(BROKEN)
        app.deploy(GRAPH)
        workflow = "broken_order" if role == "retry" else "graph_order"
        handles = [app.start(workflow, {"n": n}) for n in range(ORDERS)]
        if role == "retry":
            for handle in handles:
                handle.signal("go", "yes")
        assert Counter(handle.wait(PATIENCE).state for handle in handles) == {"FAILED": ORDERS}
        app.deploy_script(MENDED)
    ids = [handle.id for handle in handles]
    orders.notes.with_suffix(".mended").touch()
    for _ in range(kills):
        orders.killed(role)
    with orders.process(role):
        until("every order has been tried again", lambda: len(repeated(orders)) == ORDERS)
        for handle in repeated(orders):
            handle.wait(PATIENCE)

    again = {handle.status().parent: handle.status() for handle in repeated(orders)}
    assert again.keys() == set(ids)
    assert Counter(view.state for view in again.values()) == {"COMPLETED": ORDERS}
    assert len(orders.client.executions(limit=1000)) == 2 * ORDERS
    keys = orders.keys()
    assert {len(keys[f"charge {n}"]) for n in range(ORDERS)} == {1}, "what had completed ran again"
    assert {len(keys[f"ship {n}"]) for n in range(ORDERS)} == {1}
    check_histories(orders.client)
    orders.client.close()
    return f"{kills} kills of a {role} of {ORDERS} executions"


def repeated(orders: Orders) -> list[Handle[Any]]:
    return orders.client.executions(limit=1000, relations=["retry", "rerun"])


@WORKFLOWS
def test_a_killed_bulk_move_goes_on(tmp_path: Path, workflow: str) -> None:
    move_under_kills(tmp_path, workflow, SHORT, seed=1)


@ROLES
def test_killed_retries_lose_and_double_nothing(tmp_path: Path, role: str) -> None:
    retry_under_kills(tmp_path, role, SHORT, seed=1)


@pytest.mark.chaos
@WORKFLOWS
def test_a_bulk_move_killed_a_hundred_times_goes_on(tmp_path: Path, workflow: str, report: Report) -> None:
    report(move_under_kills(tmp_path, workflow, LONG, seed=11))


@pytest.mark.chaos
@ROLES
def test_retries_killed_a_hundred_times_lose_and_double_nothing(
    tmp_path: Path, role: str, report: Report
) -> None:
    report(retry_under_kills(tmp_path, role, LONG, seed=11))
