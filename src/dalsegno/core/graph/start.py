"""The first transition of a graph execution, and the reply to its start."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from dalsegno.core.graph.edges import deliver
from dalsegno.core.graph.ending import finisher
from dalsegno.core.graph.step_input import EMPTY, KEY, Body, StepInput, encode, extend, place, reference
from dalsegno.graph.plan import Plan
from dalsegno.model.effect import CreateExecution, Effect, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ExecutionState, NewExecution
from dalsegno.model.ids import derive
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Applied, Transition


def start(plan: Plan, new: NewExecution, now: float) -> Transition:
    """Create the execution and its first tokens: behind all triggers, or at every node without inputs."""
    entry, stores = place(new.input, f"{new.id}/trigger", None)
    context, _ = extend(EMPTY, "$trigger", entry, new.id)
    body = Body(context, reference(KEY, "$trigger"))
    step_input = origin(plan, new, now, body)
    effects: list[Effect] = [CreateExecution(new), *stores, *_first_tokens(step_input, body)]
    if plan.timeout is not None:
        effects.append(SpawnToken(deadline_token(new, now + plan.timeout)))
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    return Transition(new.id, tuple(effects), (started,))


def origin(plan: Plan, new: NewExecution, now: float, body: Body) -> StepInput:
    """Return the step input before any token: the execution itself is the cause of its first tokens."""
    lease = Lease(
        token=new.id,
        execution=new.id,
        fence=0,
        scope="",
        kind="node",
        node="",
        data=b"",
        queue="",
        priority=new.priority,
        attempt=1,
        losses=0,
        reason="",
        ready_at=now,
        definition=new.definition,
        epoch=0,
    )
    return StepInput(plan, lease, body, now, now)


def _first_tokens(step_input: StepInput, body: Body) -> list[Effect]:
    plan = step_input.plan
    effects: list[Effect] = []
    for position, edge in enumerate(plan.entry_edges):
        step = msgspec.structs.replace(body, path=entry_path(position, len(plan.entry_edges)))
        effects += deliver(step_input, edge, step, source_closes=True)
    if not plan.triggers:
        for position, name in enumerate(plan.entries):
            step = msgspec.structs.replace(body, path=entry_path(position, len(plan.entries)))
            effects.append(SpawnToken(entry_token(step_input, name, step)))
    if not effects:
        # A workflow that consists only of its trigger completes at once.
        effects.append(SpawnToken(finisher(step_input)))
    return effects


def entry_path(position: int, count: int) -> str:
    return f"{position:04x}" if count > 1 else ""


def entry_token(step_input: StepInput, node: str, body: Body) -> NewToken:
    lease, target = step_input.lease, step_input.plan.nodes[node]
    return NewToken(
        derive(lease.token, "entry", node),
        lease.scope,
        "node",
        node,
        encode(body),
        target.queue,
        lease.priority,
        target.limit_key,
        allowance=target.allows,
    )


def deadline_token(new: NewExecution, due: float) -> NewToken:
    return NewToken(
        derive(new.id, "deadline"),
        "",
        "deadline",
        "",
        encode(Body()),
        SYSTEM_QUEUE,
        new.priority,
        live=False,
        due=due,
    )


class StartReply(NamedTuple):
    execution: NewExecution
    state: ExecutionState
    events: int
    """Number of the newest event."""


def begun(first: Transition, outcome: Applied) -> StartReply | None:
    """Return the reply to a start, built without reading the rows back.

    None if its first effects do more than spawn tokens.

    Arrivals at barriers write events of their own, and some executions end at once.
    """
    created, *others = first.effects
    if not isinstance(created, CreateExecution) or outcome.ended is not None:
        return None
    if any(type(each) is not SpawnToken for each in others):
        return None
    return StartReply(created.execution, "PENDING" if created.pending else "RUNNING", len(first.events))
