"""What running tasks publish, log and write to streams: gathered, and written together.

Values and chunks of a run that goes on are written every tenth of a second, those of all runs of this process by one
call each. What is left when a run ends belongs to the commit of its step, so that a short task costs no write of its
own: chunks and log lines become effects of the step, values are written before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from dalsegno.core.published import UNKEPT_LEVEL, log_line, refusal_text, refuse_large
from dalsegno.engine.committer import Outage
from dalsegno.errors import DalSegnoError, LimitExceeded, OperatorError
from dalsegno.model.effect import AppendChunks
from dalsegno.model.published import LOG, ChunkWrite, Refusal, ValueWrite
from dalsegno.model.token import Lease
from dalsegno.ports.published import PublishedData

logger = logging.getLogger("dalsegno.published")

SERVICE = "task_writes"
GATHER = 0.1
"""Seconds for which writes of running tasks are gathered."""
MOST_WAITING = 8 * 1024 * 1024
"""Bytes of one run that wait to be written."""

Run = tuple[str, int]
"""A token and the fence of its lease."""


class RunWrites:
    """What one run of a task has not written yet."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.values: dict[str, tuple[bytes | None, bool]] = {}
        """Values by key, and whether they are passing; None: to be removed."""
        self.chunks: dict[str, list[bytes]] = {}
        self.closes: set[str] = set()
        self.bytes = 0
        self.passing: set[str] = set()
        """Keys of passing values that were written, to be removed when the run ends."""
        self.left: tuple[AppendChunks, ...] = ()
        """What the commit of the step is to append."""
        self.problem = ""
        """Why its last write was refused."""

    @property
    def attempt(self) -> int:
        return self.lease.attempt + self.lease.losses

    def take_chunks(self) -> list[tuple[str, tuple[bytes, ...], bool]]:
        """Return streams with their chunks, and whether they are closed; nothing is left."""
        taken = [
            (name, tuple(self.chunks.get(name, ())), name in self.closes)
            for name in dict.fromkeys((*self.chunks, *self.closes))
        ]
        self.chunks, self.closes, self.bytes = {}, set(), 0
        return taken


class TaskWrites:
    """The writes of all running tasks of one process. Tasks may call it from threads."""

    def __init__(
        self,
        published: PublishedData,
        now: Callable[[], float],
        most_stored: int,
        notice: Callable[[str], None] = lambda execution: None,
    ) -> None:
        """``notice`` receives the executions that were written to."""
        self._published = published
        self._now = now
        self._most_stored = most_stored
        self._notice = notice
        self._lock = threading.Lock()
        self._flushing = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.outage = Outage()
        self.runs: dict[Run, RunWrites] = {}

    # -- by the task ------------------------------------------------------------------------------------------

    def publish(self, lease: Lease, key: str, data: bytes, *, passing: bool = False) -> None:
        refuse_large(key, data)
        with self._lock:
            run = self._run(lease)
            run.values[key] = data, passing
            self._wake()

    def append(self, lease: Lease, stream: str, chunk: bytes) -> None:
        refuse_large(stream, chunk, is_chunk=True)
        with self._lock:
            run = self._run(lease)
            if run.bytes + len(chunk) > MOST_WAITING:
                raise LimitExceeded(
                    f"more than {MOST_WAITING:,} bytes of the stream '{stream}' wait to be written; write less at a"
                    " time, and await something in between, such as asyncio.sleep(0.1)"
                )
            run.chunks.setdefault(stream, []).append(chunk)
            run.bytes += len(chunk)
            self._wake()

    def close_stream(self, lease: Lease, stream: str) -> None:
        with self._lock:
            self._run(lease).closes.add(stream)
            self._wake()

    def log(self, lease: Lease, task: str, level: str, message: str) -> None:
        """Append a log line. A log that is full takes no more, and fails nobody."""
        if level == UNKEPT_LEVEL:
            return
        line = log_line(self._now(), task, level, message)
        with self._lock, contextlib.suppress(LimitExceeded):
            run = self._run(lease, is_log=True)
            if run.bytes + len(line) <= MOST_WAITING:
                run.chunks.setdefault(LOG, []).append(line)
                run.bytes += len(line)
                self._wake()

    def _run(self, lease: Lease, *, is_log: bool = False) -> RunWrites:
        run = self.runs.get((lease.token, lease.fence))
        if run is None:
            run = self.runs[lease.token, lease.fence] = RunWrites(lease)
        if run.problem and not is_log:
            problem, run.problem = run.problem, ""
            raise LimitExceeded(problem)
        return run

    def _wake(self) -> None:
        loop = self.loop
        if loop is None:
            with contextlib.suppress(RuntimeError):
                loop = self.loop = asyncio.get_running_loop()
        if loop is None:
            return
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if is_here:
            self._start()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._timer is None or self._timer.done():
            self._timer = asyncio.get_running_loop().create_task(self._write_soon(), name="writes of tasks")

    # -- by the worker ----------------------------------------------------------------------------------------

    def has(self, lease: Lease) -> bool:
        return (lease.token, lease.fence) in self.runs

    async def finish(self, lease: Lease) -> tuple[AppendChunks, ...]:
        """Write the values of a run that has ended, and return what the commit of its step is to append."""
        run = self.runs.get((lease.token, lease.fence))
        if run is None:
            return ()
        async with self._flushing:
            with self._lock:
                run.left += tuple(
                    AppendChunks(
                        name,
                        chunks,
                        closes,
                        "" if name == LOG else lease.node,
                        run.attempt,
                        lease.token,
                        lease.fence,
                    )
                    for name, chunks, closes in run.take_chunks()
                )
                for key, (_, passing) in list(run.values.items()):
                    if passing and key not in run.passing:
                        del run.values[key]  # nobody has seen it
                run.values.update(dict.fromkeys(run.passing, (None, True)))
                values = self._take_values() if run.values else []
            await self._publish(values)
        return run.left

    def forget(self, lease: Lease) -> None:
        """Forget a run whose step is committed, or that was given up."""
        self.runs.pop((lease.token, lease.fence), None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)

    # -- writing ----------------------------------------------------------------------------------------------

    async def _write_soon(self) -> None:
        while self._is_waiting():
            await asyncio.sleep(GATHER)
            async with self._flushing:
                await self.flush()

    def _is_waiting(self) -> bool:
        with self._lock:
            return any(run.values or run.chunks or run.closes for run in self.runs.values())

    async def flush(self) -> None:
        with self._lock:
            values, chunks = self._take_values(), self._take_chunks()
        await self._publish(values)
        if not chunks:
            return
        try:
            refusals = await self._published.append(chunks, self._most_stored)
        except OperatorError as error:
            self._put_back(chunks)
            self.outage.failed(self, "published values and streams wait for the store", error)
            return
        except DalSegnoError:
            logger.exception("chunks of running tasks cannot be stored, and are dropped")
            return
        self.outage.answered(self)
        for write, refusal in zip(chunks, refusals, strict=True):
            if write.stream != LOG or refusal == "lost":
                self._note(write, refusal, write.stream)

    async def _publish(self, values: Sequence[ValueWrite]) -> None:
        if not values:
            return
        try:
            refusals = await self._published.publish(values)
        except OperatorError as error:
            self.outage.failed(self, "published values and streams wait for the store", error)
            self._put_values_back(values)
            return
        except DalSegnoError:
            logger.exception("values that running tasks publish cannot be stored, and are dropped")
            return
        self.outage.answered(self)
        for write, refusal in zip(values, refusals, strict=True):
            self._note(write, refusal, write.key)

    def _note(self, write: ValueWrite | ChunkWrite, refusal: Refusal, name: str) -> None:
        self._notice(write.execution)
        if not refusal:
            return
        run = self.runs.get((write.token, write.fence))
        if refusal == "lost":
            self.runs.pop((write.token, write.fence), None)
            return
        problem = refusal_text(refusal, name)
        logger.warning("execution %s: %s", write.execution, problem)
        if run is not None:
            run.problem = problem

    def _take_values(self) -> list[ValueWrite]:
        taken = []
        for run in self.runs.values():
            lease = run.lease
            for key, (data, passing) in run.values.items():
                taken.append(ValueWrite(lease.execution, lease.token, lease.fence, key, data, passing))
                if passing:
                    (run.passing.discard if data is None else run.passing.add)(key)
            run.values = {}
        return taken

    def _take_chunks(self) -> list[ChunkWrite]:
        return [
            ChunkWrite(
                run.lease.execution,
                run.lease.token,
                run.lease.fence,
                run.attempt,
                "" if name == LOG else run.lease.node,
                name,
                chunks,
                closes,
            )
            for run in self.runs.values()
            for name, chunks, closes in run.take_chunks()
        ]

    def _put_values_back(self, values: Sequence[ValueWrite]) -> None:
        """Keep what the store did not take, unless the run has published a newer value."""
        with self._lock:
            for write in values:
                run = self.runs.get((write.token, write.fence))
                if run is not None:
                    run.values.setdefault(write.key, (write.data, write.passing))

    def _put_back(self, chunks: Sequence[ChunkWrite]) -> None:
        with self._lock:
            for write in chunks:
                run = self.runs.get((write.token, write.fence))
                if run is None:
                    continue
                run.chunks[write.stream] = [*write.chunks, *run.chunks.get(write.stream, ())]
                run.bytes += sum(map(len, write.chunks))
                if write.closes:
                    run.closes.add(write.stream)
