"""Work on callers' data outside the event loop: fair queues, threads for small jobs and processes for large ones.

* A job is one of the named pure functions of `dalsegno.job_process`: plain values in, plain values out.
* Callers take turns, and none of them uses all processes. A caller with a full queue gets `Overloaded`.
* A large job runs in a process, which is killed when its time is over or its caller has gone. The process has a
  memory limit and none of this process's secrets. It is started on demand and ends when it has been idle for a while.
* Threads cannot be killed and share the interpreter with the loop. Only small jobs run there, or all of them if the
  interpreter is embedded in another program and cannot be started as a process.
* Checks of callers' values run in the event loop if they are short, and in a process if they are long.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import signal
import struct
import sys
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from dalsegno.core.values import decode_value, encode_value, value_digest
from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import InternalError, LimitExceeded, Overloaded, TooSlow
from dalsegno.graph.documents.document import LIGHT_SCHEMA_STEPS

T = TypeVar("T")

logger = logging.getLogger("dalsegno.offload")

MODULE: Final = "dalsegno.job_process"
LENGTH = struct.Struct(">Q")
USER_TIME, SYSTEM_TIME = 11, 12
"""Indexes of the fields of /proc/PID/stat, counted after the name."""
PIECE = 1024 * 1024
"""Bytes of a message that are read at a time."""
KEPT_VARIABLES = ("LANG", "LC_", "LD_LIBRARY_PATH", "PATH", "PYTHON", "SYSTEMROOT", "TEMP", "TMP")
SMALL_LANE: Final = "thread"
LARGE_LANE: Final = "process"
LOAD_LANE: Final = "load"
START_SECONDS: Final = 60.0
"""Seconds within which a new process must be ready."""


@dataclass(frozen=True, slots=True)
class OffloadLimits:
    processes: int = 2
    seconds: float = 15.0
    """Time of one job."""
    wait_seconds: float | None = 10.0
    """Time within which a job must begin; None: no limit."""
    queue: int = 16
    """Waiting jobs of one caller."""
    memory_bytes: int = 1024 * 1024 * 1024
    """Address space of one process."""
    idle_seconds: float = 60.0
    """Time after which an idle process ends."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The caller of a job. ``gone`` returns when the result is no longer needed."""

    key: str = ""
    gone: Callable[[], Awaitable[None]] | None = None


requester: ContextVar[Requester] = ContextVar("dalsegno-requester", default=Requester())  # noqa: B039 - immutable


class _CannotStart(Exception):
    """No process of this interpreter can be started."""


class _Turn:
    """A job that waits for a place, and then has one."""

    __slots__ = ("granted", "key", "weight")

    def __init__(self, key: str, weight: int) -> None:
        self.key = key
        self.weight = weight
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Lane:
    """Places for jobs, given to callers in turn: first in, first out only among jobs of the same caller. A job that
    needs more places than there are runs alone.
    """

    def __init__(self, places: int, limits: OffloadLimits, most: int | None = None) -> None:
        self._free = places
        self._most = max(1, places - 1 if most is None else most)
        """Places of one caller, so that others find one; a single job may take more."""
        self._limits = limits
        self._waiting: OrderedDict[str, deque[_Turn]] = OrderedDict()
        self._running: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Jobs that wait for a place."""
        return sum(map(len, self._waiting.values()))

    def with_waiting(self, least: int) -> list[str]:
        """Return the callers with at least this many waiting jobs."""
        return [key for key, queue in self._waiting.items() if len(queue) >= least]

    @contextlib.asynccontextmanager
    async def place(self, key: str) -> AsyncIterator[None]:
        await self.enter(key)
        try:
            yield
        finally:
            self.leave(key)

    async def enter(self, key: str, weight: int = 1) -> None:
        """Wait until the job has its places. Raises Overloaded if that takes too long."""
        queue = self._waiting.setdefault(key, deque())
        if len(queue) >= self._limits.queue:
            raise Overloaded(
                f"{len(queue)} jobs of this caller wait already; send fewer at a time, and try again later"
            )
        turn = _Turn(key, weight)
        queue.append(turn)
        self._grant()
        try:
            async with asyncio.timeout(self._limits.wait_seconds):
                await turn.granted
        except TimeoutError:
            self._withdraw(turn)
            raise Overloaded(
                f"the job did not begin within {self._limits.wait_seconds or 0:g} s; nothing was done, try again later"
            ) from None
        except asyncio.CancelledError:
            self._withdraw(turn)
            raise

    def _withdraw(self, turn: _Turn) -> None:
        if turn.granted.done() and not turn.granted.cancelled():
            self.leave(turn.key, turn.weight)
        else:
            turn.granted.cancel()
            self._forget(turn)

    def _forget(self, turn: _Turn) -> None:
        queue = self._waiting.get(turn.key)
        if queue is not None:
            with contextlib.suppress(ValueError):
                queue.remove(turn)
            if not queue:
                del self._waiting[turn.key]

    def leave(self, key: str, weight: int = 1) -> None:
        self._free += weight
        self._running[key] -= weight
        if not self._running[key]:
            del self._running[key]
        self._grant()

    def _grant(self) -> None:
        """Give free places to the callers in turn; a served caller moves to the end."""
        for key in list(self._waiting):
            queue = self._waiting[key]
            while queue and queue[0].granted.done():  # cancelled, and not withdrawn yet
                queue.popleft()
            if not queue:
                del self._waiting[key]
                continue
            weight, own = queue[0].weight, self._running.get(key, 0)
            if own and own + weight > self._most:
                continue
            if weight > self._free and self._running:
                return  # later jobs must not overtake it, or it would wait for ever
            turn = queue.popleft()
            self._waiting.move_to_end(key)
            if not queue:
                del self._waiting[key]
            self._free -= weight
            self._running[key] = own + weight
            turn.granted.set_result(None)


class ChildProcess:
    """A child process, which runs one job at a time."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self.ends: asyncio.TimerHandle | None = None

    @classmethod
    async def start(cls, limits: OffloadLimits, module: str = MODULE) -> ChildProcess:
        if not sys.executable:
            raise FileNotFoundError("the interpreter is embedded in another program")
        environment = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            str(limits.memory_bytes),
            str(max(1, round(limits.seconds) + 5)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**environment, "PYTHONSAFEPATH": "1"},
            start_new_session=True,  # interrupts from the terminal are handled by the parent
        )
        return cls(child)

    async def ready(self) -> None:
        """Wait until the child has loaded its modules, which does not count as time of a job."""
        assert self._child.stdout is not None  # noqa: S101 - a pipe, see `start`
        await self._child.stdout.readexactly(1)

    async def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        await self.send(msgspec.msgpack.encode((name, arguments)))
        return msgspec.msgpack.decode(await self.receive())

    async def send(self, message: bytes) -> None:
        assert self._child.stdin is not None  # noqa: S101 - a pipe, see `start`
        self._child.stdin.write(LENGTH.pack(len(message)))
        self._child.stdin.write(message)
        await self._child.stdin.drain()

    async def receive(self, reserve: Callable[[int], Awaitable[None]] | None = None) -> bytes | bytearray:
        """Receive a message. ``reserve`` is called with its length before a large one is read."""
        assert self._child.stdout is not None  # noqa: S101 - a pipe, see `start`
        (length,) = LENGTH.unpack(await self._child.stdout.readexactly(LENGTH.size))
        if length <= PIECE:
            return await self._child.stdout.readexactly(length)
        if reserve is not None:
            await reserve(length)
        return await self._receive_large(self._child.stdout, length)

    async def _receive_large(self, stream: asyncio.StreamReader, length: int) -> bytearray:
        """Read piece by piece into the buffer: the stream would hold the whole message, and then a copy."""
        message, filled = bytearray(length), 0
        while filled < length:
            piece = await stream.read(min(length - filled, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(b"", length)
            message[filled : filled + len(piece)] = piece
            filled += len(piece)
        return message

    def processor_seconds(self) -> float | None:
        """Return the CPU seconds used so far; None if the system does not report them."""
        try:
            fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[USER_TIME]) + int(fields[SYSTEM_TIME])) / os.sysconf("SC_CLK_TCK")

    def waiting_seconds(self) -> float:
        """Return the seconds for which it could have run and had to wait for a processor; 0 if the system does not
        report them.
        """
        try:
            return int(Path(f"/proc/{self._child.pid}/schedstat").read_text().split()[1]) / 1e9
        except OSError:
            return 0.0

    @property
    def is_alive(self) -> bool:
        return self._child.returncode is None

    def kill(self) -> None:
        if self.ends is not None:
            self.ends.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(signal.SIGKILL)

    async def wait_ended(self) -> None:
        """Wait for the end and close the pipes: the remaining output of a killed process is not read."""
        await self._child.wait()
        self._child._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way


def _in_thread(name: str, arguments: tuple[Any, ...]) -> Any:
    """Run a job of `dalsegno.job_process` in this process, with values encoded as between processes."""
    module = importlib.import_module(MODULE)
    given = msgspec.msgpack.decode(msgspec.msgpack.encode((name, arguments)))
    return msgspec.msgpack.decode(msgspec.msgpack.encode(module.answer(*given)))


class Offload:
    """The jobs of one client. Nothing is started before the first job."""

    def __init__(self, limits: OffloadLimits | None = None) -> None:
        self.configure(limits or OffloadLimits())
        self._idle: list[ChildProcess] = []
        self._all: set[ChildProcess] = set()
        self._ends: set[asyncio.Task[None]] = set()
        """Waits for the end of killed children."""
        self._thread: ThreadPoolExecutor | None = None
        self._loader: ThreadPoolExecutor | None = None
        self._starts_processes: bool | None = None
        """Whether this interpreter can be started as a process; None while unknown."""

    def configure(self, limits: OffloadLimits) -> None:
        """Set the limits, before the first job."""
        self.limits = limits
        without_deadline = replace(limits, queue=sys.maxsize, wait_seconds=None)
        self._lanes = {
            SMALL_LANE: Lane(1, limits),
            LARGE_LANE: Lane(limits.processes, limits),
            LOAD_LANE: Lane(1, without_deadline),
        }

    @property
    def processes(self) -> int:
        """Number of living children."""
        return sum(each.is_alive for each in self._all)

    # -- jobs -------------------------------------------------------------------------------------------------

    async def small(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a pure function in a thread. Its time must be bounded by the size of its arguments."""

        async def run() -> T:
            async with self._lanes[SMALL_LANE].place(requester.get().key):
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, "dalsegno-checks")
                return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

        return await self._while_wanted(run())

    async def large(self, name: str, *arguments: Any) -> Any:
        """Run a function of `dalsegno.job_process` in a process. Return ``{"value": …}`` or ``{"raised": …}``."""

        async def run() -> Any:
            async with self._lanes[LARGE_LANE].place(requester.get().key):
                return await self._in_process(name, arguments)

        if self._starts_processes is not False:
            try:
                return await self._while_wanted(run())
            except _CannotStart as error:
                self._starts_processes = False
                logger.warning("checks run in a thread, because no process can be started: %s", error)
        return await self.small(_in_thread, name, arguments)

    async def load(self, work: Callable[..., T], *arguments: Any) -> T:
        """Build objects from stored data, which were checked when they were stored, in a separate thread. Callers
        take turns, without a time limit.
        """
        async with self._lanes[LOAD_LANE].place(requester.get().key):
            if self._loader is None:
                self._loader = ThreadPoolExecutor(1, "dalsegno-load")
            try:
                job = asyncio.get_running_loop().run_in_executor(self._loader, work, *arguments)
            except NotImplementedError:  # a loop without threads
                return work(*arguments)
            return await job

    async def _while_wanted(self, work: Coroutine[Any, Any, T]) -> T:
        """Cancel the job when its caller has gone."""
        gone = requester.get().gone
        if gone is None:
            return await work
        job = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(gone())
        try:
            await asyncio.wait({job, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise TooSlow("the caller has disconnected, and its job was cancelled")
            return job.result()
        finally:
            for each in (job, watch):
                if not each.done():
                    each.cancel()
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        await each

    async def _in_process(self, name: str, arguments: tuple[Any, ...]) -> Any:
        process = await self._take()
        is_kept = False
        try:
            async with asyncio.timeout(self.limits.seconds):
                found = await process.call(name, arguments)
            self._keep(process)
            is_kept = True
            return found
        except TimeoutError:
            raise LimitExceeded(
                f"the work on this takes more than {self.limits.seconds:g} s (limit 'check_seconds'); make it smaller"
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise LimitExceeded(
                f"the work on this takes more than {self.limits.memory_bytes:,} bytes of memory (limit"
                " 'check_memory'), or ended its process; make it smaller"
            ) from None
        finally:
            if not is_kept:
                self._end(process)

    async def _take(self) -> ChildProcess:
        while self._idle:
            process = self._idle.pop()
            if process.ends is not None:
                process.ends.cancel()
                process.ends = None
            if process.is_alive:
                return process
            self._end(process)
        return await self._new()

    async def _new(self) -> ChildProcess:
        """Start a process. Raises _CannotStart if none has ever been ready: then the interpreter is not a program of
        its own.
        """
        process: ChildProcess | None = None
        try:
            process = await ChildProcess.start(self.limits)
            self._all.add(process)
            async with asyncio.timeout(START_SECONDS):
                await process.ready()
        except (asyncio.IncompleteReadError, TimeoutError, OSError) as error:
            self._end(process)
            if self._starts_processes is None:
                raise _CannotStart(f"{sys.executable or 'no interpreter'}: {error!r}") from error
            raise InternalError("a process for checks cannot be started") from error
        except BaseException:
            self._end(process)
            raise
        self._starts_processes = True
        return process

    def _keep(self, process: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        process.ends = loop.call_later(self.limits.idle_seconds, self._retire, process)
        self._idle.append(process)

    def _retire(self, process: ChildProcess) -> None:
        if process in self._idle:
            self._idle.remove(process)
            self._end(process)

    def _end(self, process: ChildProcess | None) -> None:
        if process is None:
            return
        process.kill()
        self._all.discard(process)
        end = asyncio.get_running_loop().create_task(process.wait_ended())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    async def close(self) -> None:
        processes, self._idle = list(self._all), []
        for process in processes:
            self._end(process)
        if self._ends:
            await asyncio.wait(self._ends, timeout=5)
        for threads in (self._thread, self._loader):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        self._thread = self._loader = None


INLINE_BYTES: Final = 65_536


async def payload_problems(
    schema: Mapping[str, Any], raw: bytes, limits: EngineLimits, offload: Offload
) -> list[tuple[str, str]]:
    """Return pointer and message of each reason why a value does not match the schema."""
    from dalsegno.graph.json_schema.shape import found_within  # noqa: PLC0415 - only workflows with a schema need it

    if len(raw) <= INLINE_BYTES:
        steps = min(LIGHT_SCHEMA_STEPS, limits.schema_steps)
        found = found_within(schema, decode_value(raw), steps, is_light=True)
        if found is not None:
            return [(each.pointer, each.message) for each in found]
    reply = await offload.large("fit", msgspec.json.encode(schema), raw, limits.schema_steps)
    if "value" not in reply:
        raise LimitExceeded(
            f"the value cannot be checked against its schema: {reply['raised'].get('message', '')}"
        )
    return [(pointer, message) for pointer, message in reply["value"]]


async def output_problems(
    schema: Mapping[str, Any], output: Any, limits: EngineLimits, offload: Offload
) -> list[tuple[str, str]]:
    """Return the same for an output, decoded or not."""
    raw = bytes(output) if isinstance(output, msgspec.Raw) else encode_value(output, "the output")
    return await payload_problems(schema, raw, limits, offload)


async def digest(raw: bytes | msgspec.Raw, offload: Offload) -> str:
    """Return the digest of a value, independent of the order of its keys."""
    if len(given := bytes(raw)) <= INLINE_BYTES:
        return value_digest(given)
    reply = await offload.large("digest", given)
    if "value" not in reply:
        raise LimitExceeded(f"the value cannot be compared: {reply['raised'].get('message', '')}")
    return str(reply["value"])
