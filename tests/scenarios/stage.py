"""A stage: one application on one store, with a clock that stands still, standard tasks, and eyes for the outcome."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Self

import msgspec

from dalsegno import App
from dalsegno.app import Running
from dalsegno.core.values import decode_value
from dalsegno.engine.settings import EngineSettings
from dalsegno.handle import Handle
from dalsegno.model.event import Event
from dalsegno.ports.node import NodeError
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.stored_histories import stored_problems

PATIENCE = 15.0
"""Seconds of real time after which a scenario counts as hanging."""
LEASE = 1e6
"""The clock jumps by hours: leases must outlive that."""


class Door:
    """Holds tasks until the test opens it. ``comers`` are the idempotency keys of those who came."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()
        self.comers: list[str] = []

    def open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def passing(self, comer: str) -> None:
        self.comers.append(comer)
        await asyncio.shield(asyncio.wrap_future(self._opened))


class Alarm(logging.Handler):
    """What the engine itself complains about; workflows may fail, the engine may not."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "dalsegno.log":
            self.messages.append(self.format(record))


class Ended:
    """How an execution ended, in plain values."""

    def __init__(self, handle: Handle) -> None:
        view = handle.status()
        self.id = handle.id
        self.handle = handle
        self.state = view.state
        self.output = decode_value(view.output) if view.output is not None else None
        self.error = msgspec.json.decode(view.error) if view.error is not None else None
        self.context = handle.context()
        self.events = all_events(handle)
        self.nodes = {name: (node.state, node.runs) for name, node in handle.nodes().items()}

    @property
    def plain_error(self) -> dict[str, Any] | None:
        """Without the traceback, which is for people."""
        if self.error is None:
            return None
        return {name: value for name, value in self.error.items() if name != "traceback"}

    @property
    def states(self) -> dict[str, str]:
        return {name: state for name, (state, _) in self.nodes.items()}

    def of(self, kind: str, node: str | None = None) -> list[Event]:
        return [event for event in self.events if event.kind == kind and node in (None, event.node)]

    def count(self, kind: str, node: str | None = None) -> int:
        return len(self.of(kind, node))

    def data(self, kind: str, node: str) -> list[dict[str, Any]]:
        return [msgspec.json.decode(event.data) for event in self.of(kind, node) if event.data is not None]


def all_events(handle: Handle) -> list[Event]:
    found: list[Event] = []
    while page := handle.events(after=len(found)):
        found += page
    assert [event.seq for event in found] == list(range(1, len(found) + 1)), "the history has a gap"
    return found


class Stage:
    def __init__(self, url: str, **settings: Any) -> None:
        self.clock = FakeClock()
        own = {"lease_seconds": LEASE, "missing_tasks": "fail"}  # nobody else comes
        self.app = App(url, settings=EngineSettings(**own | settings), clock=self.clock)
        self.doors: dict[str, Door] = {}
        self.seen: list[Any] = []
        self.attempts: dict[str, int] = {}
        self._running: Running | None = None
        self._alarm = Alarm()
        _register_tasks(self)

    def __enter__(self) -> Self:
        logging.getLogger("dalsegno").addHandler(self._alarm)
        self._running = self.app.running()
        self._running.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for door in self.doors.values():
            door.open()
        assert self._running is not None
        inexact = self.app.host.call(stored_problems(self.app.engine.client))
        self._running.__exit__()
        logging.getLogger("dalsegno").removeHandler(self._alarm)
        assert not self._alarm.messages, f"the engine complained: {self._alarm.messages}"
        assert not inexact, "the histories are not exact:\n" + "\n".join(inexact)

    def door(self, name: str) -> Door:
        return self.doors.setdefault(name, Door())

    # -- acting -----------------------------------------------------------------------------------------------

    def start(self, document: Any, payload: Any = None, **options: Any) -> Handle:
        definition = self.app.deploy(document)
        return self.app.with_options(**options).start(definition.name, payload)

    def run(self, document: Any, payload: Any = None, **options: Any) -> Ended:
        return self.end_of(self.start(document, payload, **options))

    def start_script(self, source: str, payload: Any = None, name: str = "script", **options: Any) -> Handle:
        definition = self.app.deploy_script(source, name)
        return self.app.with_options(**options).start(definition.name, payload)

    def run_script(self, source: str, payload: Any = None, **options: Any) -> Ended:
        return self.end_of(self.start_script(source, payload, **options))

    def end_of(self, handle: Handle, patience: float = PATIENCE) -> Ended:
        try:
            handle.wait(patience)
        except TimeoutError:
            raise AssertionError(_dump(handle)) from None
        return Ended(handle)

    def pass_time(self, seconds: float) -> None:
        """Moves the clock; timers notice at once."""
        self.clock.advance(seconds)
        engine, loop = self.app.engine, self.app.host.loop
        assert loop is not None
        loop.call_soon_threadsafe(engine.timers.notice, 0.0)

    # -- watching ---------------------------------------------------------------------------------------------

    def until(self, what: str, handle: Handle, condition: Callable[[], object]) -> None:
        """Returns as soon as something can be observed."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {what}\n{_dump(handle)}")
            time.sleep(0.002)

    def until_event(self, handle: Handle, kind: str, node: str = "", times: int = 1) -> None:
        def recorded() -> bool:
            return sum(event.kind == kind and event.node == node for event in all_events(handle)) >= times

        self.until(f"{times} × {kind} of '{node}'", handle, recorded)

    def until_state(self, handle: Handle, node: str, state: str) -> None:
        self.until(f"node '{node}' is {state}", handle, lambda: handle.nodes()[node].state == state)

    def until_comers(self, handle: Handle, door: str, comers: int = 1) -> None:
        self.until(f"{comers} at door '{door}'", handle, lambda: len(self.door(door).comers) >= comers)


def _dump(handle: Handle) -> str:
    """Everything that helps to see why an execution hangs."""
    lines = [f"execution {handle.id} is {handle.status().state}", "waits for:"]
    lines += [f"  {wait.kind} {wait.node} {wait.scope}: {wait.sentence}" for wait in handle.why()]
    lines += ["history:"]
    lines += [f"  {event.seq} {event.kind} {event.node} {event.scope}" for event in all_events(handle)[-60:]]
    return "\n".join(lines)


def _register_tasks(stage: Stage) -> None:
    async def echo(value: Any) -> Any:
        return value

    async def note(value: Any) -> Any:
        """Remembers the order of runs."""
        stage.seen.append(value)
        return value

    async def fail(problem: Any) -> None:
        raise NodeError(problem["message"], code=problem["code"])

    async def fail_if(problem: Any) -> Any:
        """Fails where ``when`` holds, else puts out ``value``."""
        if problem["when"]:
            raise NodeError("refused", code="REFUSED")
        return problem.get("value")

    async def hold(ctx, door: str) -> str:  # type: ignore[no-untyped-def]
        await stage.door(door).passing(ctx.idempotency_key)
        return door

    async def flaky(ctx, plan: Any) -> Any:  # type: ignore[no-untyped-def]
        """Fails ``failures`` times per token, then puts out how many attempts it took."""
        stage.attempts[ctx.idempotency_key] = attempt = stage.attempts.get(ctx.idempotency_key, 0) + 1
        if attempt <= plan["failures"]:
            raise NodeError(
                f"attempt {attempt} failed",
                code=plan.get("code", "FLAKY"),
                retry_after=plan.get("retry_after"),
            )
        return {"attempt": ctx.attempt, "key": ctx.idempotency_key}

    for function in (echo, note, fail, fail_if, hold, flaky):
        stage.app.task(function)
