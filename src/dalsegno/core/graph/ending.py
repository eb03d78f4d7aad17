"""Ends of scopes and executions: what branches leave, how it is merged, which value is the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dalsegno.core.graph.step_input import (
    KEY,
    VALUE,
    Body,
    Context,
    Entry,
    ItemResult,
    StepInput,
    encode,
    encode_record,
    reference_name,
    system_token,
)
from dalsegno.core.outbox_orders import order_cancel_abandoned, order_cancel_children
from dalsegno.graph.plan import Edge, Plan
from dalsegno.lang import Meter
from dalsegno.model.effect import EndIfLast, FinishExecution, WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.token import NewToken

REPORTED_ITEMS = 100
"""Splits up to this size report every ended item; larger ones report about so many of them."""
IN_HISTORY = 64 * 1024
"""Bytes of an output up to which the history includes it."""


def finisher(step_input: StepInput) -> NewToken:
    """Return the token that merges what the branches left, once nothing in the scope is live."""
    body = Body(loops=step_input.body.loops)
    return system_token(step_input, "finish", "", "", encode(body))


def leave_key(step_input: StepInput) -> str:
    return f"{step_input.body.path}|{step_input.lease.token}"


def branch_ends(step_input: StepInput, context: Context, finish: FinishExecution | None = None) -> EndIfLast:
    """End a branch without successor: at the root it leaves its context, in an item it leaves nothing."""
    scope = step_input.lease.scope
    if scope:
        nothing = encode(ItemResult(None))
        return EndIfLast(scope, finisher(step_input), slot_data=nothing, event=item_event(step_input))
    left = encode(Body(context=context))
    return EndIfLast(scope, finisher(step_input), leave_key(step_input), left, finish)


def item_arrives(
    step_input: StepInput, payload: Entry | None, context: Context, edge: Edge, own: Entry | None
) -> EndIfLast:
    """Record that a branch of an item has reached the aggregator.

    If it stays the only one, the item ends with ``own`` (the value of the aggregator's ``output`` expression)
    or its payload. Several are ordered by in-edge and merged later. An ``output`` expression that is not
    evaluated yet is evaluated by the finisher, in the merged context.
    """
    is_deferred = own is None and "output" in step_input.plan.nodes[edge.dst].parameters.expressions
    result = ItemResult(own) if own is not None else item_result(payload, context, step_input.body)
    return EndIfLast(
        step_input.lease.scope,
        finisher(step_input),
        f"{edge.slot:06d}|{step_input.lease.token}",
        encode(Body(context, payload, loops=step_input.body.loops)),
        slot_data=encode(result) if not is_deferred else None,
        event=item_event(step_input),
    )


def item_result(payload: Entry | None, context: Context, body: Body) -> ItemResult:
    """Return the payload in a form that is valid outside the item."""
    if payload is None:
        return ItemResult(Entry(VALUE, msgspec.Raw(b"null")))
    if payload.kind == KEY:
        found = context.entries.get(reference_name(payload))
        if found is None:
            return ItemResult(payload, context=context)
        return ItemResult(found)
    if payload.kind > KEY:
        return ItemResult(body.loops[-1].item)
    return ItemResult(payload)


def item_event(step_input: StepInput) -> NewEvent | None:
    """Return the aggregator's progress event, for every item or, in a large split, for one of several."""
    loop = step_input.body.loops[-1]
    split = step_input.plan.nodes[loop.split]
    if loop.index % -(-loop.total // REPORTED_ITEMS):
        return None
    scope = step_input.lease.scope.rpartition("/")[0]
    return NewEvent("NodeWaiting", split.aggregator or split.id, scope, step_input.now)


# -- the execution's own ending -------------------------------------------------------------------------------


def output_roots(plan: Plan) -> frozenset[str]:
    """Return the roots that must be loaded to compute the execution's output."""
    if plan.output is not None:
        return plan.output.roots
    return frozenset(plan.output_nodes or plan.leaves)


def output_value(plan: Plan, lookup: Callable[[str], Any], now: float, meter: Meter | None = None) -> Any:
    """Return the execution's output.

    That is the ``output`` expression's value, else the output node's or only leaf's output, else an object of the
    leaves'.
    """
    if plan.output is not None:
        return plan.output.evaluate(lookup, now=now, meter=meter)
    sources = plan.output_nodes or plan.leaves
    found = {}
    for node in sources:
        try:
            found[node] = lookup(node)
        except KeyError:
            continue
    if len(sources) == 1:
        return found.get(sources[0])
    return found


def completion_event(now: float, output: bytes) -> NewEvent:
    """Return the completion event. A large output is left out: the execution row has it."""
    data = b'{"output":%b}' % output if len(output) <= IN_HISTORY else b'{"output_bytes":%d}' % len(output)
    return NewEvent("ExecutionCompleted", "", "", now, data)


def completed(step_input: StepInput, context: Context, output: bytes) -> FinishExecution:
    event = completion_event(step_input.now, output)
    return FinishExecution("COMPLETED", event, output, encode(Body(context=context)))


def failed(step_input: StepInput, context: Context, failure: Failure) -> FinishExecution:
    """Fail the execution. The execution and the node's event keep the traceback; the event of the ending does not."""
    record = encode_record(failure.as_dict())
    error = record if failure.traceback is None else encode_record(failure.recorded())
    event = NewEvent("ExecutionFailed", failure.node or "", "", step_input.now, b'{"error":%b}' % record)
    return FinishExecution("FAILED", event, None, encode(Body(context=context)), error)


def cancel_children(step_input: StepInput, reason: str) -> tuple[WriteOutbox, ...]:
    """Cancel the children when the execution that waits for them fails."""
    if not step_input.plan.children:
        return ()
    return (order_cancel_children(step_input.lease.execution, reason),)


def cancel_abandoned(step_input: StepInput, ended_scope: str) -> tuple[WriteOutbox, ...]:
    """Cancel the children of dropped branches while the execution continues."""
    if not step_input.plan.children:
        return ()
    lease = step_input.lease
    return (order_cancel_abandoned(lease.execution, f"{lease.token}/{lease.attempt}", ended_scope),)


def output_failure(error: Exception) -> Failure:
    return Failure(
        f"the workflow's output expression failed: {error}", code="OUTPUT_FAILED", type="OutputFailed"
    )
