"""The hostile soak: its verdict, its seeded grammar, and half a minute of it on each store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.hostile.attacks import Attacker, Findings
from bench.hostile.run import NOT_MEASURED
from bench.hostile.verdict import Bounds, complaints, measured_p99
from bench.hostile.wire import Reply, Wire

ROOT = Path(__file__).parents[2]
BOUNDS = ("--p99-ms", "5000")
"""Beyond that of the long run: two test processes share the machine's two cores with all that this test starts."""


def found(**changes: Any) -> dict[str, Any]:
    usual = {
        "seconds": 60,
        "died": [],
        "honest_failures": [],
        "honest_executions": 60,
        "p99_ms": 900.0,
        "undisturbed_p99_ms": 200.0,
        "undisturbed_executions": 60,
        "memory_mb": {"server": 120.0, "worker": 300.0},
        "disk_mb": [1.0, 400.0],
        "wrong_answers": 0,
        "wrong": [],
        "tracebacks": 0,
        "reached": 0,
    }
    return {**usual, **changes}


def test_a_run_within_all_bounds_is_good() -> None:
    assert list(complaints(found())) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"died": ["worker"]}, "worker died"),
        ({"honest_failures": ["start 3: 503"]}, "honest executions failed: start 3: 503"),
        ({"honest_executions": 59}, "only 59 of 60 honest executions ended"),
        ({"undisturbed_p99_ms": 251.0}, "p99 of the honest workflow is 251 ms"),
        ({"undisturbed_executions": 2, "undisturbed_p99_ms": 251.0}, "p99 of the honest workflow is 251 ms"),
        ({"memory_mb": {"worker": 401.0}}, "memory of the worker reached 401 MB"),
        ({"disk_mb": [1.0, 2_002.0]}, "the store grew by 2001 MB"),
        ({"wrong_answers": 2, "wrong": ["bodies: 500"]}, "2 answers of 5xx: bodies: 500"),
        ({"tracebacks": 1}, "1 tracebacks in the logs"),
        ({"reached": 1}, "1 connections to a private address"),
    ],
)
def test_each_broken_bound_is_reported(change: dict[str, Any], complaint: str) -> None:
    [line] = complaints(found(**change))
    assert complaint in line


def test_a_latency_is_not_measured_where_the_host_was_away_all_the_time() -> None:
    away = found(undisturbed_executions=0, undisturbed_p99_ms=None)
    assert measured_p99(away, Bounds()) is None
    assert list(complaints(away)) == []
    assert list(complaints({**away, "tracebacks": 1})) == ["1 tracebacks in the logs"]


def test_a_latency_within_the_bound_is_good_whatever_the_host_did() -> None:
    away = found(p99_ms=250.0, undisturbed_executions=0, undisturbed_p99_ms=None)
    assert measured_p99(away, Bounds()) == 250.0


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (Reply(500, {}, b""), 1),
        (Reply(503, {}, b""), 1),
        (Reply(503, {"retry-after": "1"}, b""), 0),
        (Reply(422, {}, b""), 0),
        (Reply(0, {}, b""), 0),
    ],
)
def test_only_a_503_with_retry_after_is_an_acceptable_server_error(reply: Reply, wrong: int) -> None:
    findings = Findings()
    findings.note("bodies", reply, 0.1, "1.0.1")
    assert findings.wrong_count == wrong


def test_a_seed_makes_the_same_requests_again() -> None:
    def requests() -> list[Any]:
        attacker = Attacker(Wire(1, "key"), Random("seed"), 1)
        return [attacker.next() for _ in range(80)]

    first = requests()
    assert first == requests()
    assert {kind for kind, _ in first} >= {"inline-script", "schema-start", "headers", "bodies", "steering"}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_half_a_minute_of_hostile_requests_breaks_no_bound(store: str, tmp_path: Path) -> None:
    command = ["-m", "bench.hostile.run", "--store", store, "--seconds", "30", *BOUNDS]
    done = subprocess.run(
        [sys.executable, *command, "--into", str(tmp_path / "soak")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=270,
        check=False,
    )
    assert done.returncode in (0, NOT_MEASURED), done.stdout + done.stderr
    figures = json.loads((tmp_path / "soak" / "figures.json").read_text())
    assert figures["honest_executions"] == 30
    assert (
        figures["hostile_requests"] > 5
    )  # a tenth of the usual: callers give way to all that runs beside them
