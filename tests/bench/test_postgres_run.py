"""``make bench-postgres``, small: workloads on a server of their own, a table, and nothing left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from bench.postgres.run import SIZES, WORKLOADS, options, parser, table
from bench.postgres.server import NEXT_LOG_FILE, SETTINGS, private_postgres
from tests.effort import first
from tests.servers.process import alive, children_of, command_of, kill_all, wait_until

ROOT = Path(__file__).parents[2]
TINY = ("--executions=5", "--steps=2", "--rounds=3", "--log-files=1")
PATIENCE = 170.0
AHEAD = """
SELECT count(*) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'
AND name > pg_walfile_name(pg_current_wal_insert_lsn())
"""


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        # Whoever runs these tests in the background has SIGINT ignored, and so would every child.
        ["env", "--default-signal=INT", sys.executable, "-m", "bench.postgres.run", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        kill_all(children_of(process.pid))
        process.kill()
        process.communicate()


def postgres_of(process: int) -> tuple[int, Path]:
    """Process and data folder of the PostgreSQL that this process has started, by whichever of its threads."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            words = command_of(int(child))
            if words and words[0].endswith("/postgres"):
                return int(child), Path(words[words.index("-D") + 1])
    raise AssertionError("there is no server")


def test_chosen_workloads_are_measured_one_after_the_other() -> None:
    with running("bare", "chain", "latency-1", "--json", *TINY) as process:
        output, progress = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, progress
    found = json.loads(output)
    assert found["server"].startswith("PostgreSQL ")
    assert list(found["results"]) == ["bare", "chain", "latency-1"]
    assert all(told["steps_per_s"] > 0 for told in found["results"].values())
    assert found["results"]["chain"]["details"]["executions"] == 5
    assert found["results"]["latency-1"]["details"]["processes"] == 1
    assert "dalsegno bench latency --processes=1 --rounds=3" in progress
    assert "bench.postgres.bare --executions=5 --steps=2" in progress


@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM]), ids=lambda number: number.name)
def test_an_interrupted_run_leaves_neither_processes_nor_files(number: signal.Signals) -> None:
    with running("chain-2", "--executions=100000", "--log-files=1") as process:
        wait_until(lambda: _at_work(process.pid), seconds=PATIENCE, what="two workers")
        server, folder = postgres_of(process.pid)
        family = [server, *children_of(server), *children_of(process.pid)]
        assert len(family) > 4
        assert folder.exists()
        process.send_signal(number)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert not any(alive(pid) for pid in family)
    assert not folder.parent.parent.exists()


def _at_work(process: int) -> bool:
    return sum("worker" in command_of(child) for child in children_of(process)) == 2


def test_the_server_has_log_files_to_use_again() -> None:
    """Files are named in the order of their use: those after the one in use are made already."""
    with private_postgres(log_files=3) as server:
        assert {name: server.psql(f"SHOW {name}") for name in SETTINGS} == SETTINGS
        ready = int(server.psql(AHEAD))
        assert ready >= 3
        server.psql(NEXT_LOG_FILE)
        assert int(server.psql(AHEAD)) == ready - 1, "a new one was made"


def test_every_workload_is_chosen_if_none_is_named_and_sizes_are_its_own() -> None:
    chosen = parser().parse_args([])
    assert chosen.workloads == []
    given = dict.fromkeys(SIZES)
    assert options(WORKLOADS["chain"], given) == []
    assert options(WORKLOADS["chain-4"], given) == ["--executions=2000"]
    assert options(WORKLOADS["timers"], {**given, "parked": 7, "items": 3}) == ["--parked=7"]
    with pytest.raises(SystemExit):
        parser().parse_args(["chains"])


def test_the_table_tells_what_failed() -> None:
    told = {"steps_per_s": 9876.5, "p50_ms": 1.25, "p99_ms": None, "cpu_s": 0.5, "rss_mb": 80.0}
    shown = StringIO()
    Console(file=shown, width=100).print(table("PostgreSQL 15", {"chain": told, "latency-1": {}}))
    lines = shown.getvalue().splitlines()
    chain, latency = (line.split() for line in lines if "chain" in line or "latency" in line)
    assert chain[1:-1] == ["chain", "│", "9,876", "steps/s", "│", "1.25", "│", "–", "│", "0.50", "│", "80.00"]
    assert latency[1:5] == ["latency", "--processes=1", "│", "failed"]
