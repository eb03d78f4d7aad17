"""Python functions as tasks: async ones on the event loop, ordinary ones in threads."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional, TypeAlias

from msgspec.structs import replace

from dalsegno.errors import InvalidInput, NotFound
from dalsegno.lang.python.annotations import hints_of
from dalsegno.lang.python.typed import from_plain
from dalsegno.model.limits import Concurrency, as_option
from dalsegno.model.retry import NO_RETRY, RetryPolicy
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.ports.node import NodeContext, NodeError
from dalsegno.ports.shares import FairSlots

logger = logging.getLogger("dalsegno.tasks")

UNCHECKED = (Any, object)
"""Annotations under which an input is taken as it comes."""
TURN_THREADS = 8
"""For turns of Python workflows: apart from tasks, which may keep their threads for long."""
REPLACED = 4
"""Times the number of threads that may be replaced in all while those that were given up still run."""
CONTEXT_NAMES = frozenset(("ctx", "context"))
NO_OPTIONS: Mapping[str, Any] = {}
LookForTask: TypeAlias = Callable[[str, NodeContext], Awaitable[None]]
"""Raises where another worker can run it."""


@dataclass(frozen=True, slots=True)
class Task:
    """A registered function and how it is to be run."""

    name: str
    function: Callable[..., Any]
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    queue: str | None = None
    concurrency: Concurrency | None = None
    """How many run at once, or start in a period; shared by all tasks of its key."""
    heartbeat: float | None = None
    """Seconds within which a run must call ``ctx.heartbeat()``; a run that is silent for longer has failed."""
    is_async: bool = False
    parameters: tuple[str, ...] = ()
    context_parameter: str | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Annotations of those parameters that have one which says something."""
    defaults: frozenset[str] = frozenset()
    """Parameters that need not be given."""
    signature: inspect.Signature | None = None
    """Of a function with parameters that cannot be given by name: ``*rest``, ``**named``, and those before ``/``."""


class TaskTimedOut(NodeError):
    """A run that took longer than its task's own timeout. Graphs know it by its code, programs as `TimeoutError`."""

    def __init__(self, task: Task) -> None:
        super().__init__(
            f"task '{task.name}' did not end within its timeout of {task.timeout:g} s", code="TIMEOUT"
        )
        self.failure = replace(self.failure, type="TimeoutError")


def make_task(function: Callable[..., Any], **options: Any) -> Task:
    parameters = list(inspect.signature(function).parameters.values())
    context = next((each.name for each in parameters if _is_context(each)), None)
    rest = tuple(each.name for each in parameters if each.name != context)
    name = options.pop("name", None) or function.__name__
    by_name = all(each.kind in _BY_NAME for each in parameters)
    return Task(
        name,
        function,
        is_async=inspect.iscoroutinefunction(function),
        parameters=rest,
        context_parameter=context,
        hints=_input_hints(function, parameters),
        defaults=frozenset(each.name for each in parameters if each.default is not inspect.Parameter.empty),
        signature=None if by_name else inspect.signature(function),
        **options,
    )


def _input_hints(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> dict[str, Any]:
    """What inputs are checked by. A default of None is an annotation too: people write ``x: int = None``."""
    hints = hints_of(function)
    found: dict[str, Any] = {}
    for each in parameters:
        hint = hints.get(each.name, Any)
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            found[each.name] = list[hint]  # type: ignore[valid-type]
            continue
        if _is_context(each) or hint in UNCHECKED:
            continue
        found[each.name] = Optional[hint] if each.default is None else hint  # noqa: UP045 - a hint may be no class
    return found


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _is_context(parameter: inspect.Parameter) -> bool:
    """A parameter annotated with TaskContext, or a first one called ``ctx``."""
    annotation = parameter.annotation
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return named.rpartition(".")[2] in ("TaskContext", "NodeContext") or (
        annotation is inspect.Parameter.empty and parameter.name in CONTEXT_NAMES
    )


class Tasks:
    """The registry that ``task`` nodes run from. ``abandoned`` counts threads that outlived their timeout."""

    def __init__(self, threads: int = 32) -> None:
        self._tasks: dict[str, Task] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._turns: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self.abandoned = 0
        self._left: dict[str, int] = {}
        """Abandoned threads that still run and were replaced, by workflow."""
        self.workflow_share = 1.0
        """How much of the threads one workflow may hold."""
        self.workflow_of: Callable[[], str] = lambda: ""
        """Whose work the current asyncio task does."""
        self._thread_slots = _SlotsOfLoop(self, threads)
        self._turn_slots = _SlotsOfLoop(self, TURN_THREADS)
        self.look_elsewhere: LookForTask | None = None
        """Asked about tasks that are not registered here."""

    def register(self, task: Task) -> None:
        if task.name in self._tasks:
            raise InvalidInput(
                f"a task named '{task.name}' is registered already; give one of them another name"
            )
        self._tasks[task.name] = task
        asked = {
            "queue": task.queue,
            "concurrency": as_option(task.concurrency) if task.concurrency else None,
        }
        self._options[task.name] = {name: value for name, value in asked.items() if value is not None}

    def find(self, name: str) -> Task | None:
        return self._tasks.get(name)

    def limit_of(self, name: str) -> dict[str, Any] | None:
        """Its ``concurrency``, as an option of a call."""
        found = self._tasks.get(name)
        if found is None or found.concurrency is None:
            return None
        return as_option(found.concurrency)

    def options_of(self, name: str) -> Mapping[str, Any]:
        """What it asks for, as options of a call."""
        return self._options.get(name, NO_OPTIONS)

    def names(self) -> list[str]:
        return sorted(self._tasks)

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        task = self._tasks.get(name)
        if task is None:
            raise await self._missing(name, ctx)
        use_retry = getattr(ctx, "use_retry", None)
        if use_retry is not None:
            use_retry(task.retry)
        arguments, keywords = _arguments(task, payload, ctx)
        try:
            if task.timeout is not None or task.heartbeat is not None:
                return await self._watched(task, arguments, keywords, ctx)
            if task.is_async:
                return await task.function(*arguments, **keywords)
            return await self._in_thread(task, arguments, keywords, ctx)
        except SystemExit as error:
            raise _left(task, error) from None
        except asyncio.CancelledError:
            run = asyncio.current_task()
            if run is not None and run.cancelling():
                raise
            raise _gave_up(task) from None

    async def _missing(self, name: str, ctx: NodeContext) -> NotFound:
        """Unless another worker has it."""
        where = "in this process"
        if self.look_elsewhere is not None:
            await self.look_elsewhere(name, ctx)
            where += ", and no living worker of its queue offers it"
        known = self.names()
        return NotFound(
            f"no task is registered under that name {where} (registered here: {listed(known) or 'none'}); register it,"
            f" or give the task a queue that only workers with it serve{did_you_mean(name, known)}"
        )

    async def _watched(
        self, task: Task, arguments: list[Any], keywords: dict[str, Any], ctx: NodeContext
    ) -> Any:
        """Runs under a time limit, a heartbeat, or both."""
        run = self._awaited if task.is_async else self._in_thread
        work = asyncio.ensure_future(_contained(run, task, arguments, keywords, ctx))
        limit = asyncio.timeout(task.timeout)
        try:
            async with limit:
                return await self._until_done(task, work, ctx)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TaskTimedOut(task) from None
        finally:
            if not work.done():
                work.cancel()

    async def _until_done(self, task: Task, work: asyncio.Future[Any | _Raised], ctx: NodeContext) -> Any:
        beats = 0
        while True:
            done, _ = await asyncio.wait([work], timeout=task.heartbeat)
            if done:
                result = work.result()
                if isinstance(result, _Raised):
                    raise result.error
                return result
            seen = getattr(ctx, "beats", 0)
            if seen == beats:
                raise _silent(task)
            beats = seen

    async def _awaited(
        self,
        task: Task,
        arguments: list[Any],
        keywords: dict[str, Any],
        ctx: NodeContext,
    ) -> Any:
        return await task.function(*arguments, **keywords)

    async def _in_thread(
        self, task: Task, arguments: list[Any], keywords: dict[str, Any], ctx: NodeContext
    ) -> Any:
        returned = await self.run_blocking(partial(_called, task, arguments, keywords), ctx)
        if isinstance(returned, _Raised):
            raise returned.error
        return returned

    async def run_blocking(self, work: Callable[[], Any], ctx: NodeContext) -> Any:
        """In one of the threads for blocking functions, of which no workflow holds more than its share. A thread cannot
        be stopped: one whose run was given up is abandoned, and its place filled. ``ctx.cancelled`` tells it."""
        slots, workflow = self._thread_slots.here(), self.workflow_of()
        await slots.acquire(workflow)
        future = self._threads_pool().submit(copy_context().run, work)
        is_left = False
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            is_left = not future.cancel() and not future.done()
            if is_left:
                _tell_cancelled(ctx)
                self._abandon(future, slots, workflow)
            raise
        finally:
            if not is_left:
                slots.release(workflow)

    def _abandon(self, future: Future[Any], slots: FairSlots, workflow: str) -> None:
        """Its thread is replaced, up to as many as the pool has for one workflow and `REPLACED` times as many for all
        together. Beyond that its place stays taken until it ends, and other runs wait for one."""
        self.abandoned += 1
        with self._lock:
            left = self._left.get(workflow, 0)
            has_room = left < self._threads and sum(self._left.values()) < REPLACED * self._threads
            pool = self._pool if has_room else None
            if pool is not None:
                self._left[workflow] = left + 1
                pool._max_workers += 1  # noqa: SLF001 - the pool has no other way to replace a lost thread
        if pool is not None:
            slots.release(workflow)
            future.add_done_callback(lambda _: self._give_back(workflow))
            return
        logger.warning(
            "a run of workflow '%s' was given up and keeps its thread until it ends: %d such threads were replaced "
            "already; let blocking tasks look at ctx.cancelled, or give what they call a timeout",
            workflow,
            sum(self._left.values()),
        )
        _release_after(future, slots, workflow)

    def _give_back(self, workflow: str) -> None:
        with self._lock:
            left = self._left.pop(workflow, 1) - 1
            if left:
                self._left[workflow] = left
            if self._pool is not None:
                self._pool._max_workers -= 1  # noqa: SLF001 - see above

    async def call(self, work: Callable[[], None]) -> None:
        """Runs a turn of a Python workflow beside the event loop, which renews leases and commits meanwhile. A turn
        that was given up keeps its thread until it ends."""
        if self._turns is None:
            self._turns = ThreadPoolExecutor(TURN_THREADS, thread_name_prefix="dalsegno-turn")
        slots, workflow = self._turn_slots.here(), self.workflow_of()
        await slots.acquire(workflow)
        future = self._turns.submit(copy_context().run, work)
        try:
            await asyncio.wrap_future(future)
        finally:
            if future.done():
                slots.release(workflow)
            else:
                _release_after(future, slots, workflow)

    def _threads_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="dalsegno-task")
        return self._pool

    async def close(self) -> None:
        if self._turns is not None:
            self._turns.shutdown(wait=False, cancel_futures=True)
            self._turns = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class _SlotsOfLoop:
    """The slots of a pool of threads. Tasks outlive engines, and each has an event loop of its own."""

    def __init__(self, tasks: Tasks, capacity: int) -> None:
        self._tasks = tasks
        self._capacity = capacity
        self._slots: FairSlots | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> FairSlots:
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            self._slots, self._loop = FairSlots(self._capacity, self._tasks.workflow_share), loop
        return self._slots


def _release_after(future: Future[Any], slots: FairSlots, workflow: str) -> None:
    """When the thread ends, which may be after its event loop."""
    loop = asyncio.get_running_loop()

    def release(_: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(slots.release, workflow)

    future.add_done_callback(release)


def _tell_cancelled(ctx: NodeContext) -> None:
    """A plain attribute, safe to read from any thread."""
    if hasattr(ctx, "cancelled"):
        ctx.cancelled = True  # type: ignore[misc]


def _arguments(task: Task, payload: Any, ctx: NodeContext) -> tuple[list[Any], dict[str, Any]]:
    """One parameter takes the whole input; several take an object's fields by name; none takes nothing."""
    keywords: dict[str, Any] = {} if task.context_parameter is None else {task.context_parameter: ctx}
    if not task.parameters:
        return [], keywords
    if payload is None and task.defaults.issuperset(task.parameters):
        return [], keywords
    if task.signature is not None:
        return _by_signature(task, task.signature, payload, keywords)
    if task.hints:
        payload = _typed(task, payload)
    if len(task.parameters) == 1:
        # By name where there is a context, which may stand before it.
        return ([payload], {}) if not keywords else ([], {task.parameters[0]: payload, **keywords})
    if not isinstance(payload, dict):
        raise _no_object(task)
    return [], {**payload, **keywords}


def _by_signature(
    task: Task, signature: inspect.Signature, payload: Any, keywords: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """A single ``*rest`` takes a list, ``**named`` the fields that no parameter has the name of."""
    kinds = {name: signature.parameters[name].kind for name in task.parameters}
    named = next((name for name, kind in kinds.items() if kind is inspect.Parameter.VAR_KEYWORD), None)
    if len(kinds) == 1 and named is None:
        fields = {} if payload is None else {task.parameters[0]: payload}
    elif isinstance(payload, dict) or payload is None:
        fields = dict(payload or {})
    else:
        raise _no_object(task)
    known = {name: value for name, value in fields.items() if name in kinds and name != named}
    further = {name: value for name, value in fields.items() if name not in known}
    if further and named is None:
        raise NodeError(
            f"task '{task.name}' takes {', '.join(task.parameters)}, not '{next(iter(further))}'",
            code="BAD_TASK_INPUT",
            retryable=False,
        )
    arguments = {name: _fitting(task, name, value) for name, value in known.items()}
    if named is not None:
        arguments[named] = {name: _fitting(task, named, value) for name, value in further.items()}
    bound = inspect.BoundArguments(signature, {**arguments, **keywords})
    bound.apply_defaults()
    return list(bound.args), bound.kwargs


def _no_object(task: Task) -> NodeError:
    return NodeError(
        f"task '{task.name}' takes {', '.join(task.parameters)}; give its input as an object with these fields",
        code="BAD_TASK_INPUT",
        retryable=False,
    )


def _typed(task: Task, payload: Any) -> Any:
    """As the function's annotations ask for it: dataclasses, models, dates and the like are made of it, plain values
    are checked. Raises InvalidInput, which is not retried."""
    hints = task.hints
    if len(task.parameters) == 1:
        return _fitting(task, task.parameters[0], payload)
    if not isinstance(payload, dict):
        return payload
    return {name: _fitting(task, name, value) if name in hints else value for name, value in payload.items()}


def _fitting(task: Task, name: str, value: Any) -> Any:
    return from_plain(value, task.hints.get(name, Any), f"task '{task.name}': '{name}'")


@dataclass(frozen=True, slots=True)
class _Raised:
    """An exception that must not travel in a future: it would end the event loop, or close coroutines on its way."""

    error: BaseException


async def _contained(
    run: Callable[..., Awaitable[Any]],
    task: Task,
    arguments: list[Any],
    keywords: dict[str, Any],
    ctx: NodeContext,
) -> Any | _Raised:
    """In an asyncio task of its own, which lets these two pass to the event loop and end that."""
    try:
        return await run(task, arguments, keywords, ctx)
    except (SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)


def _called(task: Task, arguments: list[Any], keywords: dict[str, Any]) -> Any | _Raised:
    """In a thread."""
    try:
        return task.function(*arguments, **keywords)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return _Raised(error)


def _left(task: Task, error: SystemExit) -> NodeError:
    """``sys.exit`` ends the task, not the worker."""
    return NodeError(f"task '{task.name}' called exit({error.code!r})", code="SystemExit")


def _gave_up(task: Task) -> NodeError:
    """Nobody has cancelled it."""
    return NodeError(f"task '{task.name}' raised CancelledError by itself", code="CancelledError")


def _silent(task: Task) -> NodeError:
    return NodeError(
        f"task '{task.name}' gave no heartbeat for {task.heartbeat:g} s", code="HEARTBEAT_TIMEOUT"
    )
