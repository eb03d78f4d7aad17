"""Run one execution in this process until it ends, is interrupted, or exceeds its timeout."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dalsegno.app import App
from dalsegno.cli.live.screen import Following, GraphFollowing, Screen, choose_screen, following, log_to
from dalsegno.cli.next_command import Command
from dalsegno.cli.output import stderr
from dalsegno.cli.target.target import serve_queues
from dalsegno.cli.views.result import Result, explain_unfinished, print_result, read_result, still_running
from dalsegno.engine.client import Client
from dalsegno.engine.process import run
from dalsegno.errors import OperatorError, StoreLost
from dalsegno.model.execution import ENDED

GRACE = 5.0
"""Seconds that running steps have to finish after Ctrl-C; then they are released."""
POLL_SECONDS = 0.15
SHARE = 10
"""Reading and drawing take at most a tenth of the time, however large the execution is."""
UNREACHABLE_SECONDS = 1.0
TIMED_OUT = 124

Prepare = Callable[[Client], Awaitable[str]]
"""Creates or finds the execution and returns its id."""


@dataclass(frozen=True, slots=True)
class Session:
    app: App
    command: Command
    as_json: bool = False
    quiet: bool = False
    seconds: float | None = None

    def run(self, prepare: Prepare) -> int:
        """Run to the end and return the exit code. All output has been printed."""
        return run(self._run(prepare))

    async def _run(self, prepare: Prepare) -> int:
        screen = choose_screen(quiet=self.quiet, as_json=self.as_json)
        log_to(screen)
        await self.app.host_here()
        try:
            with stop_signals() as stopping:
                return await self._drive(await prepare(self.app.client), screen, stopping)
        finally:
            await self.app.aclose()

    async def _drive(self, execution: str, screen: Screen, stopping: Stopping) -> int:
        client, engine = self.app.client, self.app.engine
        view = await client.status(execution)
        followed = await following(client, view, self.command)
        if view.state not in ENDED:
            if isinstance(followed, GraphFollowing):
                serve_queues(self.app, {node.queue for node in followed.plan.nodes.values()})
            engine.settings = replace(engine.settings, grace=min(GRACE, engine.settings.grace))
            await engine.start(focus=execution)
            engine.when_lost(stopping.lose)
        screen.begin(view, followed)
        try:
            ended = await follow(followed, screen, stopping, self.seconds)
            stopping.raise_loss()
        finally:
            screen.end(view if engine.loss is not None else await client.status(execution))
        if not ended and engine.worker is not None:
            if engine.worker.running:
                screen.say("stopping: running steps may finish (Ctrl-C again stops at once)")
            await engine.worker.stop(engine.settings.grace)
        code = self._report(await read_result(client, execution), stopping)
        if ended and engine.worker is not None:
            await engine.worker.stop(engine.settings.grace)
            explain_unfinished(await still_running(engine, execution), self.command)
        return code

    def _report(self, result: Result, stopping: Stopping) -> int:
        if result.view.state in ENDED or self.as_json:
            print_result(result, self.command, as_json=self.as_json)
        if result.view.state in ENDED:
            return result.exit_code
        explain_resuming(result, self.command, stopping)
        return 128 + stopping.signal if stopping.signal is not None else TIMED_OUT


async def follow(
    followed: Following, screen: Screen, stopping: Stopping, seconds: float | None = None
) -> bool:
    """Show an execution until it ends, the process is asked to stop, or the timeout expires. Return whether it
    ended."""
    ending = asyncio.ensure_future(followed.client.wait(followed.execution))
    halt = asyncio.ensure_future(stopping.event.wait())
    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while not ending.done() and not halt.done():
            pause = await _show(followed, screen) if screen.live else None
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                break
            pauses = [each for each in (pause, left) if each is not None]
            await asyncio.wait(
                (ending, halt), timeout=min(pauses, default=None), return_when="FIRST_COMPLETED"
            )
        if screen.live:
            await followed.look(complete=ending.done())
            screen.show(followed)
        if ending.done():
            ending.result()  # an execution that was removed is an error
        return ending.done()
    finally:
        ending.cancel()
        halt.cancel()


async def _show(followed: Following, screen: Screen) -> float:
    """Draw one picture and return the seconds until the next."""
    began = time.perf_counter()
    try:
        await followed.poll()
        screen.show(followed)
    except OperatorError:
        return UNREACHABLE_SECONDS  # the engine reports that it waits for the store; the picture waits, too
    return max(POLL_SECONDS, (time.perf_counter() - began) * SHARE)


def explain_resuming(result: Result, command: Command, stopping: Stopping) -> None:
    console = stderr()
    why = "interrupted" if stopping.signal is not None else "the timeout is over"
    if not command.is_lasting:
        console.print(f"{why}; a memory: store ends with its process, so this execution is lost")
        return
    console.print(f"{why}; nothing is lost. Continue it with:")
    console.print("  " + command.line("resume", result.view.id), markup=False, soft_wrap=True)


class Stopping:
    """Set by the first SIGINT or SIGTERM, or by the loss of the store. A second signal ends the process at once."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.signal: int | None = None
        self._loss: StoreLost | None = None

    def lose(self, error: StoreLost) -> None:
        self._loss = error
        self.event.set()

    def raise_loss(self) -> None:
        """Raise the loss of the store, if it was lost."""
        if self._loss is not None:
            raise self._loss

    def ask(self, number: int) -> None:
        if self.signal is not None:
            os.write(
                2, b"\x1b[?25h\n" if os.isatty(2) else b"\n"
            )  # show the cursor that the live view has hidden
            os._exit(128 + number)
        self.signal = number
        self.event.set()


@contextmanager
def stop_signals() -> Iterator[Stopping]:
    stopping = Stopping()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stopping.ask, number)
    try:
        yield stopping
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
