"""``kill -9`` of workers that run scripts and Python workflows: one result each, and every effect once by its key.

``make test`` kills 20 times; ``make chaos`` kills ``DALSEGNO_SCRIPT_KILLS`` times (100).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Self

import pytest

from dalsegno import App
from dalsegno.handle import Handle
from tests.chaos import script_workload
from tests.chaos.counting import check_histories
from tests.chaos.processes import Worker, Workers
from tests.chaos.reporting import Report
from tests.chaos.script_workload import FAN_OUT, STEPS, attempts, expected
from tests.scenarios.stage import all_events

SHORT = 20
LONG = int(os.environ.get("DALSEGNO_SCRIPT_KILLS", "100"))
PATIENCE = 60.0
UNCOUNTED = 1_000_000
"""Workers die here many times a second; that five deaths fail a task is tested on its own."""
DONE = frozenset(("TaskCompleted", "TaskFailed"))


class Harness:
    """A client that keeps some executions of one workflow open, and workers that die while they run them."""

    def __init__(self, folder: Path, workflow: str, seed: int) -> None:
        self.url = f"sqlite:///{folder}/chaos.db"
        self.workflow = workflow
        self.chance = random.Random(seed)
        self.client = App(self.url)
        self.handles: dict[int, Handle] = {}
        self.kills_at_work = 0

    def __enter__(self) -> Self:
        self.client.deploy_script(FAN_OUT)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def start_one(self) -> None:
        base = len(self.handles) * 1000
        payload = {"base": base} if self.workflow == "fan_out" else base
        self.handles[base] = self.client.start(self.workflow, payload)

    def is_open(self) -> bool:
        return any(handle.status().ended_at is None for handle in self.handles.values())

    def kill_at_work(self, worker: Worker) -> None:
        """After a random number of attempts have begun, and then at a random moment."""
        if not self.is_open():
            self.start_one()
        goal = sum(attempts(self.url).values()) + self.chance.randint(1, 6)
        end = time.monotonic() + PATIENCE
        while sum(attempts(self.url).values()) < goal and self.is_open():
            assert time.monotonic() < end, "the worker does nothing"
            time.sleep(0.002)
        time.sleep(self.chance.uniform(0.0, 0.012))
        self.kills_at_work += self.is_open()
        worker.kill()

    def check(self) -> str:
        """What it came to, in a sentence."""
        for base, handle in self.handles.items():
            assert handle.result(PATIENCE) == expected(base)
            assert sum(event.kind in DONE for event in all_events(handle)) == STEPS
        check_histories(self.client)
        begun = attempts(self.url)
        assert len(begun) == STEPS * len(self.handles), "an effect is missing, or has two keys"
        assert len(self.client.executions(limit=1000)) == len(self.handles)
        return (
            f"{self.kills_at_work} kills at work, {len(self.handles)} executions of '{self.workflow}', "
            f"{len(begun)} effects in {sum(begun.values())} attempts"
        )


def kill_again_and_again(folder: Path, workflow: str, kills: int, seed: int) -> str:
    with (
        Harness(folder, workflow, seed) as harness,
        Workers(harness.url, losses=UNCOUNTED, workload=script_workload.__name__) as workers,
    ):
        first = workers.start()  # the Python workflows are stored by the process that has them
        harness.start_one()
        harness.kill_at_work(first)
        while harness.kills_at_work < kills:
            harness.kill_at_work(workers.start())
        workers.start()
        return harness.check()


@pytest.mark.parametrize("workflow", ["fifty_steps", "in_rounds", "fan_out"])
def test_workers_killed_again_and_again_lose_nothing(tmp_path: Path, workflow: str) -> None:
    kill_again_and_again(tmp_path, workflow, SHORT, seed=1)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("workflow", ["fifty_steps", "in_rounds", "fan_out"])
def test_workers_killed_a_hundred_times_lose_nothing(
    tmp_path: Path, workflow: str, seed: int, report: Report
) -> None:
    report(kill_again_and_again(tmp_path, workflow, LONG, seed))
