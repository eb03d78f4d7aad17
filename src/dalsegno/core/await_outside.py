"""Nodes that wait for something from outside: a signal, a decision, an execution of their own.

The token is parked with what it waits for; no compute is held. What comes wakes it with the reason ``arrival``, its
time limit with any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.body import Awaiting, decode_body, encode
from dalsegno.core.complete import Step, transition_of
from dalsegno.core.orders import CancelOrder, Notice, StartOrder, order_cancel, order_start
from dalsegno.core.script_bodies import decode_task
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.core.situation import RunRecord, Situation, run_event
from dalsegno.model.effect import WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.ids import child_execution_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView
from dalsegno.model.transition import Park

CHILD = "child:"
"""How ``awaits`` begins for an execution; its id follows."""

TIMEOUT = "TIMEOUT"


class ChildRequest(Struct, frozen=True):
    """The execution a node asks for."""

    workflow: str
    input: bytes
    version: int | str | None = None
    definition: str | None = None


# -- beginning to wait ----------------------------------------------------------------------------------------


def await_signal(
    situation: Situation, name: str, due: float | None, question: dict[str, Any] | None = None
) -> Step:
    """A signal that is in the mailbox already wakes the token in this very commit."""
    return _park(situation, Awaiting(SIGNAL + name, situation.now, due, question))


def await_child(situation: Situation, request: ChildRequest, due: float | None) -> Step:
    """Orders the child and waits for its end, in one commit."""
    child = child_of(situation)
    situation.orders += (order_start(_order(situation, child, request, waits=True)),)
    return _park(situation, Awaiting(CHILD + child, situation.now, due), _started(situation, child, request))


def wait_on(situation: Situation, awaiting: Awaiting, problem: Failure) -> Step:
    """What came was of no use: the history tells so, and the token waits for the next."""
    return _park(situation, awaiting, problem=problem)


def start_detached(situation: Situation, request: ChildRequest) -> str:
    """Orders an execution that nobody waits for and that outlives this one; its id."""
    child = child_of(situation)
    situation.orders += (order_start(_order(situation, child, request, waits=False)),)
    return child


def child_of(situation: Situation) -> str:
    """The execution a node starts: known before it exists, and another one for every attempt."""
    lease = situation.lease
    cause = lease.token if lease.attempt == 1 else f"{lease.token}/{lease.attempt}"
    return child_execution_id(lease.execution, cause)


def _order(situation: Situation, child: str, request: ChildRequest, *, waits: bool) -> StartOrder:
    lease = situation.lease
    return StartOrder(
        child,
        request.workflow,
        Raw(request.input),
        request.version,
        lease.execution,
        "child" if waits else "started",
        Notice(lease.execution, token=lease.token) if waits else None,
        priority=lease.priority,
        definition=request.definition,
    )


def _park(
    situation: Situation, awaiting: Awaiting, *events: NewEvent, problem: Failure | None = None
) -> Step:
    lease = situation.lease
    record = RunRecord(
        lease.ready_at,
        situation.started_at,
        lease.attempt,
        error=problem.as_dict() if problem is not None else None,
        signal=signal_of(awaiting),
        child=awaited_child(awaiting),
        due=awaiting.due,
        question=awaiting.question,
    )
    waiting = run_event("NodeWaiting", situation, record)
    body = msgspec.structs.replace(situation.body, awaiting=awaiting)
    park = Park(awaiting.due, encode(body), lease.attempt, awaiting.awaits)
    return Step(transition_of(situation, (), (*events, waiting), park), {})


def _started(situation: Situation, child: str, request: ChildRequest) -> NewEvent:
    lease = situation.lease
    data = msgspec.json.encode({"execution": child, "workflow": request.workflow, "attempt": lease.attempt})
    return NewEvent("ChildStarted", lease.node, lease.scope, situation.now, data, lease.token)


# -- what it came to ------------------------------------------------------------------------------------------


def awaiting_in(token: TokenView) -> Awaiting | None:
    """What a parked token waits for from outside; of a node, or of a task that asks people."""
    if token.state != "parked" or token.awaits is None:
        return None
    return decode_task(token.data).awaiting if token.kind == "task" else decode_body(token.data).awaiting


def signal_of(awaiting: Awaiting) -> str | None:
    return awaiting.awaits.removeprefix(SIGNAL) if awaiting.awaits.startswith(SIGNAL) else None


def awaited_child(awaiting: Awaiting) -> str | None:
    return awaiting.awaits.removeprefix(CHILD) if awaiting.awaits.startswith(CHILD) else None


def timed_out(situation: Situation, awaiting: Awaiting) -> Failure:
    """Nobody came in time. A child's time limit is that of an attempt, so the next attempt may have another; waiting
    for the same signal again is what the time limit was meant to end, so that is not tried again."""
    waited = max((awaiting.due or situation.now) - awaiting.since, 0.0)
    child = awaited_child(awaiting)
    if child is not None:
        what, details = f"execution {child} did not end", {"execution": child}
    else:
        name = signal_of(awaiting) or ""
        what, details = f"no signal '{name}' came", {"signal": name}
    return Failure(
        f"node '{situation.lease.node}' gave up after {waited:g} s: {what}",
        code=TIMEOUT,
        type="TimeoutError",
        details=details,
        node=situation.lease.node,
        retryable=child is not None,
    )


def give_up_child(awaiting: Awaiting) -> tuple[WriteOutbox, ...]:
    """Nobody is interested any more in a child that took too long."""
    child = awaited_child(awaiting)
    if child is None:
        return ()
    return (
        order_cancel(CancelOrder(child, "it did not end within the timeout of the node that waited for it")),
    )


def child_failure(node: str, error: Mapping[str, Any]) -> Failure:
    """The child's error is the node's own."""
    details = error.get("details")
    return Failure(
        str(error.get("message") or "the child execution failed"),
        code=str(error.get("code") or "CHILD_FAILED"),
        type=str(error.get("type") or error.get("code") or "ChildFailed"),
        details=details if details is None or isinstance(details, dict) else {"data": details},
        node=node,
    )


# -- children that nobody waits for any more ------------------------------------------------------------------


def awaited_children(inspection: Inspection, ended_scope: str) -> frozenset[str]:
    """The children that something in a living execution still waits for: not what is parked in ``ended_scope``, nor in
    items whose barrier has opened, timed out or been tripped."""
    closed = [
        f"{barrier.scope}/{visit[:16]}:"
        for barrier in inspection.barriers
        if barrier.state != "waiting" and (visit := barrier.id.rpartition("|")[2])
    ]
    if ended_scope:
        closed.append(f"{ended_scope}/")
    return frozenset(
        token.awaits.removeprefix(CHILD)
        for token in inspection.tokens
        if token.awaits is not None
        and token.awaits.startswith(CHILD)
        and not any(f"{token.scope}/".startswith(prefix) for prefix in closed)
    )
