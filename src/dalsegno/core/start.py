"""The first transition of an execution."""

from __future__ import annotations

import msgspec

from dalsegno.core.body import Body, encode
from dalsegno.core.context import EMPTY, KEY, extend, place, reference
from dalsegno.core.edges import deliver
from dalsegno.core.ending import finisher
from dalsegno.core.situation import Situation
from dalsegno.graph.plan import Plan
from dalsegno.model.effect import CreateExecution, Effect, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import derive
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition


def start(plan: Plan, new: NewExecution, now: float) -> Transition:
    """Creates the execution and its first tokens: behind all triggers, or at every node without inputs."""
    entry, stores = place(new.input, f"{new.id}/trigger", None)
    context, _ = extend(EMPTY, "$trigger", entry, new.id)
    body = Body(context, reference(KEY, "$trigger"))
    situation = origin(plan, new, now, body)
    effects: list[Effect] = [CreateExecution(new), *stores, *_first_tokens(situation, body)]
    if plan.timeout is not None:
        effects.append(SpawnToken(deadline_token(new, now + plan.timeout)))
    started = NewEvent("ExecutionStarted", "", "", now, b'{"input":%b}' % new.input)
    return Transition(new.id, tuple(effects), (started,))


def origin(plan: Plan, new: NewExecution, now: float, body: Body) -> Situation:
    """The situation before any token: the execution itself is the cause of its first ones."""
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
    return Situation(plan, lease, body, now, now)


def _first_tokens(situation: Situation, body: Body) -> list[Effect]:
    plan = situation.plan
    effects: list[Effect] = []
    for position, edge in enumerate(plan.entry_edges):
        step = msgspec.structs.replace(body, path=_path(position, len(plan.entry_edges)))
        effects += deliver(situation, edge, step, source_closes=True)
    if not plan.triggers:
        for position, name in enumerate(plan.entries):
            step = msgspec.structs.replace(body, path=_path(position, len(plan.entries)))
            effects.append(SpawnToken(entry_token(situation, name, step)))
    if not effects:
        # A workflow that is nothing but its trigger completes at once.
        effects.append(SpawnToken(finisher(situation)))
    return effects


def _path(position: int, count: int) -> str:
    return f"{position:04x}" if count > 1 else ""


def entry_token(situation: Situation, node: str, body: Body) -> NewToken:
    lease, target = situation.lease, situation.plan.nodes[node]
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
