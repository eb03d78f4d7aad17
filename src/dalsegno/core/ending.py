"""How scopes and executions end: what branches leave, what unites them, which value is the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from dalsegno.core.body import Body, ItemResult, encode
from dalsegno.core.context import KEY, VALUE, Context, Entry, reference_name
from dalsegno.core.orders import order_cancel_abandoned, order_cancel_children
from dalsegno.core.situation import Situation, encode_record, system_token
from dalsegno.graph.plan import Edge, Plan
from dalsegno.lang import Meter
from dalsegno.model.effect import EndIfLast, FinishExecution, WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.token import NewToken

REPORTED_ITEMS = 100
"""Splits up to this size report every ended item; larger ones report when their window advances."""
IN_HISTORY = 64 * 1024
"""Bytes of an output that the history tells, too."""


def finisher(situation: Situation) -> NewToken:
    """The token that unites what was left, once nothing in the scope is live."""
    body = Body(loops=situation.body.loops)
    return system_token(situation, "finish", "", "", encode(body))


def leave_key(situation: Situation) -> str:
    return f"{situation.body.path}|{situation.lease.token}"


def branch_ends(situation: Situation, context: Context, finish: FinishExecution | None = None) -> EndIfLast:
    """A branch ends without successor: the root keeps its context, an item keeps nothing."""
    scope = situation.lease.scope
    if scope:
        ghost = encode(ItemResult(None))
        return EndIfLast(scope, finisher(situation), slot_data=ghost, event=item_event(situation))
    left = encode(Body(context=context))
    return EndIfLast(scope, finisher(situation), leave_key(situation), left, finish)


def item_arrives(
    situation: Situation, payload: Entry | None, context: Context, edge: Edge, own: Entry | None
) -> EndIfLast:
    """A branch of an item reaches the aggregator. If it stays the only one, the item ends with ``own`` (the
    aggregator's ``output`` expression) or its payload; several are ordered by in-edge and united later. Where there
    is such an expression but it is not evaluated yet, the finisher does so, in the united context."""
    expressed = own is None and "output" in situation.plan.nodes[edge.dst].parameters.expressions
    result = ItemResult(own) if own is not None else item_result(payload, context, situation.body)
    return EndIfLast(
        situation.lease.scope,
        finisher(situation),
        f"{edge.slot:06d}|{situation.lease.token}",
        encode(Body(context, payload, loops=situation.body.loops)),
        slot_data=encode(result) if not expressed else None,
        event=item_event(situation),
    )


def item_result(payload: Entry | None, context: Context, body: Body) -> ItemResult:
    """The payload as something that means the same outside the item."""
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


def item_event(situation: Situation) -> NewEvent | None:
    """Progress of the aggregator, as long as reporting every item is not a flood."""
    loop = situation.body.loops[-1]
    split = situation.plan.nodes[loop.split]
    if loop.total > REPORTED_ITEMS:
        return None
    scope = situation.lease.scope.rpartition("/")[0]
    return NewEvent("NodeWaiting", split.aggregator or split.id, scope, situation.now)


# -- the execution's own ending -------------------------------------------------------------------------------


def output_roots(plan: Plan) -> frozenset[str]:
    """Which roots must be loaded to know the execution's output."""
    if plan.output is not None:
        return plan.output.roots
    return frozenset(plan.output_nodes or plan.leaves)


def output_value(plan: Plan, lookup: Callable[[str], Any], now: float, meter: Meter | None = None) -> Any:
    """The ``output`` expression, else the output node's or only leaf's output, else an object of the leaves'."""
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
    """With the output, unless that is large: the execution has it, and the history need not have it, too."""
    data = b'{"output":%b}' % output if len(output) <= IN_HISTORY else b'{"output_bytes":%d}' % len(output)
    return NewEvent("ExecutionCompleted", "", "", now, data)


def completed(situation: Situation, context: Context, output: bytes) -> FinishExecution:
    event = completion_event(situation.now, output)
    return FinishExecution("COMPLETED", event, output, encode(Body(context=context)))


def failed(situation: Situation, context: Context, failure: Failure) -> FinishExecution:
    """The execution keeps the traceback, as the event of the node does; the event of the ending need not, too."""
    told = encode_record(failure.as_dict())
    error = told if failure.traceback is None else encode_record(failure.recorded())
    event = NewEvent("ExecutionFailed", failure.node or "", "", situation.now, b'{"error":%b}' % told)
    return FinishExecution("FAILED", event, None, encode(Body(context=context)), error)


def cancel_children(situation: Situation, reason: str) -> tuple[WriteOutbox, ...]:
    """Children do not outlive the failure of the execution that waits for them."""
    if not situation.plan.children:
        return ()
    return (order_cancel_children(situation.lease.execution, reason),)


def cancel_abandoned(situation: Situation, ended_scope: str) -> tuple[WriteOutbox, ...]:
    """Nor that of the branch: the execution goes on, but some of its tokens are dropped."""
    if not situation.plan.children:
        return ()
    lease = situation.lease
    return (order_cancel_abandoned(lease.execution, f"{lease.token}/{lease.attempt}", ended_scope),)


def output_failure(error: Exception) -> Failure:
    return Failure(
        f"the workflow's output expression failed: {error}", code="OUTPUT_FAILED", type="OutputFailed"
    )
