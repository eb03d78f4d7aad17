"""Splits: items in scopes of their own, opened window by window and collected by the aggregator.

The split's own commit parks the aggregator's join token, live in the split's scope, and opens the first chunk
of items. One *advance* token at a time opens the next chunk: at once until the window is full, afterwards when
half of the window has drained.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dalsegno.core.graph.complete import Run, Step, transition_of
from dalsegno.core.graph.context import THE_ITEM, Context, as_page, place, value
from dalsegno.core.graph.edges import deliver
from dalsegno.core.graph.ending import item_arrives, item_event
from dalsegno.core.graph.step_input import Result, RunRecord, StepInput, encode_record, run_event
from dalsegno.core.graph.token_body import Body, Fan, ItemResult, Loop, encode
from dalsegno.graph.plan import Node
from dalsegno.model.barrier import BarrierSpec, Milestone
from dalsegno.model.effect import Effect, EndScope, OpenBarrier, OpenScope, SetMilestone, SpawnToken
from dalsegno.model.event import EventKind
from dalsegno.model.ids import barrier_id, derive, item_scope
from dalsegno.model.token import SYSTEM_QUEUE, NewToken

SHARED_INLINE = 256
"""Bytes of the split's context that every item carries inline; a larger context is stored once and referred to."""


def fan_out(
    situation: StepInput, items: Sequence[Result], array: Result, total: int, window: int, halts: bool
) -> Step:
    """Complete a split with at least one item. ``items`` is the first chunk, ``array`` the whole list."""
    lease, node = situation.lease, situation.node
    entry, stores = place(array.raw, f"{lease.token}/items", array.blob)
    fan = Fan(node.id, lease.token, total, window, entry, halts)
    context, pages = as_page(situation.body.context, f"{lease.token}/page", SHARED_INLINE)
    body = msgspec.structs.replace(situation.body, context=context)
    effects: list[Effect] = [*stores, *pages, OpenBarrier(_barrier(situation, fan, situation.body))]
    bodies = _open_items(situation, fan, body, items, effects)
    effects += _next_advance(situation, msgspec.structs.replace(fan, cursor=len(items)), body)
    record = RunRecord(lease.ready_at, situation.started_at, lease.attempt)
    event = run_event("NodeCompleted", situation, record)
    return Step(transition_of(situation, effects, (event,)), bodies)


def chunk(total: int, window: int, cursor: int, most: int) -> int:
    """Return how many items the next commit opens.

    The window is filled at first, then refilled by halves. No commit opens more than ``most`` items.
    """
    room = window - cursor if cursor < window else window - window // 2
    return min(most, total - cursor, room)


def advance(situation: StepInput, fan: Fan, items: Sequence[Result]) -> Step:
    """Open the items from the cursor on and set when the next advance is due."""
    effects: list[Effect] = []
    bodies = _open_items(situation, fan, situation.body, items, effects)
    onward = msgspec.structs.replace(fan, cursor=fan.cursor + len(items))
    effects += _next_advance(situation, onward, situation.body)
    return Step(transition_of(situation, effects), bodies)


def _open_items(
    situation: StepInput, fan: Fan, body: Body, items: Sequence[Result], effects: list[Effect]
) -> dict[str, Body]:
    """Add the effects that open these items; return the bodies of the tokens they start with."""
    bodies: dict[str, Body] = {}
    for position, item in enumerate(items):
        opened = _open_item(situation, fan, body, fan.cursor + position, item, bodies)
        effects += opened
    return bodies


def _open_item(
    situation: StepInput, fan: Fan, body: Body, index: int, item: Result, bodies: dict[str, Body]
) -> list[Effect]:
    """Open one item: its scope, and what each edge from the split brings into it.

    That is a token, an arrival at a merge, or, at the aggregator, the item itself.
    """
    scope = item_scope(situation.lease.scope, fan.token, index)
    owner = f"{fan.token}/item/{index}"
    entry, stores = place(item.raw, owner, item.blob)
    loop = Loop(fan.split, index, fan.total, entry, fan.halts)
    inner = Body(_inner_context(body.context), THE_ITEM, "", (*body.loops, loop))
    effects: list[Effect] = [*stores, OpenScope(scope, _barrier_id(situation, fan), index)]
    split = situation.plan.nodes[fan.split]
    inside = _inside(situation, fan, scope, index, inner)
    for edge in split.success_edges:
        if situation.plan.nodes[edge.dst].control == "aggregator":
            effects.append(item_arrives(inside, THE_ITEM, inner.context, edge, None))
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


def _inside(situation: StepInput, fan: Fan, scope: str, index: int, body: Body) -> StepInput:
    """Return the step input inside an item: what starts there is named by the split's token and the item's index."""
    lease = msgspec.structs.replace(situation.lease, token=derive(fan.token, "item", str(index)), scope=scope)
    return StepInput(situation.plan, lease, body, situation.now, situation.started_at)


def _inner_context(context: Context) -> Context:
    """Return the item's context: its working payload is the item, whatever was edited before the split."""
    if "$json" not in context.entries and not context.pages:
        return context
    return Context({**context.entries, "$json": THE_ITEM}, context.pages, context.size)


def _next_advance(situation: StepInput, fan: Fan, body: Body) -> list[Effect]:
    if fan.cursor >= fan.total:
        return []
    lease = situation.lease
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
    return [SetMilestone(_barrier_id(situation, fan), Milestone(resolved, token))]


def _barrier_id(situation: StepInput, fan: Fan) -> str:
    return barrier_id(situation.lease.epoch, situation.lease.scope, fan.split, fan.token)


def _barrier(situation: StepInput, fan: Fan, body: Body) -> BarrierSpec:
    """Return the split's barrier.

    Without an aggregator the split itself waits for its items, which keeps the outer scope open.
    """
    lease = situation.lease
    node = _meeting_node(situation, fan)
    return BarrierSpec(
        _barrier_id(situation, fan),
        lease.scope,
        node.id,
        fan.total,
        join_token(situation, fan, body),
        timeout=node.merge_timeout,
        live_at_once=True,
    )


def _meeting_node(situation: StepInput, fan: Fan) -> Node:
    split = situation.plan.nodes[fan.split]
    return situation.plan.nodes[split.aggregator] if split.aggregator is not None else split


def join_token(situation: StepInput, fan: Fan, body: Body) -> NewToken:
    lease = situation.lease
    inner = Body(body.context, body.payload, body.path, body.loops, fan=fan)
    node = _meeting_node(situation, fan)
    return NewToken(
        derive(fan.token, "join"), lease.scope, "join", node.id, encode(inner), SYSTEM_QUEUE, lease.priority
    )


def empty(situation: StepInput, run: Run) -> Step:
    """Complete a split without items, or one whose failure is ignored: go straight to the aggregator with ``[]``."""
    lease, node = situation.lease, situation.node
    error = encode_record(run.failure.as_dict()) if run.failure is not None else None
    fan = Fan(
        node.id, lease.token, 0, 1, value(b"[]"), False, error=value(error) if error is not None else None
    )
    record = RunRecord(
        lease.ready_at,
        situation.started_at,
        lease.attempt,
        error=run.failure.recorded() if run.failure is not None else None,
        tripped=run.failure is not None and situation.tripped,
    )
    kind: EventKind = "NodeCompleted" if run.failure is None else "NodeFailed"
    effects = (SpawnToken(join_token(situation, fan, situation.body)),)
    return Step(transition_of(situation, effects, (run_event(kind, situation, record),)), {})
