"""Several worker processes under one parent, which restarts those that die."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dalsegno.cli.errors import STORE_LOST, Refusal
from dalsegno.cli.output import emit, span
from dalsegno.cli.process.health_port import health_address
from dalsegno.cli.process.serve import NO_LIMITS, LimitOptions, log_lines
from dalsegno.cli.run.session import Stopping, stop_signals
from dalsegno.errors import StoreLost

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
LASTING = 60.0
"""Seconds after which a process that dies counts as having worked: the back-off starts again."""
PR_SET_PDEATHSIG = 1

say = logging.getLogger("dalsegno.cli").info
warn = logging.getLogger("dalsegno.cli").warning


class Supervisor:
    """Keeps processes running. ``commands``: one for each process."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self.restarts = 0

    async def run(self, stopping: Stopping) -> None:
        """Run until the process is asked to stop and every child has ended."""
        supervisors = [
            asyncio.create_task(self._keep(number, command, stopping), name=f"process {number}")
            for number, command in enumerate(self._commands, 1)
        ]
        forwarding = asyncio.create_task(self._forward_signals(stopping))
        try:
            await asyncio.gather(*supervisors)
        finally:
            forwarding.cancel()

    async def _keep(self, number: int, command: Sequence[str], stopping: Stopping) -> None:
        pause = FIRST_PAUSE
        while not stopping.event.is_set():
            began = time.monotonic()
            process, code = await self._one(number, command, stopping)
            ended = f"({process}) {how_it_ended(code)}"
            if code == STORE_LOST:
                reason = f"worker process {number} {ended}: its store was deleted or replaced. None is started again"
                stopping.lose(StoreLost(reason))
            if stopping.event.is_set():
                return
            if time.monotonic() - began > LASTING:
                pause = FIRST_PAUSE
            warn("worker process %d %s; another one starts in %s", number, ended, span(pause))
            await _first(stopping.event, pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            self.restarts += 1

    async def _one(self, number: int, command: Sequence[str], stopping: Stopping) -> tuple[int, int]:
        """Run one child from its start to its end. Return its process id and exit code."""
        # A process group of its own: otherwise the child gets Ctrl-C twice, and the second signal ends it at once.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, process_group=0, preexec_fn=_follows_its_parent()
        )
        self._running[number] = process
        if stopping.event.is_set():
            process.send_signal(stopping.signal or signal.SIGTERM)
        say("worker process %d has the id %d", number, process.pid)
        try:
            code = await process.wait()
        finally:
            del self._running[number]
        return process.pid, code

    async def _forward_signals(self, stopping: Stopping) -> None:
        await stopping.event.wait()
        say("stopping: %d worker processes finish their steps", len(self._running))
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(stopping.signal or signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Worker processes and their common options."""

    processes: int
    store: str | None = None
    app: str | None = None
    queues: str | None = None
    concurrency: int | None = None
    grace: float | None = None
    retention: Sequence[str] | None = None
    health_port: str | None = None
    quiet: bool = False
    limits: LimitOptions = NO_LIMITS

    def commands(self) -> list[list[str]]:
        return [self._command(number) for number in range(self.processes)]

    def _command(self, number: int) -> list[str]:
        health = health_address(self.health_port, number)
        options = {
            "store": self.store,
            "app": self.app,
            "queues": self.queues,
            "concurrency": self.concurrency,
            "grace": self.grace,
            "health-port": health,
        }
        words = [f"--{name}={value}" for name, value in options.items() if value is not None]
        words += self.limits.words()
        words += [f"--retention={each}" for each in self.retention or ()]
        return [sys.executable, "-m", "dalsegno", "worker", *words, *(["--quiet"] if self.quiet else [])]


async def supervise(group: WorkerGroup, url: str, *, as_json: bool) -> None:
    """Run until SIGINT or SIGTERM, and until every child has finished or released its steps."""
    if url.startswith("memory:"):
        raise Refusal(
            "a memory: store belongs to one process", "Give a store that processes share with --store."
        )
    log_lines(quiet=group.quiet)
    began = time.monotonic()
    supervisor = Supervisor(group.commands())
    with stop_signals() as stopping:
        await supervisor.run(stopping)
    seconds = time.monotonic() - began
    say("all %d worker processes have ended, after %s", group.processes, span(seconds))
    stopping.raise_loss()
    if as_json:
        summary = {
            "processes": group.processes,
            "restarts": supervisor.restarts,
            "seconds": round(seconds, 3),
        }
        emit(summary)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _follows_its_parent() -> Callable[[], Any] | None:
    """On Linux, send SIGTERM to the child when its parent dies: it drains instead of running without a supervisor."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


async def _first(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
