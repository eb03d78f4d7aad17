"""Handles: one execution as user code sees it. Every call has an async twin with the prefix ``a``."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from dalsegno.core.diagnosis import Wait
from dalsegno.core.summary import NodeSummary
from dalsegno.core.values import decode_value
from dalsegno.engine.approvals import Approval
from dalsegno.engine.delays import Duration, seconds_of
from dalsegno.engine.pending import UNCHANGED
from dalsegno.engine.scripting.looking import Picture
from dalsegno.errors import DalSegnoError, WorkflowCancelled, WorkflowFailed
from dalsegno.hosting import LoopHost
from dalsegno.model.event import Event
from dalsegno.model.execution import Ending, ExecutionView

T = TypeVar("T")

REASONS_TOLD = 3
"""Reasons why an execution has not ended that a TimeoutError quotes."""
PATIENCE_FOR_REASONS = 2.0
"""Seconds for asking for them."""


class Calls(Protocol):
    """What can be asked about one execution: of the engine here, or of a server."""

    async def status(self, execution: str) -> ExecutionView: ...

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView: ...  # noqa: ASYNC109 - as users know it

    async def ending(self, execution: str, timeout: float | None = None) -> Ending: ...  # noqa: ASYNC109 - as users know it

    async def nodes(self, execution: str) -> dict[str, NodeSummary]: ...

    async def context(self, execution: str) -> dict[str, Any]: ...

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def why(self, execution: str) -> list[Wait]: ...

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None: ...

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

    async def picture(self, execution: str, *, variables: bool = True) -> Picture | None: ...

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
    ) -> str: ...


class Runtime(Protocol):
    """What a handle needs of the application or client it belongs to."""

    @property
    def host(self) -> LoopHost: ...

    @property
    def client(self) -> Calls: ...


class Handle:
    """An execution by id. Making one costs nothing and checks nothing."""

    __slots__ = ("_app", "_decode", "id")

    def __init__(self, app: Runtime, execution: str, decode: Callable[[Any], Any] | None = None) -> None:
        """``decode`` makes of the result's JSON what the workflow's annotation says."""
        self._app = app
        self._decode = decode
        self.id = execution

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    def result(self, timeout: Duration | None = None) -> Any:
        """The output, once it has ended; ``timeout``: seconds, or text such as ``5m``. Raises WorkflowFailed,
        WorkflowCancelled or TimeoutError. A store that goes away meanwhile is waited for; where it is away when the
        call begins, that is Unavailable."""
        return self._call(self._result(timeout))

    async def aresult(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - the twin of ``result``
        return await self._acall(self._result(timeout))

    def wait(self, timeout: Duration | None = None) -> ExecutionView:
        """The ended execution, however it ended."""
        return self._call(self._wait(timeout))

    async def await_(self, timeout: Duration | None = None) -> ExecutionView:  # noqa: ASYNC109 - twin of ``wait``
        """The async twin of ``wait``: with the prefix alone it would be a keyword of Python."""
        return await self._acall(self._wait(timeout))

    async def await_end(self, timeout: Duration | None = None) -> ExecutionView:  # noqa: ASYNC109 - twin of ``wait``
        """The former name of ``await_``; it goes with the next release."""
        warnings.warn("Handle.await_end is called await_ now", DeprecationWarning, stacklevel=2)
        return await self._acall(self._wait(timeout))

    def status(self) -> ExecutionView:
        return self._call(self._client().status(self.id))

    async def astatus(self) -> ExecutionView:
        return await self._acall(self._client().status(self.id))

    def nodes(self) -> dict[str, NodeSummary]:
        """State and runs of every node."""
        return self._call(self._client().nodes(self.id))

    async def anodes(self) -> dict[str, NodeSummary]:
        return await self._acall(self._client().nodes(self.id))

    def context(self) -> dict[str, Any]:
        """Every node's output by ``$<node id>``, once it has ended; before, what finished branches have left."""
        return self._call(self._client().context(self.id))

    async def acontext(self) -> dict[str, Any]:
        return await self._acall(self._client().context(self.id))

    def events(self, after: int = 0, limit: int = 1000) -> list[Event]:
        """The history from any number on."""
        return self._call(self._client().events(self.id, after, limit))

    async def aevents(self, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self._acall(self._client().events(self.id, after, limit))

    def why(self) -> list[Wait]:
        """What exactly it waits for."""
        return self._call(self._client().why(self.id))

    async def awhy(self) -> list[Wait]:
        return await self._acall(self._client().why(self.id))

    def signal(self, name: str, payload: Any = None, *, id: str | None = None) -> None:
        """Kept until the workflow takes it, in order per name; the same ``id`` again changes nothing."""
        self._call(self._client().signal(self.id, name, payload, id))

    async def asignal(self, name: str, payload: Any = None, *, id: str | None = None) -> None:
        await self._acall(self._client().signal(self.id, name, payload, id))

    def approvals(self) -> list[Approval]:
        """What it waits to have decided, oldest first."""
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
        """Answers an open approval with ``approved`` or ``rejected``. An approval's data that do not fit the form are
        refused; a rejection needs none."""
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

    def picture(self) -> Picture | None:
        """A script or Python workflow in flight: its line, what it awaits, its variables. None if there is none."""
        return self._call(self._client().picture(self.id))

    async def apicture(self) -> Picture | None:
        return await self._acall(self._client().picture(self.id))

    def trigger(self, payload: Any = UNCHANGED) -> None:
        """Begins it now if it is PENDING, with its own input or with another one. One that has begun is left alone."""
        self._call(self._client().trigger(self.id, payload))

    async def atrigger(self, payload: Any = UNCHANGED) -> None:
        await self._acall(self._client().trigger(self.id, payload))

    def cancel(self, reason: str | None = None) -> None:
        """Graphs end at once. A script or Python workflow gets ``CancelledError`` at its await and cleans up first, for
        as long as that takes or its ``cancel_grace`` allows. A second cancel changes nothing."""
        self._call(self._client().cancel(self.id, reason))

    async def acancel(self, reason: str | None = None) -> None:
        await self._acall(self._client().cancel(self.id, reason))

    def terminate(self, reason: str | None = None) -> None:
        """Ends it at once, without a clean-up. A dead letter says what was left, and ``dalsegno dead retry`` goes on
        with that."""
        self._call(self._client().terminate(self.id, reason))

    async def aterminate(self, reason: str | None = None) -> None:
        await self._acall(self._client().terminate(self.id, reason))

    def pause(self) -> None:
        """Stops claims, not clocks: what runs commits, what comes due is held until ``resume``."""
        self._call(self._client().pause(self.id))

    async def apause(self) -> None:
        await self._acall(self._client().pause(self.id))

    def resume(self) -> None:
        self._call(self._client().resume(self.id))

    async def aresume(self) -> None:
        await self._acall(self._client().resume(self.id))

    def retry(self, *, idempotency_key: str | None = None) -> Handle:
        """A new execution from everything that failed or was interrupted. The same key again is the same one."""
        return self._call(self._rerun(None, None, idempotency_key))

    async def aretry(self, *, idempotency_key: str | None = None) -> Handle:
        return await self._acall(self._rerun(None, None, idempotency_key))

    def rerun(
        self, *nodes: str, context: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> Handle:
        """A new execution from these nodes on, with the recorded context, edited as asked. The same key again is the
        same one; with other nodes or another context it is refused."""
        return self._call(self._rerun(nodes, context, idempotency_key))

    async def arerun(
        self, *nodes: str, context: Mapping[str, Any] | None = None, idempotency_key: str | None = None
    ) -> Handle:
        return await self._acall(self._rerun(nodes, context, idempotency_key))

    # -- inside -----------------------------------------------------------------------------------------------

    async def _result(self, timeout: Duration | None) -> Any:  # noqa: ASYNC109 - see ``result``
        seconds = _patience(timeout)
        try:
            ending = await self._client().ending(self.id, seconds)
        except TimeoutError:
            raise await self._too_late(seconds) from None
        if ending.state == "COMPLETED":
            value = decode_value(ending.output) if ending.output is not None else None
            return self._decode(value) if self._decode is not None else value
        error = msgspec.json.decode(ending.error) if ending.error is not None else None
        raise (WorkflowCancelled if ending.state == "CANCELLED" else WorkflowFailed)(self.id, error)

    async def _wait(self, timeout: Duration | None) -> ExecutionView:  # noqa: ASYNC109 - see ``result``
        seconds = _patience(timeout)
        try:
            return await self._client().wait(self.id, seconds)
        except TimeoutError:
            raise await self._too_late(seconds) from None

    async def _too_late(self, timeout: float | None) -> TimeoutError:  # noqa: ASYNC109 - it has passed already
        said = f"execution {self.id} did not end within {timeout:g} s"
        try:
            waits = await asyncio.wait_for(self._client().why(self.id), PATIENCE_FOR_REASONS)
        except (
            DalSegnoError,
            TimeoutError,
        ):  # a store that is away is no reason to hide that the time is over
            return TimeoutError(said)
        reasons = [wait.sentence for wait in waits]
        more = f", and {len(reasons) - REASONS_TOLD} more" if len(reasons) > REASONS_TOLD else ""
        return TimeoutError(f"{said}: {'; '.join(reasons[:REASONS_TOLD])}{more}" if reasons else said)

    async def _rerun(
        self, nodes: Sequence[str] | None, context: Mapping[str, Any] | None, key: str | None
    ) -> Handle:
        return Handle(self._app, await self._client().rerun(self.id, nodes, context, key))

    def _client(self) -> Calls:
        return self._app.client

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._app.host.call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._app.host.acall(work)


def _patience(timeout: Duration | None) -> float | None:
    return seconds_of(timeout, "timeout") if isinstance(timeout, str) else timeout
