"""Worker processes in addition to the measuring one, on a shared store, started with the command that users run."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from dalsegno.app import App
from dalsegno.bench.report import Meter
from dalsegno.engine.worker.directory import read_info
from dalsegno.errors import InternalError, UsageError
from dalsegno.wiring import STORE_VARIABLE, is_postgres

PATIENCE = 60.0
"""Seconds in which all processes must have started, with a margin for a busy machine."""
POLL_SECONDS = 0.05
TOGETHER = 500
"""Concurrent steps of all processes together: as many as a single process has."""


@dataclass(slots=True)
class WorkerProcesses:
    """The worker processes; empty if the worker is in this process."""

    processes: list[asyncio.subprocess.Process] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Steps of each process, known after it has ended."""

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def meter(self) -> Meter:
        return Meter(self.pids)

    def figures(self) -> dict[str, Any]:
        """Return the figures for the report, after the processes have ended."""
        if not self.processes:
            return {}
        return {
            "processes": len(self.processes),
            "steps_of_the_busiest": max(self.steps),
            "steps_of_the_idlest": min(self.steps),
        }


@asynccontextmanager
async def with_workers(app: App, processes: int | None) -> AsyncIterator[WorkerProcesses]:
    """Run ``app``: with its worker in this process, or only as the client of ``processes`` worker processes."""
    if processes is None:
        async with app.running():
            yield WorkerProcesses()
        return
    _require_shared(app.url, processes)
    async with app.running(worker=False, scheduler=False):
        workers = WorkerProcesses()
        try:
            for _ in range(processes):
                workers.processes.append(await _start(app.url, -(-TOGETHER // processes)))
            await _until_all_claim(app, workers)
            yield workers
            workers.steps = [await _dismiss(process) for process in workers.processes]
        finally:
            await _end(workers)


def _require_shared(url: str, processes: int) -> None:
    if processes < 1:
        raise UsageError(f"--processes {processes}: at least one process has to work")
    if not is_postgres(url):
        raise UsageError(
            "--processes needs a store whose commits do not wait for each other: give --store postgresql://…"
            " (memory: belongs to one process, and a SQLite file has one writer at a time)"
        )


async def _start(url: str, concurrency: int) -> asyncio.subprocess.Process:
    command = ["worker", "--app", "dalsegno.bench.tasks:app", "--quiet", "--json"]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "dalsegno", *command, f"--concurrency={concurrency}"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, STORE_VARIABLE: url, "PYTHONUNBUFFERED": "1"},
    )


async def _until_all_claim(app: App, workers: WorkerProcesses) -> None:
    """Wait for the first heartbeat of each process."""
    missing = set(workers.pids)
    try:
        async with asyncio.timeout(PATIENCE):
            while missing := missing - await _present(app):
                gone = [each.returncode for each in workers.processes if each.returncode is not None]
                if gone:
                    raise InternalError(f"a worker process ended at once, with exit code {gone[0]}")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise InternalError(f"{len(missing)} worker processes did not start within {PATIENCE:g} s") from None


async def _present(app: App) -> set[int]:
    return {read_info(worker.info).process for worker in await app.engine.stack.ledger.workers()}


async def _dismiss(process: asyncio.subprocess.Process) -> int:
    """Send SIGTERM, as an operator would; return the number of steps that the process has done."""
    process.terminate()
    said, _ = await process.communicate()
    if process.returncode:
        raise InternalError(f"a worker process ended with exit code {process.returncode}")
    return int(json.loads(said)["steps"])


async def _end(workers: WorkerProcesses) -> None:
    """Kill the processes left after an error or an interruption."""
    for process in workers.processes:
        if process.returncode is None:
            process.kill()
            await process.wait()
