"""A run succeeded (or its failure is passed on): which tokens follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from dalsegno.core.body import Body
from dalsegno.core.context import (
    BLOB,
    VALUE,
    Context,
    Entry,
    extend,
    key_of,
    own_output,
    place,
    reference_name,
)
from dalsegno.core.edges import close_losers, close_unit, deliver, unit_of
from dalsegno.core.ending import (
    branch_ends,
    cancel_abandoned,
    completed,
    failed,
    finisher,
    item_arrives,
)
from dalsegno.core.situation import Result, RunRecord, Situation, run_event
from dalsegno.graph.plan import Edge, Node
from dalsegno.model.effect import CancelTokens, Effect, EndIfLast, FinishExecution, SpawnToken
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Park, Transition

SAME = "same"
"""In a run's record: its working payload is its output."""

PASSING = frozenset(("conditional", "switch", "wait"))
"""Control kinds that pass on what they received; ``log`` does so by its type."""


class Run(Struct, frozen=True):
    """What a run of a node came to, ready to be turned into a transition."""

    output: Result
    taken: tuple[Edge, ...]
    routed: bool = False
    """Whether the node chose among its edges: the history then records the choice."""
    json: Result | None = None
    """The new working payload ``$json``, of edit and list nodes."""
    failure: Failure | None = None
    """The run failed, and its strategy lets the workflow go on."""
    ending: Result | Failure | None = None
    """The execution's output, where this run is known to be the last."""
    contribution: Result | None = None
    """What the item contributes, where an edge leads to an aggregator with an ``output`` expression."""
    entries: Mapping[str, Result] | None = None
    """Further context entries this run leaves (an aggregator's ``$<split>``)."""


class Step(Struct, frozen=True, gc=False):
    """A transition, and the bodies of the tokens it spawns, for a worker that goes on with them itself."""

    transition: Transition
    bodies: dict[str, Body]


def ends_alone(situation: Situation, taken: Sequence[Edge]) -> bool:
    """Whether this run, if it takes these edges, ends the execution: its result is then part of its commit."""
    return not taken and not situation.lease.scope and situation.node.solitary


def complete(situation: Situation, run: Run) -> Step:
    node, body = situation.node, situation.body
    context, entry, working, effects = _record_output(situation, run)
    if node.losers and situation.lease.kind == "join":
        effects.append(CancelTokens(situation.lease.scope, node.losers))
        effects += close_losers(situation, node.losers)
        effects += cancel_abandoned(situation, "")
    payload = body.payload if passes_payload(node) else own_output(node.id)
    closing, events = close_unit(situation, node, run.taken)
    effects += closing
    events.insert(0, _event(situation, run, entry, working))
    bodies: dict[str, Body] = {}
    effects += _follow(situation, run, Body(context, payload, body.path, body.loops), bodies)
    return Step(transition_of(situation, effects, events), bodies)


def transition_of(
    situation: Situation, effects: Sequence[Effect], events: Sequence[NewEvent] = (), park: Park | None = None
) -> Transition:
    lease = situation.lease
    return Transition(
        lease.execution,
        (*situation.stores, *situation.orders, *effects),
        tuple(events),
        lease.token,
        lease.fence,
        lease.scope,
        lease.live,
        park,
        lease.epoch,
    )


def passes_payload(node: Node) -> bool:
    return node.control in PASSING or node.type == "log"


def _record_output(situation: Situation, run: Run) -> tuple[Context, Entry, Entry | None, list[Effect]]:
    token = situation.lease.token
    effects: list[Effect] = []
    context = situation.body.context
    if run.entries:
        for key, result in run.entries.items():
            context = _remember(context, key, result, token, effects)[0]
    context, entry = _remember(context, key_of(situation.lease.node), run.output, token, effects)
    working: Entry | None = None
    if run.json is not None:
        context, working = _remember(context, "$json", run.json, token, effects)
    return context, entry, working, effects


def _remember(
    context: Context, key: str, result: Result, token: str, effects: list[Effect]
) -> tuple[Context, Entry]:
    """One more entry of the context, stored under the token's id and its key if it is too large for it."""
    entry, stores = place(result.raw, f"{token}/{key}", result.blob)
    context, pages = extend(context, key, entry, token)
    if stores or pages:
        effects += stores
        effects += pages
    return context, entry


def _event(situation: Situation, run: Run, entry: Entry, working: Entry | None) -> NewEvent:
    kind: EventKind = "NodeCompleted" if run.failure is None else "NodeFailed"
    lease = situation.lease
    inline = entry.kind == VALUE
    record = RunRecord(
        lease.ready_at,
        situation.started_at,
        lease.attempt,
        entry.raw if inline and run.failure is None else None,
        None if inline else _reference_text(entry),
        run.failure.recorded() if run.failure is not None else None,
        tuple(edge.id for edge in run.taken) if run.routed else None,
        entries={key: msgspec.Raw(result.raw) for key, result in run.entries.items()}
        if run.entries
        else None,
        tripped=run.failure is not None and situation.tripped,
    )
    if working is not None and run.json is not None:
        if run.json.raw == run.output.raw:
            record = msgspec.structs.replace(record, json_ref=SAME)
        elif working.kind == VALUE:
            record = msgspec.structs.replace(record, json=working.raw)
        else:
            record = msgspec.structs.replace(record, json_ref=_reference_text(working))
    return run_event(kind, situation, record)


def _reference_text(entry: Entry) -> str:
    return ("blob:" if entry.kind == BLOB else "output:") + reference_name(entry)


def _follow(situation: Situation, run: Run, body: Body, bodies: dict[str, Body]) -> list[Effect]:
    """Tokens over the taken edges; where none stays in the scope, the branch ends."""
    node, plan = situation.node, situation.plan
    closes = not unit_of(plan, node).multiple
    effects: list[Effect] = []
    arrivals: list[Effect] = []
    for edge in run.taken:
        if plan.nodes[edge.dst].control == "aggregator":
            arrivals.append(_reach_aggregator(situation, run, body, edge))
            continue
        onward = msgspec.structs.replace(body, path=f"{body.path}{edge.position:04x}") if node.forks else body
        sent = deliver(situation, edge, onward, source_closes=closes)
        if isinstance(sent[0], SpawnToken):
            bodies[sent[0].token.id] = onward
        effects += sent
    if arrivals:
        return effects + arrivals
    if not bodies:
        effects.append(_last(situation, run, body.context))
    return effects


def _reach_aggregator(situation: Situation, run: Run, body: Body, edge: Edge) -> EndIfLast:
    own = Entry(VALUE, msgspec.Raw(run.contribution.raw)) if run.contribution is not None else None
    return item_arrives(situation, body.payload, body.context, edge, own)


def _last(situation: Situation, run: Run, context: Context) -> EndIfLast:
    if run.taken:
        # Every token went to a barrier and may be dropped there, so the scope may be empty now. This branch
        # leaves nothing: what it had went to the barrier.
        return EndIfLast(situation.lease.scope, finisher(situation))
    return branch_ends(situation, context, _finish(situation, run, context))


def _finish(situation: Situation, run: Run, context: Context) -> FinishExecution | None:
    if run.ending is None:
        return None
    if isinstance(run.ending, Failure):
        return failed(situation, context, run.ending)
    return completed(situation, context, run.ending.raw)
