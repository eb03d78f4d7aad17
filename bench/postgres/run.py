"""Dal Segno on a private PostgreSQL: ``python -m bench.postgres.run``, or ``make bench-postgres``.

Every workload gets an empty database. Progress goes to standard error, the table to standard output at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.postgres.server import LOG_FILES, describe, private_postgres
from tests.servers.postgres import PostgresServer

Figures = dict[str, Any]
"""What ``dalsegno bench --json`` says; empty of a workload that failed."""


@dataclass(frozen=True, slots=True)
class Workload:
    words: tuple[str, ...]
    """What follows the program."""
    sizes: tuple[str, ...]
    """Options of ours that it takes."""
    usual: dict[str, int] = field(default_factory=dict)
    """Sizes other than its own, unless they are given."""
    unit: str = "steps/s"
    program: tuple[str, ...] = ("dalsegno", "bench")
    """The module, and what it is to do."""

    @property
    def title(self) -> str:
        return " ".join(self.words) or self.program[0].rpartition(".")[2]


CHAIN = ("executions", "steps")
AMONG_PROCESSES = {"executions": 2000}
"""Longer than alone: several processes take a while to share work evenly."""
WORKLOADS = {
    "bare": Workload((), CHAIN, program=("bench.postgres.bare",)),
    "chain": Workload(("chain",), CHAIN),
    "chain-1": Workload(("chain", "--processes=1"), CHAIN, AMONG_PROCESSES),
    "chain-2": Workload(("chain", "--processes=2"), CHAIN, AMONG_PROCESSES),
    "chain-4": Workload(("chain", "--processes=4"), CHAIN, AMONG_PROCESSES),
    "fanout": Workload(("fanout",), ("items",), unit="items/s"),
    "latency": Workload(("latency",), ("rounds",), unit="executions/s"),
    "latency-1": Workload(("latency", "--processes=1"), ("rounds",), unit="executions/s"),
    "timers": Workload(("timers",), ("parked", "due"), {"parked": 20_000}, unit="parked/s"),
    "script": Workload(("script",), CHAIN, unit="tasks/s"),
}
SIZES = {
    "executions": "chain, script: how many.",
    "steps": "chain, script: steps of each.",
    "items": "fanout: parts.",
    "rounds": "latency: executions, one after the other.",
    "parked": "timers: how many are parked.",
    "due": "timers: how many come due in one second.",
}


def options(workload: Workload, given: dict[str, int | None]) -> list[str]:
    sizes = {name: given.get(name) or workload.usual.get(name) for name in workload.sizes}
    return [f"--{name}={size}" for name, size in sizes.items() if size is not None]


def measure(name: str, url: str, given: dict[str, int | None]) -> Figures:
    """In a process group of its own, so that of an interrupted run no worker is left."""
    workload = WORKLOADS[name]
    words = [*workload.program, *workload.words, *options(workload, given)]
    print(" ".join(words), file=sys.stderr, flush=True)
    command = [sys.executable, "-m", *words, "--json", "--store", url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        output, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    if process.returncode:
        print(f"  failed, exit code {process.returncode}", file=sys.stderr)
        return {}
    found: Figures = json.loads(output)
    return found


def measure_all(server: PostgresServer, chosen: argparse.Namespace) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    for name in chosen.workloads or WORKLOADS:
        database = name.replace("-", "_")
        url = server.create_database(database)
        found[name] = measure(name, url, {size: getattr(chosen, size) for size in SIZES})
        server.drop_database(database)
    return found


def table(title: str, found: dict[str, Figures]) -> Table:
    """A row for each; a dash where there is nothing to tell."""
    made = Table(title=title, title_justify="left")
    made.add_column("workload")
    for heading in ("rate", "p50 ms", "p99 ms", "CPU s", "MB"):
        made.add_column(heading, justify="right")
    for name, told in found.items():
        workload = WORKLOADS[name]
        if not told:
            made.add_row(workload.title, "failed", *["–"] * 4)
            continue
        rate = f"{told['steps_per_s']:,.0f} {workload.unit}"
        tail = (told["p50_ms"], told["p99_ms"], told["cpu_s"], told["rss_mb"])
        made.add_row(workload.title, rate, *("–" if each is None else f"{each:,.2f}" for each in tail))
    return made


def workload_name(text: str) -> str:
    if text not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(WORKLOADS)}")
    return text


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench.postgres.run", description=__doc__)
    made.add_argument("workloads", nargs="*", type=workload_name, metavar="workload",
                      help=f"All of them if none is given: {', '.join(WORKLOADS)}.")  # fmt: skip
    for name, text in SIZES.items():
        made.add_argument(f"--{name}", type=int, help=text)
    made.add_argument("--log-files", type=int, default=LOG_FILES,
                      help="Files of PostgreSQL's log that are made before anything is measured.")  # fmt: skip
    made.add_argument("--json", action="store_true", help="One JSON object on standard output.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    print("starting a private PostgreSQL", file=sys.stderr, flush=True)
    try:
        with private_postgres(chosen.log_files) as server:
            title = describe(server)
            found = measure_all(server, chosen)
    except KeyboardInterrupt:
        print("interrupted; the server is removed", file=sys.stderr)
        return 130
    if chosen.json:
        print(json.dumps({"server": title, "results": found}))
    else:
        Console().print(table(title, found))
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
