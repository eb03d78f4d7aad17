"""``bench --processes``, small: real worker processes share the work, and none of them is left."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner, Result

from dalsegno.cli.main import app
from tests.effort import first
from tests.servers.process import children_of


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments, "--json"])


@pytest.mark.parametrize(
    ("arguments", "least"),
    first(
        1,
        [
            (("chain", "--executions", "600", "--steps", "2"), 600 * 2),
            (("fanout", "--items", "600", "--rounds", "1"), 600),
        ],
    ),
)
def test_worker_processes_do_the_work_together(
    postgres_url: str, arguments: tuple[str, ...], least: int
) -> None:
    """More at once than one of them may have in progress, so that there is something for the other."""
    before = children_of(os.getpid())
    ended = bench(*arguments, "--processes", "2", "--store", postgres_url)
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    details = told["details"]
    assert details["processes"] == 2
    assert 0 < details["steps_of_the_idlest"] <= details["steps_of_the_busiest"]
    assert details["steps_of_the_idlest"] + details["steps_of_the_busiest"] >= least
    assert told["steps_per_s"] > 0
    assert set(children_of(os.getpid())) <= set(before), "no worker process is left"


@pytest.mark.parametrize("store", ["sqlite:///bench.db", "memory:"])
def test_stores_that_processes_cannot_share_well_are_refused(store: str) -> None:
    refused = bench("chain", "--processes", "2", "--store", store)
    assert refused.exit_code == 2
    assert "give --store postgresql://" in refused.output


def test_latency_across_processes_has_the_steps_done_by_the_others(postgres_url: str) -> None:
    """Their steps are counted by themselves: those of every round, and of the rounds that warm up."""
    ended = bench("latency", "--rounds", "5", "--processes", "2", "--store", postgres_url)
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    details = told["details"]
    assert (details["rounds"], details["processes"]) == (5, 2)
    assert details["steps_of_the_idlest"] + details["steps_of_the_busiest"] >= 5 + 20
    assert 0 < told["p50_ms"] <= told["p99_ms"]


def test_a_workload_that_runs_in_one_process_says_so(postgres_url: str) -> None:
    refused = bench("timers", "--processes", "2", "--store", postgres_url)
    assert refused.exit_code == 2
    assert "this workload does not take 'processes'" in refused.output


def test_nobody_cannot_work(postgres_url: str) -> None:
    refused = bench("chain", "--processes", "0", "--store", postgres_url)
    assert refused.exit_code == 2
    assert "at least one process has to work" in refused.output
