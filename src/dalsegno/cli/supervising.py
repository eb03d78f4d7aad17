"""Several worker processes under one parent, which starts another one whenever one dies."""

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

from dalsegno.cli.output import emit, span
from dalsegno.cli.probing import health_address
from dalsegno.cli.problems import STORE_LOST, Refusal
from dalsegno.cli.serving import NO_LIMITS, OperatorLimits, log_lines
from dalsegno.cli.session import Stopping, stop_signals
from dalsegno.errors import StoreLost

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
LASTING = 60.0
"""Seconds after which a process that dies is taken for one that worked: the next pause is short again."""
PR_SET_PDEATHSIG = 1

say = logging.getLogger("dalsegno.cli").info
warn = logging.getLogger("dalsegno.cli").warning


class Supervisor:
    """``commands``: one for each process that is to run."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._commands = commands
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self.restarts = 0

    async def run(self, stopping: Stopping) -> None:
        """Until somebody wants to stop and every process has ended by itself."""
        keepers = [
            asyncio.create_task(self._keep(number, command, stopping), name=f"process {number}")
            for number, command in enumerate(self._commands, 1)
        ]
        passing_on = asyncio.create_task(self._pass_on(stopping))
        try:
            await asyncio.gather(*keepers)
        finally:
            passing_on.cancel()

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
        """From its start to its end: its id, and its exit code."""
        # A process group of its own: Ctrl-C at the terminal would reach it twice, and the second one ends it at once.
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

    async def _pass_on(self, stopping: Stopping) -> None:
        await stopping.event.wait()
        say("stopping: %d worker processes finish what they run", len(self._running))
        for process in self._running.values():
            if process.returncode is None:
                process.send_signal(stopping.signal or signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Family:
    """Worker processes, and the options that each of them is started with."""

    processes: int
    store: str | None = None
    app: str | None = None
    queues: str | None = None
    concurrency: int | None = None
    grace: float | None = None
    retention: Sequence[str] | None = None
    health_port: str | None = None
    quiet: bool = False
    limits: OperatorLimits = NO_LIMITS

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


async def supervise(family: Family, url: str, *, as_json: bool) -> None:
    """Until SIGINT or SIGTERM, and until every process has finished or handed back what it ran."""
    if url.startswith("memory:"):
        raise Refusal(
            "a memory: store belongs to one process", "Give a store that processes share with --store."
        )
    log_lines(quiet=family.quiet)
    began = time.monotonic()
    supervisor = Supervisor(family.commands())
    with stop_signals() as stopping:
        await supervisor.run(stopping)
    seconds = time.monotonic() - began
    say("all %d worker processes have ended, after %s", family.processes, span(seconds))
    stopping.raise_loss()
    if as_json:
        told = {"processes": family.processes, "restarts": supervisor.restarts, "seconds": round(seconds, 3)}
        emit(told)


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _follows_its_parent() -> Callable[[], Any] | None:
    """Where the kernel can: a process whose parent was killed drains, and does not work on with nobody to end it."""
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
