"""OpenTelemetry traces that follow an execution across workers and processes, without storing anything.

The trace of an execution is its id; every step of it, wherever it runs, is a span in that trace, below a span whose id
is derived from the execution's. Nothing of OpenTelemetry is imported unless the program itself has: where nobody has
set a tracer provider there is no observer, and tracing costs nothing.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.errors import OperatorError
from dalsegno.model.execution import ExecutionView
from dalsegno.model.failure import Failure
from dalsegno.model.token import Lease
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.archive import Archive

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, SpanContext

    from dalsegno.engine.remote_sessions import Held

TRACEPARENT = "traceparent"
"""The tag that holds the trace context which came with a start."""
NAME = "dalsegno"

_wanted: ContextVar[tuple[int, int] | None] = ContextVar("dalsegno_span", default=None)
"""Trace and span id of the span that is made next."""


def trace_id(execution: str) -> int:
    """Ids of executions are 128 bits, as those of traces."""
    return int(execution, 16) if _is_hex(execution) else _hash(execution, 16)


def span_id(name: str) -> int:
    return _hash(name, 8)


def run_span_id(lease: Lease) -> int:
    """Of one attempt to run a token."""
    return span_id(f"{lease.token}/{lease.fence}")


def traceparent_of(lease: Lease) -> str:
    """Under which whoever runs it elsewhere makes its spans."""
    return f"00-{trace_id(lease.execution):032x}-{run_span_id(lease):016x}-01"


def _is_hex(name: str) -> bool:
    return len(name) == 32 and all(each in "0123456789abcdef" for each in name) and name.strip("0") != ""


def _hash(name: str, size: int) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=size).digest()) or 1


class ExecutionIds:
    """Give it to the SDK as ``TracerProvider(id_generator=ExecutionIds())``: then the span of an execution itself, and
    those of tasks that run remotely, have the ids under which the others hang. Without it they are siblings of them."""

    def generate_span_id(self) -> int:
        wanted = _wanted.get()
        return wanted[1] if wanted is not None else random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        wanted = _wanted.get()
        return wanted[0] if wanted is not None else random.getrandbits(128) or 1

    def is_trace_id_random(self) -> bool:
        return False


def tracing_if_set(archive: Archive) -> Tracing | None:
    """None where this program has set no tracer provider."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - only where it is used

    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Tracing(archive)


class Tracing:
    """An observer of the engine that makes spans of what it is told."""

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
        here = self._context.attach(self._trace.set_span_in_context(span))
        self._open[lease.token] = span, here

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
        """Commits are of many executions at once: metrics tell of them."""

    def remote(self, held: Held, failure: Failure | None, now: float) -> None:
        """From the moment it was handed out to its answer."""
        lease = held.lease
        about = {**_about(lease), "dalsegno.worker": held.owner, "dalsegno.task": held.question.task}
        wanted = (trace_id(lease.execution), run_span_id(lease))
        span = self._made(f"remote task {held.question.task}", wanted, lease.execution, held.since, about)
        if failure is not None:
            self._mark_failed(span, failure.message)
        span.end(_nanoseconds(now))

    # -- executions -------------------------------------------------------------------------------------------

    async def _ended(self, execution: str) -> None:
        """Its span is made when it is over: any process may see that."""
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
        """To the execution it comes from, and to the caller's own trace."""
        links = []
        if view.parent is not None:
            links.append(self._trace.Link(self._root(view.parent)))
        came_with = read_traceparent(dict(view.tags).get(TRACEPARENT))
        if came_with is not None:
            links.append(self._trace.Link(self._span_context(*came_with)))
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
    """Trace and span of a W3C ``traceparent``; None where it is none."""
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
    """Of a failure's record."""
    found = msgspec.json.decode(data) if data else {}
    error = found.get("error", found) if isinstance(found, dict) else {}
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _nanoseconds(moment: float) -> int:
    return int(moment * 1e9)
