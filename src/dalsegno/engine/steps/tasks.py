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

from msgspec import Raw
from msgspec.structs import replace

from dalsegno.core.values import decode_value
from dalsegno.engine.remote.declarations import Declaration, schema_of_output
from dalsegno.engine.steps.turn_threads import TurnThreads
from dalsegno.engine.worker.capabilities import RunsInProgram
from dalsegno.errors import InvalidInput, NotFound
from dalsegno.lang.python import DurableRemoteTask
from dalsegno.lang.python.values.annotations import hints_of
from dalsegno.lang.python.values.typed_values import from_plain
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.limits import Concurrency, as_option
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, module_of
from dalsegno.ports.node import NodeContext, NodeError
from dalsegno.ports.shares import FairSlots

logger = logging.getLogger("dalsegno.tasks")

UNCHECKED = (Any, object)
"""Annotations under which an input is not checked."""
TURN_THREADS = 8
"""Threads for turns of Python workflows, separate from those of tasks, which may run for long."""
REPLACED = 4
"""Total number of abandoned threads that are replaced, as a multiple of the number of threads."""
CONTEXT_NAMES = frozenset(("ctx", "context"))
NO_OPTIONS: Mapping[str, Any] = {}
OWN_QUEUES = (DEFAULT_QUEUE, SYSTEM_QUEUE)
"""Queues that every worker of the application serves by default."""
LookForTask: TypeAlias = Callable[[str, NodeContext], Awaitable[None]]
"""Raises if another worker can run the task."""


@dataclass(frozen=True, slots=True)
class Task:
    """A registered function and its options."""

    name: str
    function: Callable[..., Any]
    retry: RetryPolicy = NO_RETRY
    timeout: float | None = None
    queue: str | None = None
    concurrency: Concurrency | None = None
    """Limit on concurrent runs, or on starts per period; shared by all tasks with its key."""
    heartbeat: float | None = None
    """Seconds within which a run must call ``ctx.heartbeat()``; otherwise it fails."""
    is_async: bool = False
    parameters: tuple[str, ...] = ()
    context_parameter: str | None = None
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Annotations of the parameters whose inputs are checked."""
    defaults: frozenset[str] = frozenset()
    """Optional parameters."""
    signature: inspect.Signature | None = None
    """Signature of a function with parameters that cannot be passed by name: ``*rest``, ``**named``, and those before
    ``/``.
    """
    is_remote: bool = False
    """Whether remote programs run it: those that claim its queue, not workers of the application."""
    returns: Any = Any
    """Type of the output of a remote task."""
    docs: str = ""
    """Description of a remote task, for the authors of its program."""


class TaskTimedOut(NodeError):
    """A run that exceeded its task's own timeout. Graphs identify it by its code, programs as `TimeoutError`."""

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


def make_remote_task(durable: DurableRemoteTask[..., Any], queue: str, docs: str, **options: Any) -> Task:
    """Return a remote task. Raises InvalidInput if workers of the application serve the queue."""
    if not queue or queue in OWN_QUEUES or module_of(queue) is not None:
        raise InvalidInput(
            f"remote task '{durable.name}': workers of this application serve the queue '{queue}'; give it a queue "
            "that only the programs claim which run the task"
        )
    return Task(
        durable.name,
        durable.function,
        queue=queue,
        is_remote=True,
        returns=durable.returns,
        docs=docs,
        **options,
    )


def fitting_output(task: Task, output: Any) -> Any:
    """Return the output of a remote task unchanged. Raises NodeError if it does not match the return type."""
    plain = decode_value(output) if isinstance(output, Raw) else output
    try:
        from_plain(plain, task.returns, f"the output of remote task '{task.name}'")
    except InvalidInput as error:
        raise NodeError(str(error), code="BAD_TASK_OUTPUT", retryable=False) from None
    return output


def _input_hints(function: Callable[..., Any], parameters: list[inspect.Parameter]) -> dict[str, Any]:
    """Return the annotations by which inputs are checked. A default of None makes the annotation optional: ``x: int =
    None`` is common.
    """
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
    """Return True for a parameter annotated with TaskContext, or for an unannotated one called ``ctx`` or
    ``context``.
    """
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
        self._turns: TurnThreads | None = None
        self._lock = threading.Lock()
        self.abandoned = 0
        self._left: dict[str, int] = {}
        """Abandoned threads that still run and were replaced, by workflow."""
        self.workflow_share = 1.0
        """Share of the threads that one workflow may use."""
        self.workflow_of: Callable[[], str] = lambda: ""
        """Returns the workflow of the current asyncio task."""
        self._thread_slots = _SlotsOfLoop(self, threads)
        self.look_elsewhere: LookForTask | None = None
        """Called for tasks that are not registered here."""

    def register(self, task: Task) -> None:
        if task.name in self._tasks:
            raise InvalidInput(
                f"a task named '{task.name}' is registered already; give one of them another name"
            )
        self._refuse_mixed(task)
        self._tasks[task.name] = task
        asked = {
            "queue": task.queue,
            "concurrency": as_option(task.concurrency) if task.concurrency else None,
        }
        self._options[task.name] = {name: value for name, value in asked.items() if value is not None}

    def _refuse_mixed(self, task: Task) -> None:
        """Refuse a queue with both local and remote tasks: a claim returns tokens of both kinds."""
        if task.queue is None:
            return
        for other in self._tasks.values():
            if other.queue == task.queue and other.is_remote != task.is_remote:
                remote, own = (task, other) if task.is_remote else (other, task)
                raise InvalidInput(
                    f"the queue '{task.queue}' is that of the remote task '{remote.name}', so no worker of this "
                    f"application serves it; give the task '{own.name}' another queue"
                )

    def find(self, name: str) -> Task | None:
        return self._tasks.get(name)

    def runs(self, name: str) -> bool:
        """Return True for a task whose function this process calls."""
        task = self._tasks.get(name)
        return task is not None and not task.is_remote

    def remote(self) -> list[Task]:
        """Return the remote tasks, by name."""
        return [self._tasks[name] for name in sorted(self._tasks) if self._tasks[name].is_remote]

    def declarations(self) -> list[Declaration]:
        """Return the remote tasks as other processes see them."""
        return [
            Declaration(
                task.name,
                task.queue or "",
                task.retry,
                task.timeout,
                schema_of_output(task.returns),
                task.docs,
            )
            for task in self.remote()
        ]

    def limit_of(self, name: str) -> dict[str, Any] | None:
        """Return the task's ``concurrency``, as an option of a call."""
        found = self._tasks.get(name)
        if found is None or found.concurrency is None:
            return None
        return as_option(found.concurrency)

    def options_of(self, name: str) -> Mapping[str, Any]:
        """Return the options that a task declares, as options of a call."""
        return self._options.get(name, NO_OPTIONS)

    def names(self) -> list[str]:
        return sorted(self._tasks)

    async def run(self, name: str, payload: Any, ctx: NodeContext) -> Any:
        task = self._tasks.get(name)
        if task is None:
            raise await self._missing(name, ctx)
        if task.is_remote:
            raise RunsInProgram(name, task.queue or "")
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
        """Return the error for a missing task. Raises if another worker has it."""
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
        """Run with a timeout, a heartbeat limit, or both."""
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
        """Run in one of the threads for blocking functions, of which no workflow uses more than its share. A thread
        cannot be stopped: if its run is cancelled it is abandoned and replaced. It sees that in ``ctx.cancelled``.
        """
        slots, workflow = self._thread_slots.of_loop(), self.workflow_of()
        await slots.acquire(workflow)
        future = self._threads_pool().submit(copy_context().run, work)
        is_left = False
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            is_left = not future.cancel() and not future.done()
            if is_left:
                _mark_cancelled(ctx)
                self._abandon(future, slots, workflow)
            raise
        finally:
            if not is_left:
                slots.release(workflow)

    def _abandon(self, future: Future[Any], slots: FairSlots, workflow: str) -> None:
        """Abandon a thread. It is replaced, up to the pool's size per workflow and `REPLACED` times that in total.
        Beyond that its slot stays taken until it ends, and other runs wait.
        """
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
            "a run of workflow '%s' was abandoned and keeps its thread until it ends: %d such threads were replaced "
            "already; let blocking tasks check ctx.cancelled, or set timeouts in their calls",
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
        """Run a turn of a Python workflow in a thread, while the event loop renews leases and commits. A
        cancelled turn keeps its thread until it ends.
        """
        if self._turns is None:
            self._turns = TurnThreads(TURN_THREADS, self.workflow_share)
        await self._turns.run(self.workflow_of(), work)

    def _threads_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="dalsegno-task")
        return self._pool

    async def close(self) -> None:
        if self._turns is not None:
            self._turns.close()
            self._turns = None
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class _SlotsOfLoop:
    """The slots of a thread pool. Tasks outlive engines, and each engine has its own event loop."""

    def __init__(self, tasks: Tasks, capacity: int) -> None:
        self._tasks = tasks
        self._capacity = capacity
        self._slots: FairSlots | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def of_loop(self) -> FairSlots:
        loop = asyncio.get_running_loop()
        if self._slots is None or self._loop is not loop:
            self._slots, self._loop = FairSlots(self._capacity, self._tasks.workflow_share), loop
        return self._slots


def _release_after(future: Future[Any], slots: FairSlots, workflow: str) -> None:
    """Release a slot when the thread ends, which may be after its event loop."""
    loop = asyncio.get_running_loop()

    def release(_: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(slots.release, workflow)

    future.add_done_callback(release)


def _mark_cancelled(ctx: NodeContext) -> None:
    """Set a plain attribute, which is safe to read from any thread."""
    if hasattr(ctx, "cancelled"):
        ctx.cancelled = True  # type: ignore[misc]


def _arguments(task: Task, payload: Any, ctx: NodeContext) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call. A single parameter takes the whole input, several take the fields of an object
    by name, and a function without parameters takes nothing.
    """
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
        # By name if there is a context, which may precede it.
        return ([payload], {}) if not keywords else ([], {task.parameters[0]: payload, **keywords})
    if not isinstance(payload, dict):
        raise _no_object(task)
    return [], {**payload, **keywords}


def _by_signature(
    task: Task, signature: inspect.Signature, payload: Any, keywords: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments by signature: a single ``*rest`` takes a list, ``**named`` takes the fields that match no
    parameter.
    """
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
    """Convert the input to the annotated types: dataclasses, models, dates and similar types are built, plain
    values are checked. Raises InvalidInput, which is not retried.
    """
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
    """An exception that must not pass through a future: it would end the event loop, or close coroutines on its
    way.
    """

    error: BaseException


async def _contained(
    run: Callable[..., Awaitable[Any]],
    task: Task,
    arguments: list[Any],
    keywords: dict[str, Any],
    ctx: NodeContext,
) -> Any | _Raised:
    """Run in a separate asyncio task and contain these two exceptions, which would otherwise end the event loop."""
    try:
        return await run(task, arguments, keywords, ctx)
    except (SystemExit, KeyboardInterrupt) as error:
        return _Raised(error)


def _called(task: Task, arguments: list[Any], keywords: dict[str, Any]) -> Any | _Raised:
    """Call a function in a thread."""
    try:
        return task.function(*arguments, **keywords)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        return _Raised(error)


def _left(task: Task, error: SystemExit) -> NodeError:
    """Return the error for ``sys.exit``, which ends the task and not the worker."""
    return NodeError(f"task '{task.name}' called exit({error.code!r})", code="SystemExit")


def _gave_up(task: Task) -> NodeError:
    """Return the error for a CancelledError without a cancellation."""
    return NodeError(
        f"task '{task.name}' raised CancelledError without being cancelled", code="CancelledError"
    )


def _silent(task: Task) -> NodeError:
    return NodeError(
        f"task '{task.name}' gave no heartbeat for {task.heartbeat:g} s", code="HEARTBEAT_TIMEOUT"
    )
