"""Completion of a run: the tokens that follow a success, or a failure that is passed on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from dalsegno.core.graph.edges import close_losers, close_unit, deliver, unit_of
from dalsegno.core.graph.ending import (
    branch_ends,
    cancel_abandoned,
    completed,
    failed,
    finisher,
    item_arrives,
)
from dalsegno.core.graph.step_input import (
    BLOB,
    INLINE_LIMIT,
    VALUE,
    Body,
    Context,
    Entry,
    Result,
    RunRecord,
    StepInput,
    extend,
    key_of,
    own_output,
    place,
    reference_name,
    run_event,
    value,
)
from dalsegno.graph.plan import Edge, Node
from dalsegno.model.effect import CancelTokens, Effect, EndIfLast, FinishExecution, SpawnToken
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Park, Transition

SAME = "same"
"""In a run's record: the working payload is the output."""

PASSING = frozenset(("conditional", "switch", "wait"))
"""Control kinds that pass on their input; ``log`` does so by its type."""


class Run(Struct, frozen=True):
    """The result of running a node, ready to be turned into a transition."""

    output: Result
    taken: tuple[Edge, ...]
    routed: bool = False
    """The node chose among its edges: the history then records the choice."""
    json: Result | None = None
    """The new working payload ``$json``, of edit and list nodes."""
    failure: Failure | None = None
    """The run failed, and its strategy lets the workflow continue."""
    ending: Result | Failure | None = None
    """The execution's output, if this run is known to be the last."""
    contribution: Result | None = None
    """The item's contribution, if an edge leads to an aggregator with an ``output`` expression."""
    entries: Mapping[str, Result] | None = None
    """Further context entries this run leaves (an aggregator's ``$<split>``)."""


class Step(Struct, gc=False):
    """A transition and the bodies of the tokens it spawns, for a worker that continues with them itself."""

    transition: Transition
    bodies: dict[str, Body]
    size: int | None = None
    """Bytes of the transition's effects, once they are measured."""


def ends_alone(step_input: StepInput, taken: Sequence[Edge]) -> bool:
    """Return True if this run, taking these edges, ends the execution: its commit then contains the result."""
    return not taken and not step_input.lease.scope and step_input.node.solitary


REPORTING = frozenset(("log", "publish"))
"""Types of nodes that tell something and pass on their payload."""


def complete(step_input: StepInput, run: Run) -> Step:
    node, body = step_input.node, step_input.body
    context, entry, working, effects = _record_output(step_input, run)
    if node.losers and step_input.lease.kind == "join":
        effects.append(CancelTokens(step_input.lease.scope, node.losers))
        effects += close_losers(step_input, node.losers)
        effects += cancel_abandoned(step_input, "")
    payload = body.payload if passes_payload(node) else own_output(node.id)
    closing, events = close_unit(step_input, node, run.taken)
    effects += closing
    events = [_event(step_input, run, entry, working), *events]
    bodies: dict[str, Body] = {}
    effects += _follow(step_input, run, Body(context, payload, body.path, body.loops), bodies)
    return Step(transition_of(step_input, effects, events), bodies)


def transition_of(
    step_input: StepInput,
    effects: Sequence[Effect],
    events: Sequence[NewEvent] = (),
    park: Park | None = None,
) -> Transition:
    lease = step_input.lease
    return Transition(
        lease.execution,
        (*step_input.stores, *step_input.orders, *effects),
        (*step_input.events, *events),
        lease.token,
        lease.fence,
        lease.scope,
        lease.live,
        park,
        lease.epoch,
    )


def passes_payload(node: Node) -> bool:
    return node.control in PASSING or node.type in REPORTING


def _record_output(step_input: StepInput, run: Run) -> tuple[Context, Entry, Entry | None, list[Effect]]:
    token = step_input.lease.token
    effects: list[Effect] = []
    context = step_input.body.context
    if run.entries:
        for key, result in run.entries.items():
            context = _remember(context, key, result, token, effects)[0]
    context, entry = _remember(context, key_of(step_input.lease.node), run.output, token, effects)
    working: Entry | None = None
    if run.json is not None:
        context, working = _remember(context, "$json", run.json, token, effects)
    return context, entry, working, effects


def _remember(
    context: Context, key: str, result: Result, token: str, effects: list[Effect]
) -> tuple[Context, Entry]:
    """Add an entry to the context; if it is too large for it, store it under the token's id and its key."""
    if result.blob is None and len(result.raw) <= INLINE_LIMIT:
        entry = value(result.raw)
    else:
        entry, stores = place(result.raw, f"{token}/{key}", result.blob)
        effects += stores
    context, pages = extend(context, key, entry, token)
    if pages:
        effects += pages
    return context, entry


def _event(step_input: StepInput, run: Run, entry: Entry, working: Entry | None) -> NewEvent:
    kind: EventKind = "NodeCompleted" if run.failure is None else "NodeFailed"
    lease = step_input.lease
    inline = entry.kind == VALUE
    record = RunRecord(
        lease.ready_at,
        step_input.started_at,
        lease.attempt,
        entry.raw if inline and run.failure is None else None,
        None if inline else _reference_text(entry),
        run.failure.recorded() if run.failure is not None else None,
        tuple(edge.id for edge in run.taken) if run.routed else None,
        entries={key: msgspec.Raw(result.raw) for key, result in run.entries.items()}
        if run.entries
        else None,
        tripped=run.failure is not None and step_input.tripped,
    )
    if working is not None and run.json is not None:
        if run.json.raw == run.output.raw:
            record = msgspec.structs.replace(record, json_ref=SAME)
        elif working.kind == VALUE:
            record = msgspec.structs.replace(record, json=working.raw)
        else:
            record = msgspec.structs.replace(record, json_ref=_reference_text(working))
    return run_event(kind, step_input, record)


def _reference_text(entry: Entry) -> str:
    return ("blob:" if entry.kind == BLOB else "output:") + reference_name(entry)


def _follow(step_input: StepInput, run: Run, body: Body, bodies: dict[str, Body]) -> list[Effect]:
    """Return the effects of taking the edges: a token over each, or the branch's end if none stays in the scope."""
    node, plan = step_input.node, step_input.plan
    closes = not (node if node.collects is None else unit_of(plan, node)).multiple
    effects: list[Effect] = []
    arrivals: list[Effect] = []
    for edge in run.taken:
        if plan.nodes[edge.dst].control == "aggregator":
            arrivals.append(_reach_aggregator(step_input, run, body, edge))
            continue
        onward = msgspec.structs.replace(body, path=f"{body.path}{edge.position:04x}") if node.forks else body
        sent = deliver(step_input, edge, onward, source_closes=closes)
        if isinstance(sent[0], SpawnToken):
            bodies[sent[0].token.id] = onward
        effects += sent
    if arrivals:
        return effects + arrivals
    if not bodies:
        effects.append(_last(step_input, run, body.context))
    return effects


def _reach_aggregator(step_input: StepInput, run: Run, body: Body, edge: Edge) -> EndIfLast:
    own = Entry(VALUE, msgspec.Raw(run.contribution.raw)) if run.contribution is not None else None
    return item_arrives(step_input, body.payload, body.context, edge, own)


def _last(step_input: StepInput, run: Run, context: Context) -> EndIfLast:
    if run.taken:
        # Every token went to a barrier and may be dropped there, so the scope may be empty now.
        # This branch leaves nothing: its payload went to the barrier.
        return EndIfLast(step_input.lease.scope, finisher(step_input))
    return branch_ends(step_input, context, _finish(step_input, run, context))


def _finish(step_input: StepInput, run: Run, context: Context) -> FinishExecution | None:
    if run.ending is None:
        return None
    if isinstance(run.ending, Failure):
        return failed(step_input, context, run.ending)
    return completed(step_input, context, run.ending.raw)
