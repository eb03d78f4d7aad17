"""One run of a worker: it owns all tasks that it creates and ends when it is killed.

A real ``kill -9`` stops a process between two instructions. Here the process is the test's own, so a killed run is
cut off instead: its tasks are cancelled, and their later calls never reach the store.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast
from weakref import WeakSet

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
