"""Deliberate crashes: the commit at which a worker dies, the ledger that causes it, and the run that is killed.

A real ``kill -9`` stops a process between two instructions. Here the process is the test's own, so a killed run is
cut off instead: its tasks are cancelled, and their later calls never reach the store.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast
from weakref import WeakSet

import msgspec

from dalsegno.adapters.memory import MemoryLedger
from dalsegno.model.effect import FinishExecution, SaveMachine
from dalsegno.model.transition import Applied, Outcome, Transition

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker dies just before or just after its ``number``-th commit (the first is 1).

    * *Before*: the result of the step is lost and the step runs again: its task runs twice, with the same idempotency
      key.
    * *After*: the step is recorded, but no following step has started yet.
    """

    when: When
    number: int
    place: str = ""
    """The position of the workflow, for messages."""

    def __str__(self) -> str:
        at = f" ({self.place})" if self.place else ""
        return f"{self.when} commit {self.number}{at}"


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed step, as far as tests need it."""

    number: int
    transition: Transition

    @property
    def line(self) -> int:
        """Return the line of the script at which it stopped or called the task; 0 without a line."""
        saved = self._saved()
        if saved is not None and not self.ends:
            return saved.line
        data = [msgspec.json.decode(event.data) for event in self.transition.events if event.data]
        return next((record["line"] for record in data if "line" in record), 0)

    @property
    def suspends(self) -> bool:
        """Return True if a script has reached an await with this step."""
        return self._saved() is not None and not self.ends

    @property
    def ends(self) -> bool:
        return any(isinstance(effect, FinishExecution) for effect in self.transition.effects)

    def _saved(self) -> SaveMachine | None:
        found = [effect for effect in self.transition.effects if isinstance(effect, SaveMachine)]
        return found[0] if found else None


class CrashPlan:
    """The crashes to cause, by commit. All lives of one system share it; each crash happens once."""

    def __init__(self) -> None:
        self.committed: list[Committed] = []
        self.every: int | None = None
        """Crash after every n-th commit, and whenever a script has reached an await."""
        self.happened: list[tuple[Crash, Transition]] = []
        self._planned: list[Crash] = []
        self._base = 0

    def arm(self, crash: Crash) -> None:
        """Add a crash. Its commits are counted from now."""
        self._base = len(self.committed)
        self._planned.append(crash)

    @property
    def pending(self) -> tuple[Crash, ...]:
        return tuple(self._planned)

    def disarm(self) -> None:
        self._planned.clear()

    @property
    def commits(self) -> int:
        """Return the commits since the last crash was armed, or from the beginning."""
        return len(self.committed) - self._base

    def crashes_before(self, transition: Transition) -> bool:
        return self._crashes_now("before", self.commits + 1, transition)

    def crashes_after(self, transition: Transition) -> bool:
        committed = Committed(len(self.committed) + 1, transition)
        self.committed.append(committed)
        if self.every is not None and (committed.suspends or committed.number % self.every == 0):
            self.happened.append((Crash("after", self.commits), transition))
            return True
        return self._crashes_now("after", self.commits, transition)

    def _crashes_now(self, when: When, number: int, transition: Transition) -> bool:
        for crash in self._planned:
            if (crash.when, crash.number) == (when, number):
                self._planned.remove(crash)
                self.happened.append((crash, transition))
                return True
        return False


class CrashingLedger:
    """The ledger to which one run of the worker commits, one transition at a time."""

    def __init__(
        self, truth: MemoryLedger, run: WorkerRun, plan: CrashPlan, crash: Callable[[WorkerRun], None]
    ) -> None:
        self._truth = truth
        self._run = run
        self._plan = plan
        self._crash = crash

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for transition in batch:
            if transition.token is not None and self._plan.crashes_before(transition):
                await self._die()
            [outcome] = await self._truth.commit([transition])
            outcomes.append(outcome)
            counts = transition.token is not None and isinstance(outcome, Applied)
            if counts and self._plan.crashes_after(transition):
                await self._die()
        return outcomes

    async def _die(self) -> None:
        self._crash(self._run)
        await self._run.stop_here()

    def __getattr__(self, name: str) -> object:
        return getattr(self._truth, name)


Port = TypeVar("Port")

_OWNER: contextvars.ContextVar[WorkerRun | None] = contextvars.ContextVar("dalsegno_kit_run", default=None)


class WorkerRun:
    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Create a task of this run. All tasks created by it belong to this run, too."""
        context = contextvars.copy_context()
        context.run(_OWNER.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def end(self) -> None:
        self.dead = True
        for task in list(self._tasks):
            task.cancel()

    async def stop_here(self) -> None:
        """Suspend the calling task forever if its run has ended."""
        while self.dead:
            await asyncio.get_running_loop().create_future()


def outside() -> contextvars.Context:
    """Return a context that belongs to no run: tasks started in it survive."""
    context = contextvars.copy_context()
    context.run(_OWNER.set, None)
    return context


class TaskTracker:
    """Assigns every task created on a loop to the run that created it, while installed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before: Any = loop.get_task_factory()
        loop.set_task_factory(cast(Any, self._make))

    def leave(self) -> None:
        self._loop.set_task_factory(self._before)

    def _make(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        make = self._before or _plain_task
        task: asyncio.Task[Any] = make(loop, work, **options)
        context = options.get("context")
        run = context.get(_OWNER) if context is not None else _OWNER.get()
        if run is not None:
            run.adopt(task)
        return task


def _plain_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


class _WorkerPort:
    """A port as used by one run."""

    def __init__(self, port: Any, run: WorkerRun) -> None:
        self._port = port
        self._run = run

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return self._passing(found)

    def _passing(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            await self._run.stop_here()
            return await method(*arguments, **keywords)

        return call


def port_of_worker(port: Port, run: WorkerRun) -> Port:
    """Return the same port; once the run has ended, its calls never return."""
    return cast(Port, _WorkerPort(port, run))
