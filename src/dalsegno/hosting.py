"""Where an application's engine lives: in a thread of its own for plain code, in the caller's loop for async code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from dalsegno.engine.engine import Engine
from dalsegno.engine.loop import new_event_loop
from dalsegno.errors import UsageError

T = TypeVar("T")

OpenEngine = Callable[[], Awaitable[Engine]]


class LoopHost:
    """An event loop that calls may come to from any thread or loop: one in a thread of its own, or the caller's."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def begin_thread(self) -> None:
        started = threading.Event()
        loop = new_event_loop()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set)
            loop.run_forever()
            loop.close()

        self._thread = threading.Thread(target=serve, name="dalsegno", daemon=True)
        self._thread.start()
        started.wait()
        self.loop = loop

    def begin_here(self) -> None:
        self.loop = asyncio.get_running_loop()

    def end_thread(self) -> None:
        if self._thread is not None and self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self._thread = self.loop = None

    # -- calls ------------------------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """From plain code. Refused on the engine's own loop, where it would wait for itself."""
        loop = self._loop()
        if _running_loop() is loop:
            work.close()
            raise UsageError(
                "this call would block the event loop it runs on; await its twin with the prefix 'a'"
            )
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise UsageError("the application was stopped while this call was waiting") from None
        except BaseException:
            future.cancel()
            raise

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._loop()
        if asyncio.get_running_loop() is loop:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            raise UsageError("the application is not open")
        return self.loop


class Host(LoopHost):
    """One engine and the event loop it runs on."""

    def __init__(self, open_engine: OpenEngine) -> None:
        super().__init__()
        self._open_engine = open_engine
        self.engine: Engine | None = None

    def open_in_thread(self) -> None:
        self.begin_thread()
        try:
            self.engine = self.call(self._opened())
        except BaseException:
            self._end()
            raise

    async def _opened(self) -> Engine:
        return await self._open_engine()

    async def open_here(self) -> None:
        self.begin_here()
        self.engine = await self._open_engine()

    def close(self) -> None:
        if self.engine is not None:
            self.call(self.engine.stop())
        self._end()

    async def aclose(self) -> None:
        if self.engine is not None:
            await self.acall(self.engine.stop())
        self._end()

    def _end(self) -> None:
        self.end_thread()
        self.engine = None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
