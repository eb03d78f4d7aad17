"""Splits: items in scopes of their own, opened window by window and collected by the aggregator.

The split's own commit parks the aggregator's join token, live in the split's scope, and opens the first chunk
of items. One *advance* token at a time opens the next chunk: at once until the window is full, afterwards when
half of the window has drained.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dalsegno.core.graph.complete import Run, Step, transition_of
from dalsegno.core.graph.edges import deliver
from dalsegno.core.graph.ending import item_arrives, item_event
from dalsegno.core.graph.step_input import (
    ITEM_ENTRY,
    Body,
    Context,
    Fan,
    ItemResult,
    Loop,
    Result,
    RunRecord,
    StepInput,
    as_page,
    encode,
    encode_record,
    place,
    run_event,
    value,
)
from dalsegno.graph.plan import Node
from dalsegno.model.barrier import BarrierSpec, Milestone
from dalsegno.model.effect import Effect, EndScope, OpenBarrier, OpenScope, SetMilestone, SpawnToken
from dalsegno.model.event import EventKind
from dalsegno.model.ids import barrier_id, derive, item_scope
from dalsegno.model.token import SYSTEM_QUEUE, NewToken

SHARED_INLINE = 256
"""Bytes of the split's context that every item carries inline; a larger context is stored once and referred to."""


def fan_out(
    step_input: StepInput, items: Sequence[Result], array: Result, total: int, window: int, halts: bool
) -> Step:
    """Complete a split with at least one item. ``items`` is the first chunk, ``array`` the whole list."""
    lease, node = step_input.lease, step_input.node
    entry, stores = place(array.raw, f"{lease.token}/items", array.blob)
    fan = Fan(node.id, lease.token, total, window, entry, halts)
    context, pages = as_page(step_input.body.context, f"{lease.token}/page", SHARED_INLINE)
    body = msgspec.structs.replace(step_input.body, context=context)
    effects: list[Effect] = [*stores, *pages, OpenBarrier(split_barrier(step_input, fan, step_input.body))]
    bodies = _open_items(step_input, fan, body, items, effects)
    effects += _next_advance(step_input, msgspec.structs.replace(fan, cursor=len(items)), body)
    record = RunRecord(lease.ready_at, step_input.started_at, lease.attempt, items=total)
    event = run_event("NodeCompleted", step_input, record)
    return Step(transition_of(step_input, effects, (event,)), bodies)


def chunk(total: int, window: int, cursor: int, most: int) -> int:
    """Return how many items the next commit opens.

    The window is filled at first, then refilled by halves. No commit opens more than ``most`` items.
    """
    room = window - cursor if cursor < window else window - window // 2
    return min(most, total - cursor, room)


def advance(step_input: StepInput, fan: Fan, items: Sequence[Result]) -> Step:
    """Open the items from the cursor on and set when the next advance is due."""
    effects: list[Effect] = []
    bodies = _open_items(step_input, fan, step_input.body, items, effects)
    onward = msgspec.structs.replace(fan, cursor=fan.cursor + len(items))
    effects += _next_advance(step_input, onward, step_input.body)
    return Step(transition_of(step_input, effects), bodies)


def _open_items(
    step_input: StepInput, fan: Fan, body: Body, items: Sequence[Result], effects: list[Effect]
) -> dict[str, Body]:
    """Add the effects that open these items; return the bodies of the tokens they start with."""
    bodies: dict[str, Body] = {}
    barrier = _barrier_id(step_input, fan)
    for index, item in enumerate(items, fan.cursor):
        effects += _open_item(step_input, fan, body, barrier, index, item, bodies)
    return bodies


def _open_item(
    step_input: StepInput,
    fan: Fan,
    body: Body,
    barrier: str,
    index: int,
    item: Result,
    bodies: dict[str, Body],
) -> list[Effect]:
    """Open one item: its scope, and what each edge from the split brings into it.

    That is a token, an arrival at a merge, or, at the aggregator, the item itself.
    """
    scope = item_scope(step_input.lease.scope, fan.token, index)
    owner = f"{fan.token}/item/{index}"
    entry, stores = place(item.raw, owner, item.blob)
    loop = Loop(fan.split, index, fan.total, entry, fan.halts)
    inner = Body(_inner_context(body.context), ITEM_ENTRY, "", (*body.loops, loop))
    effects: list[Effect] = [*stores, OpenScope(scope, barrier, index)]
    split = step_input.plan.nodes[fan.split]
    inside = _inside(step_input, fan, scope, index, inner)
    for edge in split.success_edges:
        if step_input.plan.nodes[edge.dst].control == "aggregator":
            effects.append(item_arrives(inside, ITEM_ENTRY, inner.context, edge, None))
            continue
        start = inner if not split.forks else msgspec.structs.replace(inner, path=f"{edge.position:04x}")
        sent = deliver(inside, edge, start, source_closes=True)
        if isinstance(sent[0], SpawnToken):
            bodies[sent[0].token.id] = start
        effects += sent
    if not split.success_edges:
        # Nothing will ever be live in this scope: the item ends as it begins.
        effects.append(EndScope(scope, encode(ItemResult(None)), event=item_event(inside)))
    return effects


def _inside(step_input: StepInput, fan: Fan, scope: str, index: int, body: Body) -> StepInput:
    """Return the step input inside an item: what starts there is named by the split's token and the item's index."""
    lease = msgspec.structs.replace(
        step_input.lease, token=derive(fan.token, "item", str(index)), scope=scope
    )
    return StepInput(step_input.plan, lease, body, step_input.now, step_input.started_at)


def _inner_context(context: Context) -> Context:
    """Return the item's context: its working payload is the item, regardless of edits before the split."""
    if "$json" not in context.entries and not context.pages:
        return context
    return Context({**context.entries, "$json": ITEM_ENTRY}, context.pages, context.size)


def _next_advance(step_input: StepInput, fan: Fan, body: Body) -> list[Effect]:
    if fan.cursor >= fan.total:
        return []
    lease = step_input.lease
    token = NewToken(
        derive(fan.token, "advance", str(fan.cursor)),
        lease.scope,
        "advance",
        fan.split,
        encode(Body(body.context, body.payload, body.path, body.loops, fan=fan)),
        SYSTEM_QUEUE,
        lease.priority,
        live=False,
    )
    if fan.cursor < fan.window:
        return [SpawnToken(token)]
    resolved = fan.cursor - fan.window // 2
    return [SetMilestone(_barrier_id(step_input, fan), Milestone(resolved, token))]


def _barrier_id(step_input: StepInput, fan: Fan) -> str:
    return barrier_id(step_input.lease.epoch, step_input.lease.scope, fan.split, fan.token)


def split_barrier(step_input: StepInput, fan: Fan, body: Body) -> BarrierSpec:
    """Return the split's barrier.

    Without an aggregator the split itself waits for its items, which keeps the outer scope open.
    """
    lease = step_input.lease
    node = _join_node(step_input, fan)
    return BarrierSpec(
        _barrier_id(step_input, fan),
        lease.scope,
        node.id,
        fan.total,
        join_token(step_input, fan, body),
        timeout=node.merge_timeout,
        live_at_once=True,
    )


def _join_node(step_input: StepInput, fan: Fan) -> Node:
    split = step_input.plan.nodes[fan.split]
    return step_input.plan.nodes[split.aggregator] if split.aggregator is not None else split


def join_token(step_input: StepInput, fan: Fan, body: Body) -> NewToken:
    lease = step_input.lease
    inner = Body(body.context, body.payload, body.path, body.loops, fan=fan)
    node = _join_node(step_input, fan)
    return NewToken(
        derive(fan.token, "join"), lease.scope, "join", node.id, encode(inner), SYSTEM_QUEUE, lease.priority
    )


def empty(step_input: StepInput, run: Run) -> Step:
    """Complete a split without items, or one whose failure is ignored: go straight to the aggregator with ``[]``."""
    lease, node = step_input.lease, step_input.node
    error = encode_record(run.failure.as_dict()) if run.failure is not None else None
    fan = Fan(
        node.id, lease.token, 0, 1, value(b"[]"), False, error=value(error) if error is not None else None
    )
    record = RunRecord(
        lease.ready_at,
        step_input.started_at,
        lease.attempt,
        error=run.failure.recorded() if run.failure is not None else None,
        tripped=run.failure is not None and step_input.tripped,
    )
    kind: EventKind = "NodeCompleted" if run.failure is None else "NodeFailed"
    effects = (SpawnToken(join_token(step_input, fan, step_input.body)),)
    return Step(transition_of(step_input, effects, (run_event(kind, step_input, record),)), {})
