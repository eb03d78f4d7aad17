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


class Host:
    """One engine and the event loop it runs on. Calls may come from any thread or loop."""

    def __init__(self, open_engine: OpenEngine) -> None:
        self._open_engine = open_engine
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.engine: Engine | None = None

    # -- coming and going -------------------------------------------------------------------------------------

    def open_in_thread(self) -> None:
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
        try:
            self.engine = self.call(self._opened())
        except BaseException:
            self._end_thread()
            raise

    async def _opened(self) -> Engine:
        return await self._open_engine()

    async def open_here(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.engine = await self._open_engine()

    def close(self) -> None:
        if self.engine is not None:
            self.call(self.engine.stop())
        self._end_thread()

    async def aclose(self) -> None:
        if self.engine is not None:
            await self.acall(self.engine.stop())
        self._end_thread()

    def _end_thread(self) -> None:
        if self._thread is not None and self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self._thread = self.loop = self.engine = None

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


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
