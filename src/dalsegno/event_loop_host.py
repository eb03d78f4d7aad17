"""The event loop of an application's engine: in a thread of its own for plain code, the caller's for async code."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from dalsegno.engine.engine import Engine
from dalsegno.engine.process import new_event_loop
from dalsegno.errors import DalSegnoError, InternalError, UsageError

logger = logging.getLogger("dalsegno.event_loop_host")

T = TypeVar("T")

SECONDS_AT_EXIT = 3.0
"""Longest delay of the end of a program."""

OpenEngine = Callable[[], Awaitable[Engine]]


class Calls:
    """Calls that wait for an event loop in another thread. If that loop breaks, they fail instead of waiting for
    ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self.ended = False
        self._broken: BaseException | None = None

    def hand_over(
        self, work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop
    ) -> concurrent.futures.Future[T]:
        with self._lock:
            if self.ended:
                work.close()
                raise self.cancelled()
            future = asyncio.run_coroutine_threadsafe(work, loop)
            self._waiting.add(future)
        future.add_done_callback(self._forget)
        return future

    def end(self, error: BaseException | None = None) -> None:
        """End the calls because of ``error``, or because the application was closed."""
        with self._lock:
            self.ended = True
            self._broken = error
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def cancelled(self) -> DalSegnoError:
        """Return the reason why a call was cancelled."""
        if self._broken is None:
            return UsageError("the application was stopped while this call was waiting")
        return InternalError(
            f"the engine of this application has stopped: {type(self._broken).__name__} ended its event loop; "
            "executions are stored, and go on when a worker runs again"
        )

    def _forget(self, future: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._waiting.discard(future)


class LoopHost:
    """An event loop that accepts calls from any thread or loop: one in a thread of its own, or the caller's."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._calls = Calls()
        self.loop: asyncio.AbstractEventLoop | None = None

    def begin_thread(self) -> None:
        started = threading.Event()
        loop = new_event_loop()
        self._calls = calls = Calls()

        def serve() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(started.set)
            try:
                loop.run_forever()
            except BaseException as error:
                logger.critical("the engine has stopped: its event loop was ended", exc_info=error)
                calls.end(error)
                loop.run_until_complete(self._wind_up())
            finally:
                loop.close()

        self._thread = threading.Thread(target=serve, name="dalsegno", daemon=True)
        self._thread.start()
        started.wait()
        self.loop = loop

    async def _wind_up(self) -> None:
        """Clean up as the last action on a loop that broke, so that other processes can soon take over its work."""
        try:
            await self.stop()
        except BaseException:
            logger.exception("the engine could not be stopped in order; its leases lapse by themselves")
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def stop(self) -> None:
        """End all work on the loop."""

    def begin_here(self) -> None:
        self.loop = asyncio.get_running_loop()

    def end_thread(self) -> None:
        if self._thread is not None and self.loop is not None:
            if not self._calls.ended:
                self._calls.end()
                self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self._thread = self.loop = None

    # -- calls ------------------------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Call from plain code. Refused on the engine's own loop, where it would wait for itself."""
        loop = self._loop()
        if _running_loop() is loop:
            work.close()
            raise UsageError(
                "this call would block the event loop it runs on; await its twin with the prefix 'a'"
            )
        future = self._calls.hand_over(work, loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise self._calls.cancelled() from None
        except BaseException:
            future.cancel()
            raise

    async def acall(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._loop()
        if asyncio.get_running_loop() is loop:
            return await work
        try:
            return await asyncio.wrap_future(self._calls.hand_over(work, loop))
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if not self._calls.ended or (caller is not None and caller.cancelling()):
                raise
            raise self._calls.cancelled() from None

    def iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        """Yield values in plain code; each is computed when it is asked for."""
        try:
            while found := self.call(_next(values)):
                yield found[0]
        finally:
            if self.loop is not None:  # otherwise what it reads was closed
                self.call(_close(values))

    async def aiterate(self, values: AsyncIterator[T]) -> AsyncIterator[T]:
        try:
            while found := await self.acall(_next(values)):
                yield found[0]
        finally:
            if self.loop is not None:
                await self.acall(_close(values))

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            raise UsageError("the application is not open")
        return self.loop


async def _next(values: AsyncIterator[T]) -> tuple[T] | None:
    """Return the next value in a tuple, because the value itself may be None."""
    try:
        return (await anext(values),)
    except StopAsyncIteration:
        return None


async def _close(values: AsyncIterator[Any]) -> None:
    close = getattr(values, "aclose", None)
    if close is not None:
        await close()


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
        _part_at_exit(self.engine, self._loop())

    async def _opened(self) -> Engine:
        return await self._open_engine()

    async def open_here(self) -> None:
        self.begin_here()
        self.engine = await self._open_engine()

    def close(self) -> None:
        if not self._calls.ended:
            self.call(self.stop())
        self._end()

    async def aclose(self) -> None:
        if not self._calls.ended:
            await self.acall(self.stop())
        self._end()

    async def stop(self) -> None:
        if self.engine is not None:
            await self.engine.stop()

    def _end(self) -> None:
        self.end_thread()
        self.engine = None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


# -- the end of a program that did not close its application --------------------------------------------------


def _part_at_exit(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Notify other processes at exit of executions that were started here: the thread of the engine's loop ends
    with the program.
    """
    known, process = weakref.ref(engine), os.getpid()

    def part() -> None:
        left = known()
        if left is not None and process == os.getpid():  # a fork has the object but not its thread
            _part(left, loop)

    _at_exit(part)


def _part(engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
    """Close the broker. No effect if a worker was not closed: it counts as dead, and others take over when its leases
    end.
    """
    if loop.is_closed() or engine.worker is not None:
        return
    closing = asyncio.run_coroutine_threadsafe(engine.stack.broker.close(), loop)
    concurrent.futures.wait([closing], SECONDS_AT_EXIT)


def _at_exit(call: Callable[[], None]) -> None:
    """Register a call that runs before the threads end that resolve host names: at `atexit` they have ended
    already.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    with contextlib.suppress(RuntimeError):  # the program is ending already
        register(call)
