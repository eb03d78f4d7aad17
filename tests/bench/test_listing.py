"""``dalsegno bench listing`` and ``bench streams``, small: that they run, and what they report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dalsegno.bench.seed import filters
from tests.servers.forking import run_program


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run_program("bench", *arguments, "--json", cwd=folder, timeout=200)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_listing_reports_every_filter(tmp_path: Path) -> None:
    told = bench(tmp_path, "listing", "--executions", "3000", "--rounds", "1")

    assert told["details"]["executions"] == 3000
    assert {f"{name}, p99 ms" for name in filters(3000)} <= set(told["details"])
    assert told["details"]["removed_per_s"] > 0
    assert told["p99_ms"] < 500  # ten times the goal


def test_streams_are_checked_and_refused_beyond_the_limit(tmp_path: Path) -> None:
    told = bench(tmp_path, "streams", "--watchers", "20", "--executions", "2")

    assert (told["details"]["streams"], told["details"]["refused_beyond"]) == (20, 1)
    assert told["details"]["events"] >= 20 * 3


@pytest.mark.parametrize("workload", ["listing", "streams"])
def test_a_store_in_memory_cannot_be_measured(workload: str) -> None:
    done = run_program("bench", workload, "--store", "memory:", timeout=100)
    assert done.returncode == 2, done.stderr
