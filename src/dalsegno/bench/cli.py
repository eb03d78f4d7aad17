"""``dalsegno bench``: one command, one workload, one report."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dalsegno.adapters.urls import shown_url
from dalsegno.bench.report import Report
from dalsegno.engine.process import run, tune_memory
from dalsegno.errors import UsageError
from dalsegno.wiring import BROKER_VARIABLE, broker_of_environment

Workload = Callable[..., Awaitable[Report]]
WORKLOADS = (
    "chain",
    "script",
    "python",
    "fanout",
    "latency",
    "resume",
    "suspended",
    "moves",
    "timers",
    "split100k",
    "listing",
    "streams",
    "http",
    "remote",
)


def _workload(name: str, *, script: bool) -> Workload:
    from dalsegno.bench import moves, resume, seed, server_process, streams, workloads  # noqa: PLC0415 - only what is used is loaded

    found: dict[str, Workload] = {
        "chain": workloads.chain,
        "script": workloads.script,
        "python": workloads.python,
        "fanout": workloads.script_fanout if script else workloads.fanout,
        "latency": workloads.latency,
        "resume": resume.resume,
        "suspended": resume.suspended,
        "moves": moves.moves,
        "timers": workloads.timers,
        "split100k": workloads.split100k,
        "listing": seed.listing,
        "streams": streams.streams,
        "http": server_process.http,
        "remote": server_process.remote,
    }
    if name not in found:
        raise UsageError(f"there is no workload '{name}'; choose one of {', '.join(WORKLOADS)}")
    if script and name != "fanout":
        raise UsageError("only fanout takes --script; the chain of a script is the workload 'script'")
    return found[name]


def bench(
    workload: Annotated[str, typer.Argument(help=f"{', '.join(WORKLOADS[:-1])} or {WORKLOADS[-1]}.")],
    store: Annotated[str | None, typer.Option(help="URL of the store. Default: a fresh SQLite file.")] = None,
    broker: Annotated[
        str | None,
        typer.Option(help="URL of Redis or RabbitMQ, to bring work to workers. Default: the store does."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value, nothing else, on stdout.")
    ] = False,
    executions: Annotated[
        int | None,
        typer.Option(help="chain, script, python, suspended, moves, listing, streams: number of executions."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="chain, script, python: steps of each execution.")] = None,
    items: Annotated[int | None, typer.Option(help="fanout, split100k: number of items.")] = None,
    rounds: Annotated[
        int | None, typer.Option(help="fanout, latency, resume, suspended, listing: number of rounds.")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="chain, fanout, latency: worker processes that run the steps, on a store shared with this one."
        ),
    ] = None,
    script: Annotated[bool, typer.Option("--script", help="fanout: run a script with Task.all.")] = False,
    parked: Annotated[int | None, typer.Option(help="timers: number of parked timers.")] = None,
    due: Annotated[int | None, typer.Option(help="timers: number that come due in one second.")] = None,
    watchers: Annotated[
        int | None, typer.Option(help="streams: number of streams open at the same time.")
    ] = None,
    rate: Annotated[int | None, typer.Option(help="http: starts per second.")] = None,
    seconds: Annotated[int | None, typer.Option(help="http: duration of the run in seconds.")] = None,
    tasks: Annotated[int | None, typer.Option(help="remote: number of tasks.")] = None,
    workers: Annotated[int | None, typer.Option(help="remote: number of workers.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="remote: number of tasks that a worker takes at once.")
    ] = None,
) -> None:
    """Benchmark this machine and a store."""
    sizes = {
        "executions": executions,
        "steps": steps,
        "items": items,
        "rounds": rounds,
        "processes": processes,
        "parked": parked,
        "due": due,
        "watchers": watchers,
        "rate": rate,
        "seconds": seconds,
        "tasks": tasks,
        "workers": workers,
        "batch": batch,
    }
    given = {name: size for name, size in sizes.items() if size is not None}
    chosen = _workload(workload, script=script)
    if broker is not None:
        os.environ[BROKER_VARIABLE] = broker  # for the worker processes, too
    tune_memory()
    console = Console(stderr=True)
    report = _measure(chosen, store, given, lambda line: console.print(f"  {line}", style="dim"))
    report.store = shown_url(report.store)
    if (used := broker_of_environment()) is not None:
        report.details["broker"] = shown_url(used)
    if as_json:
        typer.echo(json.dumps(report.as_dict()))
    else:
        _show(report)


def _measure(
    workload: Workload, store: str | None, sizes: dict[str, Any], progress: Callable[[str], None]
) -> Report:
    try:
        if store is not None:
            return run(workload(store, progress, **sizes))  # type: ignore[arg-type]
        with tempfile.TemporaryDirectory(prefix="dalsegno-bench-", dir=".") as folder:
            url = f"sqlite:///{Path(folder).resolve() / 'bench.db'}"
            return run(workload(url, progress, **sizes))  # type: ignore[arg-type]
    except TypeError as error:
        if "unexpected keyword argument" in str(error):
            raise UsageError(f"this workload does not take {str(error).rpartition(' ')[2]}") from None
        raise


def _show(report: Report) -> None:
    table = Table(title=f"{report.workload} on {report.store}", title_justify="left", show_header=False)
    table.add_row("steps per second", f"{report.steps_per_s:,.0f}")
    if report.p50_ms is not None and report.p99_ms is not None:
        table.add_row("p50 / p99", f"{report.p50_ms:.2f} ms / {report.p99_ms:.2f} ms")
    table.add_row("CPU", f"{report.cpu_s:.2f} s")
    table.add_row("resident memory", f"{report.rss_mb:.0f} MB")
    for name, figure in {
        **report.details,
        **{f"raw {name}": limit for name, limit in report.raw.items()},
    }.items():
        shown = f"{figure:,.2f}" if isinstance(figure, float) else f"{figure:,}"
        table.add_row(name.replace("_", " "), shown)
    Console().print(table)


def register(app: typer.Typer) -> None:
    app.command("bench")(bench)
