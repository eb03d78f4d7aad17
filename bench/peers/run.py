"""Dal Segno, DBOS, Celery and Dramatiq with the same work in the same minutes. See README.md.

python -m bench.peers.run
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.peers.environments import REQUIREMENTS, EnvironmentFailed, default_cache, interpreter
from bench.peers.figures import Figures, NoFigures, middle, read, table
from bench.peers.servers import Servers
from dalsegno.wiring import BROKER_VARIABLE

HERE = Path(__file__).parent
PATIENCE = 900.0
"""Seconds for one contender and one workload."""

Sizes = dict[str, int]


class ContenderFailed(Exception):
    """It ended with an error, or not at all; the end of what it said is in the message."""


@dataclass(frozen=True, slots=True)
class Contender:
    store: Callable[[Servers], str]
    """Of Celery and Dramatiq: where results are."""
    peer: str | None
    """Whose environment and script; None is ourselves."""
    broker: Callable[[Servers], str] | None = None
    """None: the store brings the work."""


CONTENDERS = {
    "dalsegno-postgres": Contender(Servers.postgres, None),
    "dalsegno-sqlite": Contender(Servers.sqlite, None),
    "dbos-postgres": Contender(Servers.postgres, "dbos"),
    "dbos-sqlite": Contender(Servers.sqlite, "dbos"),
    "dalsegno-redis": Contender(Servers.postgres, None, Servers.redis),
    "celery-redis": Contender(Servers.redis, "celery", Servers.redis),
    "dramatiq-redis": Contender(Servers.redis, "dramatiq", Servers.redis),
    "dalsegno-rabbitmq": Contender(Servers.postgres, None, Servers.rabbitmq),
    "celery-rabbitmq": Contender(Servers.redis, "celery", Servers.rabbitmq),
    "dramatiq-rabbitmq": Contender(Servers.redis, "dramatiq", Servers.rabbitmq),
}


def command(contender: Contender, workload: str, url: str, sizes: Sizes, cache: Path) -> list[str]:
    if contender.peer is None:
        options = [f"--{name}={size}" for name, size in sizes.items()]
        return [sys.executable, "-m", "dalsegno", "bench", workload, "--json", "--store", url, *options]
    script = HERE / f"{contender.peer}_peer.py"
    return [str(interpreter(contender.peer, cache)), str(script), workload, url, json.dumps(sizes)]


def variables(contender: Contender, url: str, broker: str | None) -> dict[str, str]:
    """How a contender is told of its broker."""
    if broker is None:
        return {}
    if contender.peer is None:
        return {BROKER_VARIABLE: broker}
    return {"PEER_RESULTS": url, "PEER_BROKER": broker}


def measure(words: list[str], folder: Path, told: Mapping[str, str]) -> Figures:
    """Runs one contender in a process group of its own, so that nothing of it is left."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", **told}
    cpu_before = cpu_of_children()
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ContenderFailed(f"not done after {PATIENCE:g} s") from error
        raise
    if process.returncode:
        raise ContenderFailed(f"exit code {process.returncode}\n{errors[-3000:]}")
    return replace(read(output), cpu_s=cpu_of_children() - cpu_before)


def cpu_of_children() -> float:
    """Of those that have ended, with theirs. Contenders run one at a time."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_all(chosen: argparse.Namespace, servers: Servers, workload: str) -> dict[str, Figures | str]:
    """The contenders take turns, so that a busy minute of the machine is not one contender's alone."""
    runs: dict[str, list[Figures]] = {name: [] for name in chosen.contenders}
    failed: dict[str, str] = {}
    for turn, name in [(turn, name) for turn in range(chosen.repeat) for name in chosen.contenders]:
        if name in failed:
            continue
        print(f"{workload}: {name}" + (f", turn {turn + 1}" if chosen.repeat > 1 else ""), file=sys.stderr)
        contender = CONTENDERS[name]
        try:
            url = contender.store(servers)
            broker = contender.broker(servers) if contender.broker is not None else None
            words = command(contender, workload, url, sizes_of(chosen, workload), chosen.cache)
            runs[name].append(measure(words, chosen.cache, variables(contender, url, broker)))
        except (ContenderFailed, EnvironmentFailed, NoFigures) as error:
            print(error, file=sys.stderr)
            failed[name] = str(error).partition("\n")[0]
    return {name: failed[name] if name in failed else middle(each) for name, each in runs.items()}


def sizes_of(chosen: argparse.Namespace, workload: str) -> Sizes:
    return {
        "chain": {"executions": chosen.executions, "steps": chosen.steps},
        "fanout": {"items": chosen.items, "rounds": 1},
        "latency": {"rounds": chosen.rounds},
    }[workload]


def names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        given = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in given if name not in known]
        if unknown or not given:
            raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(known)}")
        return list(dict.fromkeys(given))

    return parse


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="bench.peers.run", description=__doc__)
    workloads = ("chain", "fanout", "latency")
    made.add_argument("--contenders", type=names(list(CONTENDERS)), default=list(CONTENDERS), metavar="A,B",
                      help=f"Compared with the first one. Of: {', '.join(CONTENDERS)}.")  # fmt: skip
    made.add_argument("--workloads", type=names(workloads), default=list(workloads), metavar="A,B")
    made.add_argument("--executions", type=int, default=500, help="chain: workflows at once.")
    made.add_argument("--steps", type=int, default=10, help="chain: steps of each.")
    made.add_argument("--items", type=int, default=1000, help="fanout: parts.")
    made.add_argument("--rounds", type=int, default=200, help="latency: executions.")
    made.add_argument("--repeat", type=int, default=1, help="Turns of each; the median counts.")
    made.add_argument("--cache", type=Path, default=default_cache(), help="Where environments are kept.")
    made.add_argument("--json", action="store_true", help="One JSON object on standard output.")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    chosen.cache.mkdir(parents=True, exist_ok=True)
    results: dict[str, dict[str, Figures | str]] = {}
    load = os.getloadavg()[0]
    if warning := doubt(load, os.cpu_count() or 1):
        print(warning, file=sys.stderr)
    with Servers() as servers:
        for workload in chosen.workloads:
            results[workload] = measure_all(chosen, servers, workload)
            if not chosen.json:
                print(table(workload, results[workload]), flush=True)
    if chosen.json:
        print(json.dumps({"requirements": REQUIREMENTS, "load_before": load, "results": as_data(results)}))
    return 1 if any(isinstance(each, str) for by_name in results.values() for each in by_name.values()) else 0


def doubt(load: float, cores: int) -> str:
    """A contender that is done within a moment suffers less from others' work than one that runs for minutes."""
    if load < cores / 2:
        return ""
    return f"this machine is busy (load {load:.1f} on {cores} cores): the ratios below favour whoever is done first"


def as_data(results: dict[str, dict[str, Figures | str]]) -> dict[str, dict[str, Any]]:
    return {
        workload: {
            name: {"failed": each} if isinstance(each, str) else asdict(each)
            for name, each in by_name.items()
        }
        for workload, by_name in results.items()
    }


if __name__ == "__main__":
    sys.exit(main())
