"""``kill -9`` of workers at random moments: no execution lost, none ended twice, every result as without faults.

``make test`` kills 20 times; ``make chaos`` kills ``DALSEGNO_KILLS`` times (200).
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from dalsegno import App
from dalsegno.handle import Handle
from tests.chaos.counting import check_histories, expected, outcome
from tests.chaos.processes import Worker, Workers
from tests.chaos.reporting import Report
from tests.chaos.workload import DOCUMENTS, payload
from tests.scenarios.documents import echo, graph, task

SHORT = 20
LONG = int(os.environ.get("DALSEGNO_KILLS", "200"))
STARTED_PER_KILL = 12
PATIENCE = 60.0
COMPLETED = "SELECT count(*) FROM execution WHERE state = 'COMPLETED'"
UNCOUNTED = 1000
"""Workers die here several times a second, and innocent tokens with them more than five times: what is tested is that
nothing is lost or done twice. That five deaths fail a node is tested on its own."""
RUNNING = "SELECT count(*) FROM execution WHERE state = 'RUNNING'"


class Harness:
    """A client that starts executions, and workers that die while they run them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / "chaos.db"
        self.url = f"sqlite:///{self.path}"
        self.chance = random.Random(seed)
        self.client = App(self.url)
        self.started: dict[str, tuple[str, int]] = {}
        self.handles: dict[str, Handle] = {}
        self.kills = 0
        self.killed_at_work = 0

    def __enter__(self) -> Self:
        for document in DOCUMENTS.values():
            self.client.deploy(document)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def start_some(self, count: int) -> None:
        for _ in range(count):
            name, number = self.chance.choice(list(DOCUMENTS)), self.chance.randrange(100)
            handle = self.client.start(name, payload(number))
            self.started[handle.id] = (name, number)
            self.handles[handle.id] = handle

    def kill_soon(self, worker: Worker) -> None:
        """Lets it work for a random moment: from nothing at all to long enough for timers and retries.

        Most workers first get something done. A token that loses its worker five times is held to be the reason, so
        on a slow machine a loop of workers that never even begin would rightly fail what they had been given.
        """
        with closing(sqlite3.connect(self.path)) as store:
            if self.chance.random() < 0.75:
                self._until_something_is_done(store)
                time.sleep(self.chance.uniform(0.0, 0.03))
            else:
                time.sleep(self.chance.uniform(0.0, 0.2))
            (open_ones,) = store.execute(RUNNING).fetchone()
        worker.kill()
        self.killed_at_work += open_ones > 0
        self.kills += 1

    def _until_something_is_done(self, store: sqlite3.Connection) -> None:
        end = time.monotonic() + 5.0
        (before,) = (completed,) = store.execute(COMPLETED).fetchone()
        while completed == before and completed < len(self.handles) and time.monotonic() < end:
            time.sleep(0.01)
            (completed,) = store.execute(COMPLETED).fetchone()

    def finish(self) -> None:
        end = time.monotonic() + PATIENCE
        for handle in self.handles.values():
            try:
                handle.wait(max(end - time.monotonic(), 0.1))
            except TimeoutError:
                waits = [f"{wait.kind} {wait.node}: {wait.sentence}" for wait in handle.why()]
                raise AssertionError(f"execution {handle.id} hangs: {waits}") from None

    def check(self) -> str:
        """What it came to, in a sentence."""
        wanted = expected(self.started)
        for key, handle in self.handles.items():
            assert outcome(handle) == wanted[key], self.started[key]
        check_histories(self.client)
        listed = self.client.executions(limit=10_000)
        assert {handle.id for handle in listed} == set(self.started)
        states = Counter(handle.status().state for handle in listed)
        assert states == {"COMPLETED": len(self.started)}
        return (
            f"{self.kills} kills ({self.killed_at_work} while work was open), "
            f"{len(self.started)} executions started, {states['COMPLETED']} completed as without faults"
        )


def kill_and_restart(folder: Path, kills: int, seed: int) -> str:
    with Harness(folder, seed) as harness, Workers(harness.url, losses=UNCOUNTED) as workers:
        for _ in range(kills):
            worker = workers.start()
            harness.start_some(STARTED_PER_KILL)
            harness.kill_soon(worker)
        workers.start()
        harness.finish()
        assert harness.killed_at_work > kills // 2
        return harness.check()


def kill_one_of_two(folder: Path, kills: int, seed: int) -> str:
    with Harness(folder, seed) as harness, Workers(harness.url, losses=UNCOUNTED) as workers:
        survivor = workers.start()
        for _ in range(kills):
            victim = workers.start()
            harness.start_some(STARTED_PER_KILL)
            harness.kill_soon(victim)
        workers.start()
        harness.finish()
        assert survivor.alive
        return harness.check()


def test_a_worker_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    kill_and_restart(tmp_path, SHORT, seed=1)


def test_one_of_two_workers_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    kill_one_of_two(tmp_path, SHORT, seed=2)


def test_a_restarted_worker_takes_over_the_leases_of_the_dead_one_at_once(tmp_path: Path) -> None:
    """A lease lasts a minute; a process of the same machine that is gone is not waited for."""
    marker = tmp_path / "somebody came"
    with Harness(tmp_path, seed=4) as harness, Workers(harness.url) as workers:
        harness.client.deploy(
            graph("a > h > z", {"a": echo("a"), "h": task("hang_once", str(marker)), "z": echo("z")})
        )
        first = workers.start()
        handle = harness.client.start("scenario")
        end = time.monotonic() + PATIENCE
        while not marker.exists():
            assert time.monotonic() < end, handle.why()
            time.sleep(0.002)
        first.kill()
        workers.start()
        assert handle.result(10) == "z"
        check_histories(harness.client)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [11, 12])
def test_a_worker_killed_hundreds_of_times_loses_nothing(tmp_path: Path, seed: int, report: Report) -> None:
    report(kill_and_restart(tmp_path, LONG, seed))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [21, 22])
def test_one_of_two_workers_killed_hundreds_of_times_loses_nothing(
    tmp_path: Path, seed: int, report: Report
) -> None:
    report(kill_one_of_two(tmp_path, LONG, seed))


@pytest.mark.parametrize("strategy", ["halt", "ignore", "branch"])
def test_a_node_that_kills_its_process_five_times_fails_through_its_strategy(
    tmp_path: Path, strategy: str
) -> None:
    fields = {"error": {"type": strategy}} if strategy != "branch" else {}
    paths = "a > d > next" + (", d !> rescue" if strategy == "branch" else "")
    nodes = {
        "a": echo("a"),
        "d": task("deadly", **fields),
        "next": echo("next"),
        "rescue": echo("{{ $d.error.code }}"),
    }
    if strategy != "branch":
        del nodes["rescue"]
    with Harness(tmp_path, seed=3) as harness, Workers(harness.url) as workers:
        harness.client.deploy(graph(paths, nodes, name="deadly"))
        handle = harness.client.start("deadly")
        harness.start_some(5)
        deaths = 0
        while handle.status().ended_at is None and deaths < 10:
            worker = workers.start()
            deaths += died_or_ended(worker, handle)
        view = handle.wait(PATIENCE)
        assert deaths == 5
        if strategy == "halt":
            assert view.state == "FAILED"
            assert view.error is not None
            assert b'"WORKER_LOST"' in view.error
        else:
            assert handle.result(5) == ("next" if strategy == "ignore" else {"rescue": "WORKER_LOST"})
            assert handle.nodes()["d"].state == "FAILED"
        harness.finish()
        check_histories(harness.client)


def died_or_ended(worker: Worker, handle: Handle) -> bool:
    end = time.monotonic() + PATIENCE
    while worker.alive:
        if handle.status().ended_at is not None:
            return False
        assert time.monotonic() < end, handle.why()
        time.sleep(0.005)
    return True
