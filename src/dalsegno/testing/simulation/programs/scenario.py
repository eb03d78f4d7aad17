"""The environment of a simulated program: its source texts, its signals, its task, and how the system is built."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal
from zlib import crc32

import msgspec
from msgspec import Struct

from dalsegno.engine.steps.tasks import Tasks
from dalsegno.ports.node import NodeContext, NodeError
from dalsegno.testing.simulation.programs.program import (
    MAIN,
    Await,
    Begin,
    Body,
    Fan,
    Fire,
    Group,
    Program,
    Promise,
    Repeat,
    Signal,
    Statement,
    bodies_of,
)

NAME = "work"


def work_result(site: int, given: Any, pad: int) -> Any:
    """Return a small number that depends on all inputs; with ``pad``, a long text beside it."""
    number = crc32(msgspec.json.encode([site, given], order="sorted")) % 9973
    return {"n": number, "pad": "x" * pad} if pad else number


class SimulatedTasks(Tasks):
    """No threads: turns of Python workflows run on the simulated loop."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[str, int]] = []
        """Idempotency key and number of each started attempt."""

    def runs(self, name: str) -> bool:
        return True

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        if name != NAME:
            raise NodeError(f"there is no task '{name}' here", code="TASK_NOT_FOUND", retryable=False)
        self.attempts.append((ctx.idempotency_key, ctx.attempt))
        if payload.get("seconds"):
            await asyncio.sleep(payload["seconds"])
        if ctx.attempt <= payload.get("fails", 0):
            site = payload["site"]
            raise NodeError(f"programmed failure at {site}", code=f"W{site}")
        return work_result(payload["site"], payload["v"], int(payload.get("pad", 0)))

    async def call(self, work: Callable[[], None]) -> None:
        """Run at once: a turn reads the clock before and after, and the replay knows only one of the two times."""
        work()

    async def close(self) -> None:
        """Do nothing: all processes share it."""


Language = Literal["flow", "python"]


class SentSignal(Struct, frozen=True):
    """``after`` seconds from the start."""

    after: float
    name: str
    payload: int


class ScriptScenario(Struct, frozen=True):
    program: Program
    signals: tuple[SentSignal, ...] = ()
    language: Language = "flow"
    news: bool = False
    """True if messages only wake workers, which claim any ready token; else every message names a token."""
    concurrency: int = 4
    bystander: bool = False
    is_moved: bool = False
    """Whether the main execution may be moved between two versions of its program."""

    def payloads(self) -> Mapping[str, list[Any]]:
        """Return the payloads by name, in the order in which they are sent."""
        found: dict[str, list[Any]] = {}
        for signal in self.signals:
            found.setdefault(signal.name, []).append(signal.payload)
        return found


def most_signals(program: Program) -> dict[str, int]:
    """Return the maximal number of signals of each name that the program may await."""
    return _in_body(program.workflows[MAIN])


def _in_body(body: Body) -> dict[str, int]:
    found: dict[str, int] = {}
    for statement in body:
        for name, number in _in_statement(statement).items():
            found[name] = found.get(name, 0) + number
    return found


def _in_statement(statement: Statement) -> dict[str, int]:
    found: dict[str, int] = {}
    if isinstance(statement, Await | Begin | Fire):
        for name in _names(statement.promise):
            found[name] = found.get(name, 0) + 1
    times = statement.times if isinstance(statement, Repeat) else 1
    for body in bodies_of(statement):
        for name, number in _in_body(body).items():
            found[name] = found.get(name, 0) + number * times
    return found


def _names(promise: Promise) -> list[str]:
    match promise:
        case Signal(name):
            return [name]
        case Group(items=items):
            return [name for item in items for name in _names(item)]
        case Fan():
            return []
        case _:
            return []
