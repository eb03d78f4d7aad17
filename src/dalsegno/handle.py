"""Handles of executions. Every call has an async twin with the prefix ``a``."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

import msgspec

from dalsegno.core.diagnosis import Wait
from dalsegno.core.scripts.turn_view import TurnPage, TurnSummary, TurnView
from dalsegno.core.states import NodeSummary
from dalsegno.core.values import decode_value
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.operations.moves import Moved
from dalsegno.engine.operations.published import Published, StreamChunk
from dalsegno.engine.operations.requests import RequestView
from dalsegno.engine.operations.why import ScriptSnapshotView
from dalsegno.engine.options import Duration, read_duration
from dalsegno.engine.starting.moving import RetryPlan
from dalsegno.engine.starting.pending import UNCHANGED
from dalsegno.errors import DalSegnoError, InvalidInput, WorkflowCancelled, WorkflowFailed
from dalsegno.event_loop_host import LoopHost
from dalsegno.lang.python.values.typed_values import from_plain
from dalsegno.model.definition import Version
from dalsegno.model.event import Event
from dalsegno.model.execution import Ending, ExecutionView
from dalsegno.model.published import LOG

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    R_co = TypeVarWithDefault("R_co", covariant=True, default=Any)  # ``Handle`` alone is ``Handle[Any]``
else:
    R_co = TypeVar("R_co", covariant=True)

T = TypeVar("T")

SHOWN_REASONS = 3
"""Reasons for waiting that a TimeoutError quotes."""
TURNS_AT_ONCE = 1000
PATIENCE_FOR_REASONS = 2.0
"""Seconds in which these reasons must be read."""


class Calls(Protocol):
    """Calls about one execution: of the engine in this process, or of a server."""

    async def status(self, execution: str) -> ExecutionView: ...

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView: ...  # noqa: ASYNC109 - as users know it

    async def ending(self, execution: str, timeout: float | None = None) -> Ending: ...  # noqa: ASYNC109 - as users know it

    async def published(self, execution: str) -> dict[str, Any]: ...

    def watch(self, execution: str, keys: Sequence[str] = ()) -> AsyncIterator[Published]: ...

    def stream(self, execution: str, name: str, offset: int = 0) -> AsyncIterator[StreamChunk]: ...

    async def nodes(self, execution: str) -> dict[str, NodeSummary]: ...

    async def context(self, execution: str) -> dict[str, Any]: ...

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def why(self, execution: str) -> list[Wait]: ...

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None: ...

    async def ask(
        self,
        execution: str,
        name: str,
        payload: Any = None,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as users know it
    ) -> Any: ...

    async def request(self, execution: str, id: str) -> RequestView: ...

    async def open_requests(self, execution: str) -> list[RequestView]: ...

    async def approvals(self, execution: str) -> list[Approval]: ...

    async def decide(
        self,
        execution: str,
        node: str,
        decision: str,
        data: Any = None,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
        comment: str | None = None,
    ) -> None: ...

    async def picture(self, execution: str, *, variables: bool = True) -> ScriptSnapshotView | None: ...

    async def turn_page(
        self, execution: str, first: int | None = None, limit: int = 100, *, newest_first: bool = False
    ) -> TurnPage: ...

    async def turn_view(self, execution: str, number: int) -> TurnView: ...

    async def cancel(self, execution: str, reason: str | None = None) -> None: ...

    async def terminate(self, execution: str, reason: str | None = None) -> None: ...

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None: ...

    async def pause(self, execution: str) -> None: ...

    async def resume(self, execution: str) -> None: ...

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
        *,
        from_start: bool = False,
        version: Version = None,
        turn: TurnAsked | None = None,
    ) -> str: ...

    async def preview_retry(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        version: Version = None,
        *,
        from_start: bool = False,
        turn: TurnAsked | None = None,
    ) -> RetryPlan: ...

    async def move(self, execution: str, version: Version, *, dry_run: bool = False) -> Moved: ...


class Runtime(Protocol):
    """The application or client of a handle."""

    @property
    def host(self) -> LoopHost: ...

    @property
    def client(self) -> Calls: ...


async def all_turns(client: Calls, execution: str) -> list[TurnSummary]:
    """Read the list of turns page by page."""
    found: list[TurnSummary] = []
    first: int | None = None
    while True:
        page = await client.turn_page(execution, first, TURNS_AT_ONCE)
        found += page.turns
        if page.next is None:
            return found
        first = page.next


class Handle(Generic[R_co]):
    """A handle of an execution by id. Creating one accesses no store and checks nothing.

    ``R_co`` is the type of the result: ``Handle[Receipt]`` of a workflow that returns a ``Receipt``, ``Handle[Any]`` of
    an execution that is known by its name or id only.
    """

    __slots__ = ("_app", "_decode", "id")

    def __init__(self, app: Runtime, execution: str, decode: Callable[[Any], R_co] | None = None) -> None:
        """``decode`` converts the result's JSON to the type of the workflow's annotation."""
        self._app = app
        self._decode = decode
        self.id = execution

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    def result(self, timeout: Duration | None = None) -> R_co:
        """Returns the output after the execution has ended; ``timeout``: seconds, or text such as ``5m``. Raises
        WorkflowFailed, WorkflowCancelled or TimeoutError. If the store becomes unreachable meanwhile, the call
        waits for it; if it is unreachable at the beginning, the call raises Unavailable."""
        return self._call(self._result(timeout))

    async def aresult(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the twin of ``result``
        return await self._acall(self._result(timeout))

    def wait(self, timeout: Duration | None = None) -> ExecutionView:
        """Returns the ended execution in any final state."""
        return self._call(self._wait(timeout))

    async def await_(self, timeout: Duration | None = None) -> ExecutionView:  # noqa: ASYNC109 - twin of ``wait``
        """The async twin of ``wait``: the prefix alone would form a Python keyword."""
        return await self._acall(self._wait(timeout))

    async def await_end(self, timeout: Duration | None = None) -> ExecutionView:  # noqa: ASYNC109 - twin of ``wait``
        """The former name of ``await_``; it will be removed with the next release."""
        warnings.warn("Handle.await_end is called await_ now", DeprecationWarning, stacklevel=2)
        return await self._acall(self._wait(timeout))

    def status(self) -> ExecutionView:
        return self._call(self._client().status(self.id))

    async def astatus(self) -> ExecutionView:
        return await self._acall(self._client().status(self.id))

    def nodes(self) -> dict[str, NodeSummary]:
        """Returns state and runs of every node."""
        return self._call(self._client().nodes(self.id))

    async def anodes(self) -> dict[str, NodeSummary]:
        return await self._acall(self._client().nodes(self.id))

    @overload
    def published(self) -> dict[str, Any]: ...

    @overload
    def published(self, key: str) -> Any: ...

    @overload
    def published(self, key: str, type: type[T]) -> T | None: ...

    def published(self, key: str | None = None, type: Any = None) -> Any:
        """Returns the newest published value of each key, or that of one key: None if nothing is published there.
        ``type``: what the value becomes, a dataclass or a Pydantic model for example. ``progress`` is the key of the
        workflow's own progress, ``progress/<task>`` that of a running task."""
        return self._call(self._published(key, type))

    @overload
    async def apublished(self) -> dict[str, Any]: ...

    @overload
    async def apublished(self, key: str) -> Any: ...

    @overload
    async def apublished(self, key: str, type: type[T]) -> T | None: ...

    async def apublished(self, key: str | None = None, type: Any = None) -> Any:
        return await self._acall(self._published(key, type))

    def watch(self, *keys: str) -> Iterator[Published]:
        """Yields the published values that there are, and then their changes, of these keys or of all, until the
        execution has ended. Of quick changes it may yield only the last."""
        return self._app.host.iterate(self._client().watch(self.id, keys))

    def awatch(self, *keys: str) -> AsyncIterator[Published]:
        return self._app.host.aiterate(self._client().watch(self.id, keys))

    def stream(self, name: str, offset: int = 0) -> Iterator[StreamChunk]:
        """Yields the chunks of a stream from an offset on, each once and in order, until the stream is closed or the
        execution has ended."""
        return self._app.host.iterate(self._client().stream(self.id, name, offset))

    def astream(self, name: str, offset: int = 0) -> AsyncIterator[StreamChunk]:
        return self._app.host.aiterate(self._client().stream(self.id, name, offset))

    def logs(self, offset: int = 0) -> Iterator[StreamChunk]:
        """Yields the lines of its log as they are written, until it has ended. A line's ``value`` has ``at``,
        ``level``, ``task`` and ``message``."""
        return self.stream(LOG, offset)

    def alogs(self, offset: int = 0) -> AsyncIterator[StreamChunk]:
        return self.astream(LOG, offset)

    def context(self) -> dict[str, Any]:
        """Returns every node's output by ``$<node id>``; before the end, the outputs of finished branches."""
        return self._call(self._client().context(self.id))

    async def acontext(self) -> dict[str, Any]:
        return await self._acall(self._client().context(self.id))

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """Returns the history from any event number on."""
        return self._call(self._client().events(self.id, after, limit))

    async def aevents(self, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._acall(self._client().events(self.id, after, limit))

    def why(self) -> list[Wait]:
        """Returns what exactly the execution waits for, and what can be done about it (`hint`)."""
        return self._call(self._client().why(self.id))

    async def awhy(self) -> list[Wait]:
        return await self._acall(self._client().why(self.id))

    def signal(self, name: str, payload: Any = None, *, id: str | None = None) -> None:
        """Sends a signal. Signals are kept until the workflow receives them, in order per name; the same ``id``
        again changes nothing."""
        self._call(self._client().signal(self.id, name, payload, id))

    async def asignal(self, name: str, payload: Any = None, *, id: str | None = None) -> None:
        await self._acall(self._client().signal(self.id, name, payload, id))

    @overload
    def ask(
        self,
        name: str,
        payload: Any = ...,
        *,
        returns: type[T],
        timeout: Duration | None = ...,
        id: str | None = ...,
    ) -> T: ...

    @overload
    def ask(
        self,
        name: str,
        payload: Any = ...,
        *,
        returns: None = ...,
        timeout: Duration | None = ...,
        id: str | None = ...,
    ) -> Any: ...

    def ask(
        self,
        name: str,
        payload: Any = None,
        *,
        returns: Any = None,
        timeout: Duration | None = None,
        id: str | None = None,
    ) -> Any:
        """Sends a request and returns the answer of the workflow, as an instance of ``returns`` if given. Raises
        RequestRejected if the workflow refuses it, Conflict if the execution has ended or ends without an answer, and
        TimeoutError after ``timeout`` (seconds, or text such as ``5m``): the request stays open, and the same ``id``
        with the same payload waits for its answer again, or gets the one that there is."""
        return self._call(self._ask(name, payload, returns, timeout, id))

    @overload
    async def aask(
        self,
        name: str,
        payload: Any = ...,
        *,
        returns: type[T],
        timeout: Duration | None = ...,  # noqa: ASYNC109 - the twin of ``ask``
        id: str | None = ...,
    ) -> T: ...

    @overload
    async def aask(
        self,
        name: str,
        payload: Any = ...,
        *,
        returns: None = ...,
        timeout: Duration | None = ...,  # noqa: ASYNC109 - the twin of ``ask``
        id: str | None = ...,
    ) -> Any: ...

    async def aask(
        self,
        name: str,
        payload: Any = None,
        *,
        returns: Any = None,
        timeout: Duration | None = None,  # noqa: ASYNC109 - the twin of ``ask``
        id: str | None = None,
    ) -> Any:
        return await self._acall(self._ask(name, payload, returns, timeout, id))

    def approvals(self) -> list[Approval]:
        """Returns its open approvals, oldest first."""
        return self._call(self._client().approvals(self.id))

    async def aapprovals(self) -> list[Approval]:
        return await self._acall(self._client().approvals(self.id))

    def decide(
        self,
        node: str,
        decision: str,
        data: Any = None,
        *,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
        comment: str | None = None,
    ) -> None:
        """Answers an open approval with ``approved`` or ``rejected``. Data of an approval that do not match the
        form are refused; a rejection needs no data."""
        self._call(self._client().decide(self.id, node, decision, data, by, index, comment))

    async def adecide(
        self,
        node: str,
        decision: str,
        data: Any = None,
        *,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
        comment: str | None = None,
    ) -> None:
        await self._acall(self._client().decide(self.id, node, decision, data, by, index, comment))

    def picture(self) -> ScriptSnapshotView | None:
        """Returns the state of a running script or Python workflow: its line, what it awaits, its variables. None
        for others."""
        return self._call(self._client().picture(self.id))

    async def apicture(self) -> ScriptSnapshotView | None:
        return await self._acall(self._client().picture(self.id))

    def turns(self) -> list[TurnSummary]:
        """Returns the recorded turns of a script or Python workflow, oldest first: where each stopped, and what it then
        waited for. Empty for a graph."""
        return self._call(self._turns())

    async def aturns(self) -> list[TurnSummary]:
        return await self._acall(self._turns())

    def turn(self, number: int) -> TurnView:
        """Returns one recorded turn: what it received, the running functions with their variables and what changed,
        and what it asked for."""
        return self._call(self._client().turn_view(self.id, number))

    async def aturn(self, number: int) -> TurnView:
        return await self._acall(self._client().turn_view(self.id, number))

    async def _turns(self) -> list[TurnSummary]:
        return await all_turns(self._client(), self.id)

    def trigger(self, payload: Any = UNCHANGED) -> None:
        """Starts it now if it is PENDING, with its own input or with another one. An execution that has started is
        not changed."""
        self._call(self._client().trigger(self.id, payload))

    async def atrigger(self, payload: Any = UNCHANGED) -> None:
        await self._acall(self._client().trigger(self.id, payload))

    def cancel(self, reason: str | None = None) -> None:
        """Cancels the execution. A graph ends at once. A script or Python workflow gets ``CancelledError`` at its
        await and cleans up first, within its ``cancel_grace`` if it has one. A second cancel changes nothing."""
        self._call(self._client().cancel(self.id, reason))

    async def acancel(self, reason: str | None = None) -> None:
        await self._acall(self._client().cancel(self.id, reason))

    def terminate(self, reason: str | None = None) -> None:
        """Ends the execution at once, without a clean-up. A dead letter records the skipped clean-up, and
        ``dalsegno dead retry`` runs it."""
        self._call(self._client().terminate(self.id, reason))

    async def aterminate(self, reason: str | None = None) -> None:
        await self._acall(self._client().terminate(self.id, reason))

    def pause(self) -> None:
        """Stops claims, not clocks: running steps commit; what comes due is held until ``resume``."""
        self._call(self._client().pause(self.id))

    async def apause(self) -> None:
        await self._acall(self._client().pause(self.id))

    def resume(self) -> None:
        self._call(self._client().resume(self.id))

    async def aresume(self) -> None:
        await self._acall(self._client().resume(self.id))

    def retry(
        self, *, idempotency_key: str | None = None, from_start: bool = False, version: Version = None
    ) -> Handle[R_co]:
        """Starts a new execution from everything that failed or was interrupted. A script or Python workflow that
        failed goes on from its failure: what has completed does not run again. It starts over, with new idempotency
        keys, if it failed before its first ``await`` had to wait, if it did not fail, or with ``from_start``. The same
        key returns the same new execution.

        ``version``: a number, an alias or ``"latest"``, instead of the version that it ran. Raises Conflict, with
        the reasons, if it cannot continue there."""
        return self._call(self._rerun(None, None, idempotency_key, from_start=from_start, version=version))

    async def aretry(
        self, *, idempotency_key: str | None = None, from_start: bool = False, version: Version = None
    ) -> Handle[R_co]:
        return await self._acall(
            self._rerun(None, None, idempotency_key, from_start=from_start, version=version)
        )

    def move(self, version: Version = "latest", *, dry_run: bool = False) -> Moved:
        """Lets the execution, which has not ended, go on with another version of its workflow: a number, an alias or
        ``"latest"``. It keeps its id. Raises Conflict, with the reasons, if its state has no place in that version;
        ``dry_run`` only checks. Scripts and Python workflows can be moved, graphs cannot."""
        return self._call(self._client().move(self.id, version, dry_run=dry_run))

    async def amove(self, version: Version = "latest", *, dry_run: bool = False) -> Moved:
        return await self._acall(self._client().move(self.id, version, dry_run=dry_run))

    def rerun(
        self,
        *nodes: str,
        context: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        version: Version = None,
        at: int | str | None = None,
        set: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Handle[R_co]:
        """Starts a new execution from these nodes on, with the recorded context, edited as requested. The same key
        returns the same new execution; with other nodes or another context it is refused. ``version``: as for
        ``retry``.

        ``at``: of a script or Python workflow, instead of nodes: a turn, by its number or the name of a checkpoint.
        What had been called by then and has completed is known; the rest runs again. ``set``: other values of variables
        of the function that waits there. ``answers``: results of calls, by their names or promises (``p3``)."""
        turn = _turn(at, set, answers)
        return self._call(
            self._rerun(nodes if at is None else None, context, idempotency_key, version=version, turn=turn)
        )

    async def arerun(
        self,
        *nodes: str,
        context: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        version: Version = None,
        at: int | str | None = None,
        set: Mapping[str, Any] | None = None,
        answers: Mapping[str, Any] | None = None,
    ) -> Handle[R_co]:
        turn = _turn(at, set, answers)
        return await self._acall(
            self._rerun(nodes if at is None else None, context, idempotency_key, version=version, turn=turn)
        )

    # -- internal ---------------------------------------------------------------------------------------------

    async def _result(self, timeout: Duration | None) -> R_co:  # noqa: ASYNC109 - see ``result``
        seconds = _patience(timeout)
        try:
            ending = await self._client().ending(self.id, seconds)
        except TimeoutError:
            raise await self._too_late(seconds) from None
        if ending.state == "COMPLETED":
            value = decode_value(ending.output) if ending.output is not None else None
            return self._decode(value) if self._decode is not None else cast(R_co, value)
        error = msgspec.json.decode(ending.error) if ending.error is not None else None
        raise (WorkflowCancelled if ending.state == "CANCELLED" else WorkflowFailed)(self.id, error)

    async def _wait(self, timeout: Duration | None) -> ExecutionView:  # noqa: ASYNC109 - see ``result``
        seconds = _patience(timeout)
        try:
            return await self._client().wait(self.id, seconds)
        except TimeoutError:
            raise await self._too_late(seconds) from None

    async def _ask(
        self,
        name: str,
        payload: Any,
        returns: Any,
        timeout: Duration | None,  # noqa: ASYNC109 - see ``ask``
        id: str | None,
    ) -> Any:
        answer = await self._client().ask(self.id, name, payload, id, _patience(timeout))
        return answer if returns is None else from_plain(answer, returns, f"the answer to request '{name}'")

    async def _too_late(self, timeout: float | None) -> TimeoutError:  # noqa: ASYNC109 - it has passed already
        said = f"execution {self.id} did not end within {timeout:g} s"
        try:
            waits = await asyncio.wait_for(self._client().why(self.id), PATIENCE_FOR_REASONS)
        except (
            DalSegnoError,
            TimeoutError,
        ):  # an unreachable store must not hide the timeout
            return TimeoutError(said)
        reasons = [wait.at_its_line() for wait in waits]
        more = f", and {len(reasons) - SHOWN_REASONS} more" if len(reasons) > SHOWN_REASONS else ""
        return TimeoutError(f"{said}: {'; '.join(reasons[:SHOWN_REASONS])}{more}" if reasons else said)

    async def _published(self, key: str | None, type: Any) -> Any:
        found = await self._client().published(self.id)
        if key is None:
            return found
        value = found.get(key)
        if type is None or key not in found:
            return value
        from dalsegno.lang.python.values.typed_values import from_plain  # noqa: PLC0415 - only typed readers need it

        return from_plain(value, type, f"what is published as '{key}'")

    async def _rerun(
        self,
        nodes: Sequence[str] | None,
        context: Mapping[str, Any] | None,
        key: str | None,
        *,
        from_start: bool = False,
        version: Version = None,
        turn: TurnAsked | None = None,
    ) -> Handle[R_co]:
        made = await self._client().rerun(
            self.id, nodes, context, key, from_start=from_start, version=version, turn=turn
        )
        return Handle(self._app, made, self._decode)

    def _client(self) -> Calls:
        return self._app.client

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return host_of(self._app, work).call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await host_of(self._app, work).acall(work)


def _turn(
    at: int | str | None, variables: Mapping[str, Any] | None, answers: Mapping[str, Any] | None
) -> TurnAsked | None:
    if at is None:
        if variables or answers:
            raise InvalidInput("set and answers belong to a turn: say at which one (at=…)")
        return None
    return TurnAsked(at, variables or {}, answers or {})


def host_of(runtime: Runtime, work: Coroutine[Any, Any, Any]) -> LoopHost:
    """Return the event loop of this work. If the store cannot be opened, the coroutine is closed, not left
    unawaited."""
    try:
        return runtime.host
    except BaseException:
        work.close()
        raise


def _patience(timeout: Duration | None) -> float | None:
    return read_duration(timeout, "'timeout'") if isinstance(timeout, str) else timeout
