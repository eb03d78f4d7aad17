"""External waits: nodes that wait for a signal, a decision, a child execution, or a time.

- The token is parked with what it waits for, or with what it will output when it wakes. No worker is held.
- An arrival wakes it with the reason ``arrival``; its time limit wakes it with another.
- A decision on an approval must fit the form that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.complete import Step, transition_of
from dalsegno.core.graph.step_input import (
    Awaiting,
    Result,
    RunRecord,
    StepInput,
    decode_body,
    encode,
    run_event,
    value,
)
from dalsegno.core.outbox_orders import CancelOrder, Notice, StartOrder, order_cancel, order_start
from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.errors import Finding, InvalidInput
from dalsegno.graph.documents.document import LIGHT_SCHEMA_STEPS
from dalsegno.lang.durations import duration_text
from dalsegno.lang.runtime.limits import Heavy, is_light
from dalsegno.model.effect import WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.ids import child_execution_id
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView
from dalsegno.model.transition import Park

CHILD = "child:"
"""Prefix of ``awaits`` for a child execution; its id follows."""

TIMEOUT = "TIMEOUT"


class ChildRequest(Struct, frozen=True):
    """The child execution that a node starts."""

    workflow: str
    input: bytes
    version: int | str | None = None
    definition: str | None = None


# -- start of a wait
# ---------------------------------------------------------------------------------------------


def await_signal(
    step_input: StepInput, name: str, due: float | None, question: dict[str, Any] | None = None
) -> Step:
    """Wait for a signal. One that is in the mailbox already wakes the token in the same commit."""
    return _park(step_input, Awaiting(SIGNAL + name, step_input.now, due, question))


def await_child(step_input: StepInput, request: ChildRequest, due: float | None) -> Step:
    """Order the child and wait for its end, in one commit."""
    child = child_of(step_input)
    step_input.orders += (order_start(_order(step_input, child, request, waits=True)),)
    step_input.events += (_started(step_input, child, request),)
    return _park(step_input, Awaiting(CHILD + child, step_input.now, due))


def wait_on(step_input: StepInput, awaiting: Awaiting, problem: Failure) -> Step:
    """Record that what arrived was unusable, and wait for the next arrival."""
    return _park(step_input, awaiting, problem=problem)


def start_detached(step_input: StepInput, request: ChildRequest) -> str:
    """Order an execution that has no waiting parent and outlives this one; return its id."""
    child = child_of(step_input)
    step_input.orders += (order_start(_order(step_input, child, request, waits=False)),)
    step_input.events += (_started(step_input, child, request, detached=True),)
    return child


def child_of(step_input: StepInput) -> str:
    """Return the id of the execution a node starts: known before it exists, and different for every attempt."""
    lease = step_input.lease
    cause = lease.token if lease.attempt == 1 else f"{lease.token}/{lease.attempt}"
    return child_execution_id(lease.execution, cause)


def _order(step_input: StepInput, child: str, request: ChildRequest, *, waits: bool) -> StartOrder:
    lease = step_input.lease
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


def _park(step_input: StepInput, awaiting: Awaiting, *, problem: Failure | None = None) -> Step:
    lease = step_input.lease
    record = RunRecord(
        lease.ready_at,
        step_input.started_at,
        lease.attempt,
        error=problem.as_dict() if problem is not None else None,
        signal=signal_of(awaiting),
        child=awaited_child(awaiting),
        due=awaiting.due,
        question=awaiting.question,
    )
    waiting = run_event("NodeWaiting", step_input, record)
    body = msgspec.structs.replace(step_input.body, awaiting=awaiting)
    park = Park(awaiting.due, encode(body), lease.attempt, awaiting.awaits)
    return Step(transition_of(step_input, (), (waiting,), park), {})


def _started(step_input: StepInput, child: str, request: ChildRequest, *, detached: bool = False) -> NewEvent:
    lease = step_input.lease
    fields: dict[str, Any] = {"execution": child, "workflow": request.workflow, "attempt": lease.attempt}
    if detached:
        fields["detached"] = True
    data = msgspec.json.encode(fields)
    return NewEvent("ChildStarted", lease.node, lease.scope, step_input.now, data, lease.token)


# -- end of a wait
# -----------------------------------------------------------------------------------------------


def awaiting_in(token: TokenView) -> Awaiting | None:
    """Return what a parked node, or a task that asks people, waits for from outside."""
    if token.state != "parked" or token.awaits is None:
        return None
    return decode_task(token.data).awaiting if token.kind == "task" else decode_body(token.data).awaiting


def signal_of(awaiting: Awaiting) -> str | None:
    return awaiting.awaits.removeprefix(SIGNAL) if awaiting.awaits.startswith(SIGNAL) else None


def awaited_child(awaiting: Awaiting) -> str | None:
    return awaiting.awaits.removeprefix(CHILD) if awaiting.awaits.startswith(CHILD) else None


def timed_out(step_input: StepInput, awaiting: Awaiting) -> Failure:
    """Return the failure of a wait that timed out.

    A child's time limit applies to the attempt, so the next attempt gets a new one. A signal's time limit ends
    the wait, so it is not retried.
    """
    waited = max((awaiting.due or step_input.now) - awaiting.since, 0.0)
    child = awaited_child(awaiting)
    if awaiting.question is not None:
        message = awaiting.question.get("message")
        what = f" without a decision{f': {message}' if message else ''}"
        details = {"signal": signal_of(awaiting) or ""}
    elif child is not None:
        what, details = f": execution {child} did not end", {"execution": child}
    else:
        name = signal_of(awaiting) or ""
        what, details = f": signal '{name}' did not arrive", {"signal": name}
    return Failure(
        f"node '{step_input.lease.node}' gave up after {duration_text(waited)}{what}",
        code=TIMEOUT,
        type="TimeoutError",
        details=details,
        node=step_input.lease.node,
        retryable=child is not None,
    )


def give_up_child(awaiting: Awaiting) -> tuple[WriteOutbox, ...]:
    """Cancel a child that took too long."""
    child = awaited_child(awaiting)
    if child is None:
        return ()
    return (
        order_cancel(CancelOrder(child, "it did not end within the timeout of the node that waited for it")),
    )


def child_failure(node: str, error: Mapping[str, Any]) -> Failure:
    """Return the child's error as the node's own failure."""
    details = error.get("details")
    return Failure(
        str(error.get("message") or "the child execution failed"),
        code=str(error.get("code") or "CHILD_FAILED"),
        type=str(error.get("type") or error.get("code") or "ChildFailed"),
        details=details if details is None or isinstance(details, dict) else {"data": details},
        node=node,
    )


# -- abandoned children
# ------------------------------------------------------------------------------------------


def awaited_children(inspection: Inspection, ended_scope: str) -> frozenset[str]:
    """Return the children that a living execution still waits for.

    Excluded are the waits in ``ended_scope``, and those in items whose barrier has opened, timed out or been
    tripped.
    """
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


def sleep(step_input: StepInput, due: float, output: Result) -> Step:
    """Park the token until ``due``. The success is recorded when it wakes, before the successor runs."""
    lease = step_input.lease
    body = msgspec.structs.replace(step_input.body, sleeping=value(output.raw))
    record = RunRecord(lease.ready_at, step_input.started_at, lease.attempt, resume_at=due)
    event = run_event("NodeWaiting", step_input, record)
    return Step(transition_of(step_input, (), (event,), Park(due, encode(body), lease.attempt)), {})


APPROVED, REJECTED = "approved", "rejected"
DECISIONS = (APPROVED, REJECTED)
_FIELDS = ("decision", "data", "by", "comment")
_SHAPE = 'a decision is an object such as {"decision": "approved", "data": {…}, "by": "ann"}'
_LONGEST_NAME = 500
LONGEST_COMMENT = 10_000


def check_decision(form: Mapping[str, Any] | None, payload: Any) -> dict[str, Any]:
    """Return the decision as the node outputs it (see `read_decision`).

    An approval's data must fit the form. A rejection needs no data, and any it has is not checked. Raises
    InvalidInput, which says what is wrong, and Heavy if the check exceeds the step budget of a light step.
    """
    decision = read_decision(payload)
    if form and needs_form(decision):
        found = _form_problems(form, decision["data"])
        refuse_problems(form, decision["data"], [(each.pointer, each.message) for each in found])
    return decision


def _form_problems(form: Mapping[str, Any], data: Any) -> list[Finding]:
    from dalsegno.graph.json_schema import shape  # noqa: PLC0415 - only approvals with a form need it

    if not is_light.get():
        return shape.check_input(form, data)
    found = shape.found_within(form, data, LIGHT_SCHEMA_STEPS, is_light=True)
    if found is None:
        raise Heavy
    return found


def read_decision(payload: Any) -> dict[str, Any]:
    """Return ``{decision, data, by}``, and ``comment`` if there is one, without checking the form."""
    if not isinstance(payload, dict):
        raise InvalidInput(f"this is not a decision: {_SHAPE}")
    unknown = sorted(set(payload) - set(_FIELDS))
    if unknown:
        raise InvalidInput(f"a decision has no field '{unknown[0][:100]}': {_SHAPE}")
    decision, data, by, comment = (payload.get(name) for name in _FIELDS)
    if decision not in DECISIONS:
        raise InvalidInput(f"'decision' must be 'approved' or 'rejected', not {_shown(decision)}")
    if by is not None and (not isinstance(by, str) or len(by) > _LONGEST_NAME):
        raise InvalidInput(f"'by' must be a text of at most {_LONGEST_NAME} characters: who decided")
    if comment is not None and (not isinstance(comment, str) or len(comment) > LONGEST_COMMENT):
        raise InvalidInput(f"'comment' must be a text of at most {LONGEST_COMMENT:,} characters")
    found = {"decision": decision, "data": data, "by": by}
    return found if comment is None else {**found, "comment": comment}


def for_program(decision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decision as scripts and Python workflows see it: with every field, and ``approved`` as a boolean."""
    return {"approved": decision["decision"] == APPROVED, "comment": None, **decision}


def needs_form(decision: Mapping[str, Any]) -> bool:
    """Return True for an approval: a rejection need not fill in the form."""
    return bool(decision["decision"] == APPROVED)


def refuse_problems(form: Mapping[str, Any], data: Any, problems: Sequence[tuple[str, str]]) -> None:
    """Raise InvalidInput if there are problems. It names the form's fields if required ones are missing."""
    if not problems:
        return
    required = required_fields(form)
    if data is None and required:
        problems = [("", f"'{name}' is a required property") for name in required]
    head = "the decision has no data, and its form needs some" if data is None else _UNFIT
    findings = [Finding(f"/data{pointer}", "form", message) for pointer, message in problems]
    lines = [f"{head}:", *(f"{each.pointer}: {each.message}" for each in findings)]
    fields = _described_fields(form)
    if fields and (not isinstance(data, dict) or any(name not in data for name in required)):
        lines.append(f"Fields of the form: {', '.join(fields)}")
    raise InvalidInput.at("\n".join(lines), findings)


_UNFIT = "the decision's data do not fit the form"


def required_fields(form: Mapping[str, Any]) -> list[str]:
    named = form.get("required")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


def _described_fields(form: Mapping[str, Any]) -> list[str]:
    properties = form.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = required_fields(form)
    names = dict.fromkeys((*known, *required))
    return [_described_field(name, known.get(name), required=name in required) for name in names]


def _described_field(name: str, schema: Any, *, required: bool) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    words = [kind] if isinstance(kind, str) else []
    return f"{name} ({', '.join([*words, 'required' if required else 'optional'])})"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
