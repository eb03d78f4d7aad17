"""One life of a worker: everything it does belongs to it, and ends when it is killed.

A real ``kill -9`` stops a process between two instructions. Here the process is the test's own, so a killed life is
cut off instead: its tasks are cancelled, and whatever they still say to the store is not heard.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast
from weakref import WeakSet

Port = TypeVar("Port")

_OWNER: contextvars.ContextVar[Life | None] = contextvars.ContextVar("dalsegno_kit_life", default=None)


class Life:
    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """A task of this life, and so are all tasks that come from it."""
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
        """For a task that must not go on because its life has ended."""
        while self.dead:
            await asyncio.get_running_loop().create_future()


def outside() -> contextvars.Context:
    """A context that belongs to no life: what is started in it survives."""
    context = contextvars.copy_context()
    context.run(_OWNER.set, None)
    return context


class Midwife:
    """Notices every task that is made on a loop, as long as it is installed, and gives it to the life it comes from."""

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
        life = context.get(_OWNER) if context is not None else _OWNER.get()
        if life is not None:
            life.adopt(task)
        return task


def _plain_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    return asyncio.Task(work, loop=loop, **options)


class _Mortal:
    """A port as one life reaches it."""

    def __init__(self, port: Any, life: Life) -> None:
        self._port = port
        self._life = life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        return self._passing(found)

    def _passing(self, method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        async def call(*arguments: Any, **keywords: Any) -> Any:
            await self._life.stop_here()
            return await method(*arguments, **keywords)

        return call


def mortal(port: Port, life: Life) -> Port:
    """The same port; once the life has ended, no call of it is answered."""
    return cast(Port, _Mortal(port, life))
