"""The test kit: an application under test, on a memory store, with a clock that skips ahead and mocked tasks.

A test names a workflow by its deployed name, a file, a script's source text or a graph document.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import time
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar, overload

import msgspec

from dalsegno.admin.triggers import triggers_of
from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.operations.moves import Moved
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.event_loop_host import Host
from dalsegno.handle import Handle
from dalsegno.lang import compile as compile_script
from dalsegno.lang.python import Durable, DurableTask, DurableWorkflow
from dalsegno.model.definition import Definition, Version
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.kit.crashes import Crash
from dalsegno.testing.kit.mocking import (
    WORKFLOW,
    Call,
    Failure,
    KitTasks,
    KitTypes,
    Mock,
    SideEffect,
    fake_script,
)
from dalsegno.testing.kit.resumability import ResumabilityCheck, check_resumable, every_crash
from dalsegno.testing.kit.system import Duration, System, SystemParts

SCRIPTS = (".flow",)
GRAPHS = (".json", ".yaml", ".yml")
_NAME = re.compile(r"[\w.-]+(@[\w.-]+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """``document`` is None for a name."""

    name: str | None
    document: str | Mapping[str, Any] | None = None
    is_script: bool = False
    path: Path | None = None

    @property
    def named(self) -> str | None:
        """Return the name if this source is an already deployed workflow."""
        return self.name if self.document is None else None

    async def deploy(self, app: App, client: Client) -> Definition:
        if self.document is None:
            raise InvalidInput(f"{self.name!r} is a name; give a file, a source text or a document to deploy")
        if self.is_script:
            return await client.deploy_script(compile_script(str(self.document), self.name))
        definition, _ = await client.deploy(self.document, self.name, app.task_queue)
        return definition


def read_source(workflow: Document, name: str | None = None) -> Source:
    if isinstance(workflow, Mapping):
        return Source(name, workflow)
    if isinstance(workflow, Path) or workflow.endswith((*SCRIPTS, *GRAPHS)):
        return _read_file(Path(workflow), name)
    if _NAME.fullmatch(workflow):
        return Source(workflow)
    return Source(name or "script", workflow, is_script=True)


def _read_file(path: Path, name: str | None) -> Source:
    if path.suffix not in (*SCRIPTS, *GRAPHS):
        listed = ", ".join((*SCRIPTS, *GRAPHS))
        raise InvalidInput(f"{path}: a workflow's file ends with one of {listed}")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"the workflow {path} cannot be read: {error.strerror}") from error
    return Source(name or path.stem, text, path.suffix in SCRIPTS, path.resolve())


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Document: TypeAlias = str | Path | Mapping[str, Any]
"""The name of a deployed workflow, a file, a script's source, or a graph document."""
Workflow: TypeAlias = Document | DurableTask[..., Any] | DurableWorkflow[..., Any]
"""A function of the program, the name of a deployed workflow, a file, a script's source, or a graph document."""
Signals: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]

PATIENCE = 10.0


class TestKit:
    """Runs an application's workflows inside a test. Enter it with ``with`` or ``async with``.

    * Inside, the application itself is under test: its store is memory, its worker runs, and every call that the code
      under test makes on it happens here.
    * Time stands still while a step runs, and skips to the next timer while the test waits for a result. With
      ``skip=False`` only ``advance`` moves it.
    """

    __test__ = False  # keeps pytest from collecting the class

    def __init__(
        self,
        app: App | None = None,
        *,
        skip: bool = True,
        now: float | dt.datetime | None = None,
        patience: float = PATIENCE,
        crash_after: int | None = None,
        crash_before: int | None = None,
    ) -> None:
        """``now``: the initial time of the clock (default: the real time).

        ``patience``: real seconds until a wait fails.
        """
        self.app = app if app is not None else App("memory:")
        self.clock = FakeClock(_moment(now))
        self.task, self.workflow, self.node = self.app.task, self.app.workflow, self.app.node
        self._tasks = KitTasks(self.app.tasks)
        self._types = KitTypes(self.app.registry)
        self._stand_ins: dict[str, Source] = {}
        self._skip = skip
        self._patience = patience
        self._system: System | None = None
        self._host: Host | None = None
        self._visit = ExitStack()
        self._crashes = [Crash("after", crash_after)] if crash_after is not None else []
        self._crashes += [Crash("before", crash_before)] if crash_before is not None else []

    # -- coming and going -----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        host = Host(self._open)
        host.open_in_thread()
        self._begin(host)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        self._visit.close()
        if self._host is not None:
            self._host.close()
            self._leave(quietly=kind is not None)

    async def __aenter__(self) -> Self:
        host = Host(self._open)
        await host.open_here()
        self._begin(host)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        self._visit.close()
        if self._host is not None:
            await self._host.aclose()
            self._leave(quietly=kind is not None)

    def _leave(self, *, quietly: bool) -> None:
        """``quietly``: the test has failed already, and its own error must be reported."""
        __tracebackhide__ = True
        system, self._host, self._system = self._running, None, None
        if not quietly:
            system.raise_verdict()

    async def _open(self) -> Engine:
        self._system = System(
            self._system_parts(self._tasks), self.clock, skips=self._skip, patience=self._patience
        )
        for crash in self._crashes:
            self._system.plan.arm(crash)
        return await self._system.open()

    def _system_parts(self, tasks: KitTasks) -> SystemParts:
        app = self.app
        settings = dataclasses.replace(app.settings, missing_tasks="fail")  # there is no other worker
        return SystemParts(self._types, {**app.services(), "tasks": tasks}, settings, app.workflows)

    def _begin(self, host: Host) -> None:
        self._host = host
        self._visit.enter_context(self.app.guest_of(host))

    # -- what the test defines ------------------------------------------------------------------------------------

    def mock(
        self,
        task: str | DurableTask[..., Any],
        *,
        returns: Any = None,
        raises: Failure | None = None,
        side_effect: SideEffect | None = None,
    ) -> Mock:
        """Replace a task, registered or not, until the kit is left.

        ``side_effect``: a function that is called as the task would be, or a list of answers in which exceptions are
        raised.
        """
        name = task.name if isinstance(task, DurableTask) else task
        replaced = self.app.tasks.find(name)
        mock = Mock(name, replaced, returns=returns, raises=raises, side_effect=side_effect)
        self._tasks.mock(mock)
        return mock

    def mock_node(
        self,
        type: str,
        *,
        returns: Any = None,
        raises: Failure | None = None,
        side_effect: SideEffect | None = None,
    ) -> Mock:
        """Replace a node type, in graphs and in ``Node.run``; its calls are recorded with their parameters."""
        mock = Mock(f"node:{type}", None, returns=returns, raises=raises, side_effect=side_effect)
        self._types.mock(type, mock, self._tasks)
        return mock

    def mock_workflow(
        self,
        workflow: str | DurableWorkflow[..., Any],
        *,
        returns: Any = None,
        raises: Failure | None = None,
        side_effect: SideEffect | None = None,
    ) -> Mock:
        """Replace a workflow that others start as their child, deployed or not."""
        return self._call(self._mock_workflow(workflow, returns, raises, side_effect))

    async def amock_workflow(
        self,
        workflow: str | DurableWorkflow[..., Any],
        *,
        returns: Any = None,
        raises: Failure | None = None,
        side_effect: SideEffect | None = None,
    ) -> Mock:
        return await self._acall(self._mock_workflow(workflow, returns, raises, side_effect))

    def unmock(self, task: str | DurableTask[..., Any]) -> None:
        """Restore the task itself."""
        self._tasks.unmock(task.name if isinstance(task, DurableTask) else task)

    @property
    def calls(self) -> list[Call]:
        """Return every attempt of every task so far, mocked or not."""
        return self._tasks.calls

    def deploy(self, workflow: Document, name: str | None = None) -> Definition:
        """Deploy a script or graph: a file, a source text, or a document.

        Schedules of its nodes fire in the test's time.
        """
        return self._call(self._deploy_for_good(read_source(workflow, name)))

    async def adeploy(self, workflow: Document, name: str | None = None) -> Definition:
        return await self._acall(self._deploy_for_good(read_source(workflow, name)))

    # -- running --------------------------------------------------------------------------------------------------

    @overload
    def start(
        self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    def start(self, workflow: Document, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    def start(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        return self._call(self._start(workflow, args, fields))

    @overload
    async def astart(
        self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs
    ) -> Handle[R]: ...

    @overload
    async def astart(self, workflow: Document, /, *args: Any, **fields: Any) -> Handle[Any]: ...

    async def astart(self, workflow: Any, /, *args: Any, **fields: Any) -> Handle[Any]:
        return await self._acall(self._start(workflow, args, fields))

    @overload
    def run(self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs) -> R: ...

    @overload
    def run(self, workflow: Document, /, *args: Any, **fields: Any) -> Any: ...

    def run(self, workflow: Any, /, *args: Any, **fields: Any) -> Any:
        """Start a workflow and return its result, regardless of the virtual time it takes."""
        return self._call(self._run(workflow, args, fields))

    @overload
    async def arun(self, workflow: Durable[P, Awaitable[R]], /, *args: P.args, **fields: P.kwargs) -> R: ...

    @overload
    async def arun(self, workflow: Document, /, *args: Any, **fields: Any) -> Any: ...

    async def arun(self, workflow: Any, /, *args: Any, **fields: Any) -> Any:
        return await self._acall(self._run(workflow, args, fields))

    def retry(self, execution: Handle[R], *, from_start: bool = False, version: Version = None) -> Handle[R]:
        """Retry an execution that failed, as ``handle.retry`` does, and wait for everything that follows without time
        passing.
        """
        return self._call(self._retry(execution, from_start=from_start, version=version))

    async def aretry(
        self, execution: Handle[R], *, from_start: bool = False, version: Version = None
    ) -> Handle[R]:
        return await self._acall(self._retry(execution, from_start=from_start, version=version))

    def move(
        self, execution: Handle[Any] | str, version: Version = "latest", *, dry_run: bool = False
    ) -> Moved:
        """Let an execution that waits go on with another version of its workflow, or raise Conflict with the reasons.

        ``dry_run`` only checks.
        """
        return self._call(self._move(execution, version, dry_run=dry_run))

    async def amove(
        self, execution: Handle[Any] | str, version: Version = "latest", *, dry_run: bool = False
    ) -> Moved:
        return await self._acall(self._move(execution, version, dry_run=dry_run))

    def signal(self, execution: Handle[Any] | str, name: str, payload: Any = None) -> None:
        """Send a signal, and wait for everything that follows from it without time passing."""
        self._call(self._signal(execution, name, payload))

    async def asignal(self, execution: Handle[Any] | str, name: str, payload: Any = None) -> None:
        await self._acall(self._signal(execution, name, payload))

    def ask(
        self, execution: Handle[Any] | str, name: str, payload: Any = None, *, id: str | None = None
    ) -> Any:
        """Send a request and return the workflow's answer, regardless of the virtual time it takes."""
        return self._call(self._ask(execution, name, payload, id))

    async def aask(
        self, execution: Handle[Any] | str, name: str, payload: Any = None, *, id: str | None = None
    ) -> Any:
        return await self._acall(self._ask(execution, name, payload, id))

    def approvals(self, execution: Handle[Any] | str) -> list[Approval]:
        """Return the open approvals of an execution and its children, once the system is idle."""
        return self._call(self._approvals(execution))

    async def aapprovals(self, execution: Handle[Any] | str) -> list[Approval]:
        return await self._acall(self._approvals(execution))

    def decide(
        self,
        execution: Handle[Any] | str,
        decision: str,
        data: Any = None,
        *,
        node: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        index: int | Sequence[int] | None = None,
    ) -> None:
        """Answer an approval with ``approved`` or ``rejected``, and wait for everything that follows without time
        passing.

        ``node`` and ``index`` are required if the execution has several open approvals.
        """
        self._call(self._decide(execution, decision, data, node, by, comment, index))

    async def adecide(
        self,
        execution: Handle[Any] | str,
        decision: str,
        data: Any = None,
        *,
        node: str | None = None,
        by: str | None = None,
        comment: str | None = None,
        index: int | Sequence[int] | None = None,
    ) -> None:
        await self._acall(self._decide(execution, decision, data, node, by, comment, index))

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> dt.datetime:
        """Return the time of the clock, in UTC."""
        return dt.datetime.fromtimestamp(self.clock.now(), dt.UTC)

    def advance(self, duration: Duration) -> None:
        """Move the clock by seconds, ``"7d"`` or a timedelta; everything due on the way runs at its own time."""
        self._call(self._running.time.advance(duration))

    async def aadvance(self, duration: Duration) -> None:
        await self._acall(self._running.time.advance(duration))

    def idle(self) -> None:
        """Wait until everything that needs no time has happened."""
        self._call(self._running.time.until_idle())

    async def aidle(self) -> None:
        await self._acall(self._running.time.until_idle())

    # -- crashes --------------------------------------------------------------------------------------------------

    def crash(self, at: Crash | None = None) -> None:
        """Let the worker die now, or at a point that ``crashes`` returned; another one takes over."""
        self._call(self._crash(at))

    async def acrash(self, at: Crash | None = None) -> None:
        await self._acall(self._crash(at))

    def crash_after(self, commits: int) -> None:
        """Let the worker die after that many commits from now on."""
        self.crash(Crash("after", commits))

    def crash_before(self, commits: int) -> None:
        """Let the worker die with its step done and not committed: the step runs again."""
        self.crash(Crash("before", commits))

    @property
    def restarts(self) -> int:
        """Return how often a new worker took over."""
        return self._running.runs - 1

    def crashes(self, workflow: Workflow, /, *args: Any, signals: Signals = (), **fields: Any) -> list[Crash]:
        """Return every point at which a worker can die in a run of this workflow, found by a separate run."""
        return self._call(every_crash(self._trial(workflow, args, fields, signals)))

    async def acrashes(
        self, workflow: Workflow, /, *args: Any, signals: Signals = (), **fields: Any
    ) -> list[Crash]:
        return await self._acall(every_crash(self._trial(workflow, args, fields, signals)))

    def assert_resumable(
        self, workflow: Workflow, /, *args: Any, signals: Signals = (), **fields: Any
    ) -> None:
        """Check that the workflow gives the same result and task calls if its worker dies at any await.

        It runs once undisturbed, and once per await: there the worker dies, and a new one loads the stored state.
        ``signals`` are sent at the start.
        """
        self._call(check_resumable(self._trial(workflow, args, fields, signals)))

    async def aassert_resumable(
        self, workflow: Workflow, /, *args: Any, signals: Signals = (), **fields: Any
    ) -> None:
        await self._acall(check_resumable(self._trial(workflow, args, fields, signals)))

    # -- inside ---------------------------------------------------------------------------------------------------

    @property
    def _running(self) -> System:
        if self._system is None:
            raise UsageError("the test kit is not open; use it inside 'with TestKit(app) as kit:'")
        return self._system

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        result = self._opened(work).call(work)
        self._running.raise_verdict()
        return result

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        __tracebackhide__ = True
        result = await self._opened(work).acall(work)
        self._running.raise_verdict()
        return result

    def _opened(self, work: Coroutine[Any, Any, Any]) -> Host:
        if self._host is None:
            work.close()
            raise UsageError("the test kit is not open; use it inside 'with TestKit(app) as kit:'")
        return self._host

    async def _deploy(self, source: Source) -> Definition:
        definition = await source.deploy(self.app, self._running.client_engine.client)
        if source.path is not None:
            self._running.files[definition.hash] = source.path
        return definition

    async def _deploy_for_good(self, source: Source) -> Definition:
        """Deploy with the schedules and webhooks of its nodes. A workflow that a test merely runs creates none."""
        definition = await self._deploy(source)
        triggers = triggers_of(self._running.client_engine)
        await triggers.changes(definition.name, definition.kind, definition.source)
        return msgspec.structs.replace(definition, triggers=await triggers.settle(definition.name))

    async def _mock_workflow(
        self,
        workflow: str | DurableWorkflow[..., Any],
        returns: Any,
        raises: Failure | None,
        side_effect: SideEffect | None,
    ) -> Mock:
        name = workflow if isinstance(workflow, str) else workflow.name
        self._stand_ins[name] = read_source(fake_script(name), name)
        await self._store_workflows()
        return self.mock(WORKFLOW + name, returns=returns, raises=raises, side_effect=side_effect)

    async def _store_workflows(self) -> None:
        """Store the workflows of the application, then those that replace some of them."""
        await self.app.workflows.ensure_all(self._running.client_engine.client)
        for source in self._stand_ins.values():
            await self._deploy(source)

    async def _target(self, workflow: Workflow) -> str | DurableTask[..., Any] | DurableWorkflow[..., Any]:
        await self._store_workflows()
        if isinstance(workflow, DurableTask | DurableWorkflow):
            return workflow
        source = read_source(workflow)
        return source.named or (await self._deploy(source)).name

    async def _start(self, workflow: Workflow, args: tuple[Any, ...], fields: dict[str, Any]) -> Handle[Any]:
        return await self.app.astart(await self._target(workflow), *args, **fields)

    async def _run(self, workflow: Workflow, args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
        handle = await self._start(workflow, args, fields)
        result = await handle.aresult()
        plan = self._running.plan
        if plan.pending:
            missed, commits = plan.pending[0], plan.commits
            plan.disarm()
            raise AssertionError(
                f"the worker was to die {missed}, but the run took {commits} commits; crashes(…) lists every point"
            )
        return result

    async def _retry(self, execution: Handle[R], *, from_start: bool, version: Version) -> Handle[R]:
        await self._store_workflows()
        again = await execution.aretry(from_start=from_start, version=version)
        await self._running.time.until_idle()
        return again

    async def _move(self, execution: Handle[Any] | str, version: Version, *, dry_run: bool) -> Moved:
        await self._store_workflows()
        await self._running.time.until_idle()
        known = execution if isinstance(execution, str) else execution.id
        moved = await self._running.client_engine.client.move(known, version, dry_run=dry_run)
        await self._running.time.until_idle()
        return moved

    async def _signal(self, execution: Handle[Any] | str, name: str, payload: Any) -> None:
        known = execution if isinstance(execution, str) else execution.id
        await self._running.client_engine.client.signal(known, name, payload)
        await self._running.time.until_idle()

    async def _ask(self, execution: Handle[Any] | str, name: str, payload: Any, id: str | None) -> Any:
        known = execution if isinstance(execution, str) else execution.id
        answer = await self._running.client_engine.client.ask(known, name, payload, id)
        await self._running.time.until_idle()
        return answer

    async def _approvals(self, execution: Handle[Any] | str) -> list[Approval]:
        await self._running.time.until_idle()
        known = execution if isinstance(execution, str) else execution.id
        return await self._running.client_engine.client.approvals(known)

    async def _decide(
        self,
        execution: Handle[Any] | str,
        decision: str,
        data: Any,
        node: str | None,
        by: str | None,
        comment: str | None,
        index: int | Sequence[int] | None,
    ) -> None:
        found = await self._approvals(execution)
        nodes = {each.node for each in found} if node is None else {node}
        if len(nodes) != 1:
            asked = ", ".join(f"'{each}'" for each in sorted(nodes)) or "nothing"
            raise InvalidInput(f"the execution asks {asked}; say which node is meant")
        known = execution if isinstance(execution, str) else execution.id
        await self._running.client_engine.client.decide(
            known, nodes.pop(), decision, data, by, index, comment
        )
        await self._running.time.until_idle()

    async def _crash(self, at: Crash | None) -> None:
        system = self._running
        if at is not None:
            if at.number < 1:
                raise InvalidInput("commits are counted from 1")
            system.plan.arm(at)
            return
        system.crash()
        await system.time.until_idle()

    def _trial(
        self, workflow: Workflow, args: tuple[Any, ...], fields: dict[str, Any], signals: Signals
    ) -> ResumabilityCheck:
        listed = list(signals.items() if isinstance(signals, Mapping) else signals)
        return ResumabilityCheck(
            self._running,
            self.app,
            lambda: self._target(workflow),
            args,
            fields,
            listed,
            lambda: self._system_parts(self._tasks.beside()),
        )


def _moment(now: float | dt.datetime | None) -> float:
    if isinstance(now, dt.datetime):
        return now.timestamp()
    return float(now) if now is not None else float(int(time.time()))
