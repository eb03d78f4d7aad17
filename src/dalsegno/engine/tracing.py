"""OpenTelemetry traces that follow an execution across workers and processes, and the observer interface of the
engine. Nothing is stored for them.

- The trace id of an execution is its id. Each step is a span in that trace, wherever it runs, below a span whose id
  is derived from the execution's id.
- OpenTelemetry is not imported unless the program has imported it. Without a tracer provider there is no observer,
  and tracing costs a comparison with None.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from dalsegno.errors import OperatorError
from dalsegno.model.execution import ExecutionView
from dalsegno.model.failure import Failure
from dalsegno.model.ids import span_id, trace_id
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext

TRACEPARENT = "traceparent"
"""Tag with the trace context that a start carried."""
NAME = "dalsegno"

_wanted: ContextVar[tuple[int, int] | None] = ContextVar("dalsegno_span", default=None)
"""Trace and span id of the next span."""


def run_span_id(lease: Lease) -> int:
    """Return the id of the span of one attempt to run a token."""
    return span_id(f"{lease.token}/{lease.fence}")


def traceparent_of(lease: Lease) -> str:
    """Return the parent of the spans that a remote run creates."""
    return f"00-{trace_id(lease.execution):032x}-{run_span_id(lease):016x}-01"


class ExecutionIds:
    """Id generator for the SDK: ``TracerProvider(id_generator=ExecutionIds())``. With it, the spans of executions and
    of remote tasks have the ids that other spans name as their parent. Without it they are siblings of those spans.
    """

    def generate_span_id(self) -> int:
        wanted = _wanted.get()
        return wanted[1] if wanted is not None else random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        wanted = _wanted.get()
        return wanted[0] if wanted is not None else random.getrandbits(128) or 1

    def is_trace_id_random(self) -> bool:
        return False


def tracing_if_set(archive: Archive) -> Tracing | None:
    """Return the tracing observer; None if the program has set no tracer provider."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - only where it is used

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Tracing(archive)


class Tracing:
    """An observer of the engine that creates spans."""

    def __init__(self, archive: Archive) -> None:
        from opentelemetry import context, trace  # noqa: PLC0415 - only where it is used

        self._trace = trace
        self._context = context
        self._tracer = trace.get_tracer(NAME)
        self._archive = archive
        self._open: dict[str, tuple[Span, Any]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    # -- steps ------------------------------------------------------------------------------------------------

    def began(self, lease: Lease) -> None:
        span = self._tracer.start_span(_name(lease), self._under(lease.execution), attributes=_about(lease))
        context = self._context.attach(self._trace.set_span_in_context(span))
        self._open[lease.token] = span, context

    def stepped(self, lease: Lease, seconds: float) -> None:
        del seconds
        found = self._open.pop(lease.token, None)
        if found is not None:
            self._context.detach(found[1])
            found[0].end()

    def applied(self, transition: Transition, applied: Applied) -> None:
        found = self._open.get(transition.token) if transition.token is not None else None
        if found is not None:
            for event in transition.events:
                if event.kind in ("NodeFailed", "TaskFailed", "NodeRetrying", "TaskRetrying"):
                    self._mark_failed(found[0], _message(event.data))
        if applied.ended is not None:
            task = asyncio.ensure_future(self._ended(transition.execution))
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

    def committed(self, transitions: int, seconds: float) -> None:
        """Do nothing: a commit concerns many executions at once and is reported by metrics."""

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        """Create the span of a remote task, from its hand-out to its answer."""
        lease = held.lease
        about = {**_about(lease), "dalsegno.worker": held.owner, "dalsegno.task": held.task}
        wanted = (trace_id(lease.execution), run_span_id(lease))
        span = self._made(f"remote task {held.task}", wanted, lease.execution, held.since, about)
        if failure is not None:
            self._mark_failed(span, failure.message)
        span.end(_nanoseconds(now))

    # -- executions -------------------------------------------------------------------------------------------

    async def _ended(self, execution: str) -> None:
        """Create the span of an execution after its end, which any process may observe."""
        try:
            view = await self._archive.execution(execution)
        except OperatorError:
            return
        if view is None or view.ended_at is None:
            return
        wanted = (trace_id(execution), span_id(execution))
        about = {
            "dalsegno.execution": execution,
            "dalsegno.workflow": view.workflow,
            "dalsegno.state": view.state,
        }
        under = None if self._chooses_ids() else execution
        span = self._made(
            f"workflow {view.workflow}", wanted, under, view.created_at, about, self._links(view)
        )
        if view.state == "FAILED":
            self._mark_failed(span, _message(view.error))
        span.end(_nanoseconds(view.ended_at))

    def _chooses_ids(self) -> bool:
        return isinstance(getattr(self._trace.get_tracer_provider(), "id_generator", None), ExecutionIds)

    def _links(self, view: ExecutionView) -> list[Link]:
        """Return links to the parent execution and to the caller's own trace."""
        links = []
        if view.parent is not None:
            links.append(self._trace.Link(self._root(view.parent)))
        traceparent = read_traceparent(dict(view.tags).get(TRACEPARENT))
        if traceparent is not None:
            links.append(self._trace.Link(self._span_context(*traceparent)))
        return links

    def _made(
        self,
        name: str,
        wanted: tuple[int, int],
        under: str | None,
        since: float,
        about: Mapping[str, Any],
        links: list[Link] | None = None,
    ) -> Span:
        empty = self._context.Context()
        context = self._under(under) if under is not None else empty
        token = _wanted.set(wanted)
        try:
            return self._tracer.start_span(
                name, context, attributes=about, links=links, start_time=_nanoseconds(since)
            )
        finally:
            _wanted.reset(token)

    def _under(self, execution: str) -> Any:
        span = self._trace.NonRecordingSpan(self._root(execution))
        return self._trace.set_span_in_context(span, self._context.Context())

    def _root(self, execution: str) -> SpanContext:
        return self._span_context(trace_id(execution), span_id(execution))

    def _span_context(self, trace: int, span: int) -> SpanContext:
        sampled = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        return self._trace.SpanContext(trace, span, is_remote=True, trace_flags=sampled)

    def _mark_failed(self, span: Span, message: str) -> None:
        span.set_status(self._trace.StatusCode.ERROR, message[:1000])


def read_traceparent(header: str | None) -> tuple[int, int] | None:
    """Return trace and span id of a W3C ``traceparent``; None if it is invalid."""
    parts = (header or "").split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2] or parts[0] == "ff":
        return None
    try:
        trace, span = int(parts[1], 16), int(parts[2], 16)
    except ValueError:
        return None
    return (trace, span) if trace and span else None


def _name(lease: Lease) -> str:
    return f"{lease.kind} {lease.node}" if lease.node and lease.kind != "resume" else lease.kind


def _about(lease: Lease) -> dict[str, Any]:
    return {
        "dalsegno.execution": lease.execution,
        "dalsegno.node": lease.node,
        "dalsegno.token": lease.token,
        "dalsegno.attempt": lease.attempt,
        "dalsegno.queue": lease.queue,
    }


def _message(data: bytes | None) -> str:
    """Return the message in the record of a failure."""
    found = msgspec.json.decode(data) if data else {}
    error = found.get("error", found) if isinstance(found, dict) else {}
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _nanoseconds(moment: float) -> int:
    return int(moment * 1e9)


class RemoteRun(Protocol):
    """A task that a remote worker has run, as observers see it."""

    lease: Lease
    owner: str
    since: float

    @property
    def task(self) -> str: ...


class Observer(Protocol):
    """A receiver of an engine's events, for metrics and traces. Its methods run on the engine's loop in the middle of
    its work, so they must return quickly.
    """

    def began(self, lease: Lease) -> None:
        """Note that a local worker starts a step, in this asyncio task."""

    def stepped(self, lease: Lease, seconds: float) -> None:
        """Note that the worker has committed the step, or given it up."""

    def committed(self, transitions: int, seconds: float) -> None:
        """Note that a batch was committed."""

    def applied(self, transition: Transition, applied: Applied) -> None:
        """Note that a transition of this process was applied."""

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        """Note that the answer of a remote worker was committed."""


class CombinedObserver:
    """Two observers combined into one."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.first = first
        self.second = second

    def began(self, lease: Lease) -> None:
        self.first.began(lease)
        self.second.began(lease)

    def stepped(self, lease: Lease, seconds: float) -> None:
        self.second.stepped(lease, seconds)
        self.first.stepped(lease, seconds)

    def committed(self, transitions: int, seconds: float) -> None:
        self.first.committed(transitions, seconds)
        self.second.committed(transitions, seconds)

    def applied(self, transition: Transition, applied: Applied) -> None:
        self.first.applied(transition, applied)
        self.second.applied(transition, applied)

    def remote(self, held: RemoteRun, failure: Failure | None, now: float) -> None:
        self.first.remote(held, failure, now)
        self.second.remote(held, failure, now)
