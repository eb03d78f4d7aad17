"""Adoption: what a message of another program becomes, as a transition of the execution that it names.

- A message begins an execution, or arrives in one that exists. It is taken in once, by its id.
- Without a sender it starts all successors of a trigger, or all nodes without inputs, once; or it uses the only input.
- With a sender it arrives over that sender's edge: at a barrier in the edge's slot, at an aggregator it ends its item,
  elsewhere it is a visit.
- Scopes that its lineage names and that are not open are opened; nothing else is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.edges import deliver, gate_of, token_over
from dalsegno.core.graph.ending import finisher, item_event, item_result
from dalsegno.core.graph.join import JOIN_TIMEOUT
from dalsegno.core.graph.split import split_barrier
from dalsegno.core.graph.start import deadline_token, entry_path, entry_token
from dalsegno.core.graph.step_input import (
    KEY,
    Body,
    Context,
    Entry,
    Fan,
    Loop,
    StepInput,
    context_of,
    encode,
    encode_record,
    key_of,
    place,
    reference,
    value,
)
from dalsegno.core.pending import submit
from dalsegno.core.wire.execution_message import ExecutionMessage, Frame, InvalidMessage
from dalsegno.core.wire.statuses import utc_text
from dalsegno.graph.plan import Edge, Node, Plan
from dalsegno.model.effect import (
    AdjustGate,
    CreateExecution,
    Effect,
    EndScope,
    OpenBarrier,
    OpenScope,
    ResolveSlot,
    SpawnToken,
    StoreOutput,
    TakeMessage,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import barrier_id, derive, item_scope
from dalsegno.model.limits import Concurrency
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition

WORKFLOW_ID = "workflow_id"
"""Tag of an adopted execution: the id of the workflow in the words of the program that started it."""
ITEM_KEYS = frozenset(("$item", "$index"))
"""Context keys that an item's scope provides itself."""


class Arrival(Struct, frozen=True):
    """Where a message arrives.

    trigger: all successors of a trigger start · entries: all nodes without inputs start · edge: a token arrives over
    ``edge`` · woken: a wait node whose time another program has kept counts as run.
    """

    kind: Literal["trigger", "entries", "edge", "woken"]
    node: str
    edge: Edge | None = None

    def id(self, message: str) -> str:
        """Return the id under which it is taken in once."""
        return f"{self.kind}:{self.node}" if self.kind in ("trigger", "entries") else message


def arrival_of(plan: Plan, message: ExecutionMessage, *, timer: bool = False) -> Arrival:
    """Return where a message arrives; raise `InvalidMessage`."""
    node = plan.nodes.get(message.current_node)
    if node is None:
        what = f"the definition has no node '{message.current_node}'."
        raise InvalidMessage.at("/current_node", "UNKNOWN_NODE", what)
    if timer and node.control == "wait":
        arrival = Arrival("woken", node.id)
    elif message.from_node:
        arrival = Arrival("edge", node.id, _edge_from(node, message.from_node, message.edge_id))
    else:
        arrival = _without_sender(plan, node, message.edge_id)
    _check_lineage(plan, node, arrival, message.frames)
    return arrival


def _edge_from(node: Node, sender: str, named: str | None) -> Edge:
    edges = [edge for edge in node.in_edges if edge.src == sender]
    if not edges:
        what = f"no edge leads from '{sender}' to '{node.id}'."
        raise InvalidMessage.at("/from_node", "NOT_A_PARENT", what)
    if named is None:
        return edges[0]
    for edge in edges:
        if edge.id == named:
            return edge
    what = f"the edge '{named}' does not lead from '{sender}' to '{node.id}'."
    raise InvalidMessage.at("/edge_id", "NOT_A_PARENT", what)


def _without_sender(plan: Plan, node: Node, named: str | None) -> Arrival:
    if node.id in plan.triggers:
        return Arrival("trigger", node.id)
    for edge in node.in_edges:
        if edge.src in plan.triggers:
            return Arrival("trigger", edge.src)
    if not node.in_edges:
        return Arrival("entries", "")
    if len(node.in_edges) == 1:
        return Arrival("edge", node.id, node.in_edges[0])
    for edge in node.in_edges:
        if edge.id == named:
            return Arrival("edge", node.id, edge)
    senders = ", ".join(dict.fromkeys(f"'{edge.src}'" for edge in node.in_edges))
    what = f"node '{node.id}' has several inputs, so the message must name its sender: {senders}."
    raise InvalidMessage.at("/from_node", "NO_SENDER", what)


def splits_around(plan: Plan, node: Node) -> tuple[str, ...]:
    """Return the splits in whose items a message for this node arrives, outermost first."""
    found: list[str] = []
    split = node.collects if node.control == "aggregator" else node.split
    while split is not None:
        found.append(split)
        split = plan.nodes[split].split
    return tuple(reversed(found))


def _check_lineage(plan: Plan, node: Node, arrival: Arrival, frames: Sequence[Frame]) -> None:
    around = () if arrival.kind in ("trigger", "entries") else splits_around(plan, node)
    if len(frames) != len(around):
        inside = " inside ".join(f"'{name}'" for name in reversed(around)) or "no split"
        what = (
            f"node '{node.id}' is inside {inside}, so the stack has {len(around)} entries, not {len(frames)}."
        )
        raise InvalidMessage.at("/lineage_stack", "WRONG_LINEAGE", what)
    for number, (frame, split) in enumerate(zip(frames, around, strict=True)):
        if frame.split_node_id != split:
            what = f"this is '{frame.split_node_id}', but the split there is '{split}'."
            raise InvalidMessage.at(f"/lineage_stack/{number}/split_node_id", "WRONG_LINEAGE", what)
        if frame.item_index >= frame.total_items:
            what = f"item {frame.item_index} is not among {frame.total_items} items, which count from 0."
            raise InvalidMessage.at(f"/lineage_stack/{number}/item_index", "WRONG_LINEAGE", what)


# -- scopes ----------------------------------------------------------------------------------------------------


class Scope(Struct, frozen=True):
    """One split of a message's lineage, as the execution knows it."""

    frame: Frame
    parent: str
    """The scope the split is in."""
    token: str
    """The split's token: part of the names of its barrier and its items."""
    is_open: bool
    """The split's barrier exists."""

    def barrier(self, epoch: int) -> str:
        return barrier_id(epoch, self.parent, self.frame.split_node_id, self.token)

    @property
    def path(self) -> str:
        return item_scope(self.parent, self.token, self.frame.item_index)


def adopted_split(execution: str, parent: str, split: str) -> str:
    """Return the token that stands for a split which never ran here: messages name its items."""
    return derive(execution, "adopted", parent, split)


def barrier_prefix(epoch: int, parent: str, split: str) -> str:
    """Return the beginning of the ids of a split's barriers in a scope; the split's token follows."""
    return barrier_id(epoch, parent, split)


def check_total(number: int, frame: Frame, expected: int) -> None:
    """Raise `InvalidMessage` unless the split has as many items as a message says."""
    if frame.total_items != expected:
        what = f"split '{frame.split_node_id}' has {expected} items, not {frame.total_items}."
        raise InvalidMessage.at(f"/lineage_stack/{number}/total_items", "WRONG_LINEAGE", what)


# -- transitions -----------------------------------------------------------------------------------------------


class Adopted(Struct, frozen=True, omit_defaults=True):
    """What the start of an adopted execution records about the message."""

    workflow_id: str
    node: str
    keys: tuple[str, ...] = ()
    """Keys of the message's context."""
    from_node: str | None = None


class StartRecord(Struct, frozen=True):
    input: Raw
    adopted: Adopted


def begin(
    plan: Plan, new: NewExecution, message: ExecutionMessage, arrival: Arrival, id: str, now: float
) -> Transition:
    """Create the execution and what the message starts in it."""
    scopes: list[Scope] = []
    parent = ""
    for frame in message.frames:
        scope = Scope(frame, parent, adopted_split(new.id, parent, frame.split_node_id), is_open=False)
        scopes.append(scope)
        parent = scope.path
    effects, events = _effects(
        plan, _lease(new.id, new.definition, new.priority, 0, now), message, arrival, id, scopes
    )
    first = (CreateExecution(new), TakeMessage(arrival.id(id), parent))
    if plan.timeout is not None:
        effects.append(SpawnToken(deadline_token(new, now + plan.timeout)))
    started = NewEvent("ExecutionStarted", "", "", now, _start_record(new, message))
    return Transition(new.id, (*first, *effects), (started, *events))


def _start_record(new: NewExecution, message: ExecutionMessage) -> bytes:
    keys = tuple(message.context)
    adopted = Adopted(message.workflow_id, message.current_node, keys, message.from_node or None)
    return encode_record(StartRecord(Raw(new.input), adopted))


def is_plain_start(plan: Plan, message: ExecutionMessage, arrival: Arrival) -> bool:
    """Return True for a message that starts what a start without a message would, and brings nothing else."""
    if arrival.kind not in ("trigger", "entries") or len(plan.triggers) > 1:
        return False
    return message.context.keys() <= {"$trigger"}


def begin_in_line(
    new: NewExecution, message: ExecutionMessage, arrival: Arrival, id: str, now: float, limit: Concurrency
) -> Transition:
    """Create an execution that begins when its workflow's limit allows."""
    submitted = submit(new, now, limit=limit)
    created, *rest = submitted.effects
    noted = NewEvent("ExecutionSubmitted", "", "", now, _start_record(new, message))
    return msgspec.structs.replace(
        submitted, effects=(created, TakeMessage(arrival.id(id)), *rest), events=(noted,)
    )


class Target(Struct, frozen=True):
    """A running execution, as far as an arrival needs it."""

    execution: str
    definition: str
    priority: int
    epoch: int


def join(
    plan: Plan,
    target: Target,
    message: ExecutionMessage,
    arrival: Arrival,
    id: str,
    scopes: Sequence[Scope],
    now: float,
) -> Transition:
    """Let the message arrive in a running execution."""
    lease = _lease(target.execution, target.definition, target.priority, target.epoch, now)
    effects, events = _effects(plan, lease, message, arrival, id, scopes)
    barriers = tuple(scope.barrier(target.epoch) for scope in scopes)
    taken = TakeMessage(arrival.id(id), scopes[-1].path if scopes else "", barriers)
    return Transition(target.execution, (taken, *effects), tuple(events), epoch=target.epoch)


def _lease(execution: str, definition: str, priority: int, epoch: int, now: float) -> Lease:
    """Return a stand-in for the token that would have caused this: the message has none."""
    return Lease(
        token=execution,
        execution=execution,
        fence=0,
        scope="",
        kind="node",
        node="",
        data=b"",
        queue="",
        priority=priority,
        attempt=1,
        losses=0,
        reason="",
        ready_at=now,
        definition=definition,
        epoch=epoch,
    )


def _effects(
    plan: Plan, lease: Lease, message: ExecutionMessage, arrival: Arrival, id: str, scopes: Sequence[Scope]
) -> tuple[list[Effect], list[NewEvent]]:
    now = lease.ready_at
    cause = derive(lease.execution, "message", arrival.id(id))
    context, stores = read_context(message, cause, inside=bool(scopes))
    opening = _Opening(plan, lease, context, message.context, cause, now)
    for scope in scopes:
        opening.open(scope)
    inner = msgspec.structs.replace(lease, token=cause, scope=scopes[-1].path if scopes else "")
    body = Body(context, _payload(message, arrival), "", opening.loops)
    step_input = StepInput(plan, inner, body, now, now)
    effects: list[Effect] = [*stores, *opening.effects, *_arriving(step_input, arrival, body, now)]
    return effects, opening.events


def read_context(message: ExecutionMessage, cause: str, *, inside: bool) -> tuple[Context, list[StoreOutput]]:
    """Return the context of the token that a message makes. Without ``$trigger`` the start payload is ``{}``."""
    given: dict[str, Any] = {"$trigger": message.trigger, **message.context}
    entries: list[tuple[str, Entry]] = []
    stores: list[StoreOutput] = []
    for key, raw in given.items():
        if inside and key in ITEM_KEYS:
            continue
        entry, stored = place(bytes(raw), f"{cause}/{key}", None)
        entries.append((key, entry))
        stores += stored
    context, pages = context_of(entries, cause)
    return context, [*stores, *pages]


def _payload(message: ExecutionMessage, arrival: Arrival) -> Entry:
    sender = arrival.edge.src if arrival.edge is not None else message.from_node
    if sender and key_of(sender) in message.context:
        return reference(KEY, key_of(sender))
    return reference(KEY, "$trigger")


class _Opening:
    """Opens the scopes of a message, outermost first."""

    def __init__(
        self, plan: Plan, lease: Lease, context: Context, given: dict[str, Raw], cause: str, now: float
    ) -> None:
        self.plan = plan
        self.lease = lease
        self.context = context
        self.given = given
        self.cause = cause
        self.now = now
        self.loops: tuple[Loop, ...] = ()
        self.effects: list[Effect] = []
        self.events: list[NewEvent] = []

    def open(self, scope: Scope) -> None:
        split, total = self.plan.nodes[scope.frame.split_node_id], scope.frame.total_items
        halts = halts_items(split)
        if not scope.is_open:
            self._open_split(split, scope, total, halts)
        barrier = scope.barrier(self.lease.epoch)
        self.effects.append(OpenScope(scope.path, barrier, scope.frame.item_index))
        self.loops = (*self.loops, Loop(split.id, scope.frame.item_index, total, self._item(scope), halts))

    def _open_split(self, split: Node, scope: Scope, total: int, halts: bool) -> None:
        lease = msgspec.structs.replace(self.lease, scope=scope.parent, token=scope.token)
        body = Body(self.context, reference(KEY, "$trigger"), "", self.loops)
        step_input = StepInput(self.plan, lease, body, self.now, self.now)
        fan = Fan(split.id, scope.token, total, total, value(b"[]"), halts, cursor=total)
        barrier = split_barrier(step_input, fan, body)
        self.effects.append(OpenBarrier(barrier))
        record = encode_record({"split": split.id, "total": total})
        self.events.append(NewEvent("NodeWaiting", barrier.node, scope.parent, self.now, record, scope.token))

    def _item(self, scope: Scope) -> Entry:
        """Return the item of the innermost split, if the message carries it."""
        raw = bytes(self.given.get("$item", b"null"))
        entry, stores = place(raw, f"{self.cause}/item/{len(self.loops)}", None)
        self.effects += stores
        return entry


def halts_items(split: Node) -> bool:
    """Return True if a failed item fails the whole split."""
    chosen = split.parameters.raw.get("on_item_error")
    return chosen == "halt" or (chosen is None and split.aggregator is None)


# -- arrivals --------------------------------------------------------------------------------------------------


def _arriving(step_input: StepInput, arrival: Arrival, body: Body, now: float) -> Iterable[Effect]:
    plan = step_input.plan
    match arrival:
        case Arrival("trigger", trigger):
            return _started(step_input, plan.nodes[trigger].success_edges, body)
        case Arrival("entries"):
            return [
                SpawnToken(entry_token(step_input, name, _on_path(body, position, len(plan.entries))))
                for position, name in enumerate(plan.entries)
            ]
        case Arrival("edge", _, Edge() as edge):
            return _over(step_input, edge, body)
        case _:
            return _woken(step_input, plan.nodes[arrival.node], body, now)


def _started(step_input: StepInput, edges: Sequence[Edge], body: Body) -> list[Effect]:
    if not edges:
        return [SpawnToken(finisher(step_input))]
    effects: list[Effect] = []
    for position, edge in enumerate(edges):
        effects += _with_deadline(
            deliver(step_input, edge, _on_path(body, position, len(edges)), source_closes=True)
        )
    return effects


def _on_path(body: Body, position: int, count: int) -> Body:
    return msgspec.structs.replace(body, path=entry_path(position, count))


def _over(step_input: StepInput, edge: Edge, body: Body) -> Iterable[Effect]:
    if step_input.plan.nodes[edge.dst].control != "aggregator":
        return _with_deadline(deliver(step_input, edge, body, source_closes=False))
    result = item_result(body.payload, body.context, body)
    return [EndScope(step_input.lease.scope, encode(result), event=item_event(step_input))]


def _with_deadline(effects: Iterable[Effect]) -> list[Effect]:
    """Give implicit joins a deadline: the sender may never send the rest."""
    return [_limited(effect) if isinstance(effect, ResolveSlot) else effect for effect in effects]


def _limited(effect: ResolveSlot) -> ResolveSlot:
    if effect.barrier.timeout is not None:
        return effect
    return msgspec.structs.replace(
        effect, barrier=msgspec.structs.replace(effect.barrier, timeout=JOIN_TIMEOUT)
    )


def _woken(step_input: StepInput, node: Node, body: Body, now: float) -> list[Effect]:
    """Spawn a wait node's token as if it woke here: its step records the run and what follows."""
    output = encode_record({"resume_at": utc_text(now)})
    edge = Edge(f"timer:{node.id}", "", node.id)
    slept = msgspec.structs.replace(body, sleeping=value(output))
    effects: list[Effect] = [SpawnToken(token_over(edge, step_input, node, slept))]
    if node.gate:
        effects.append(AdjustGate(gate_of(step_input, node), 1))
    return effects
