"""Tasks and nodes that a person settles: which may be settled, how the step is marked, what the history records.

The step is the one a worker would commit for the same outcome. It also records who decided, and it shows the
fence and the attempt that the person saw instead of a lease.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from dalsegno.core.graph.external_waits import awaited_child, awaiting_in, signal_of
from dalsegno.core.graph.step_input import decode_body, encode_record
from dalsegno.graph.plan import Node
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import Park, Transition

Action = Literal["complete", "fail", "skip", "requeue"]

SETTLED = ("node", "task", "join")
"""Token kinds that do work of the workflow; all others are bookkeeping."""
CHOOSING = ("conditional", "switch", "split", "aggregator", "trigger")
"""Control kinds whose output does not determine which edges are taken."""


class Hand(Struct, frozen=True, omit_defaults=True):
    """Who did what, and why. The history keeps it with the event that it caused."""

    action: Action
    by: str | None = None
    reason: str | None = None


def by_hand(step: Transition, hand: Hand, attempt: int, decision: str) -> Transition:
    """Return the same step as a person's. ``decision`` is its id."""
    events = tuple(_with_hand(event, step.token, hand) for event in step.events)
    return replace(step, events=events, hand=attempt, worker=decision)


def _with_hand(event: NewEvent, token: str | None, hand: Hand) -> NewEvent:
    if event.token != token:
        return event
    known = msgspec.json.decode(event.data, type=dict[str, Raw]) if event.data else {}
    return replace(event, data=encode_record({**known, "by_hand": hand}))


def requeued(lease: Lease, now: float, hand: Hand, decision: str) -> Transition:
    """Take the token from its holder and offer it again at once: same attempt, same idempotency key."""
    kind: EventKind = "TaskRequeued" if lease.kind == "task" else "NodeRequeued"
    record = {"attempt": lease.attempt, "by_hand": hand, "decision": decision}
    event = NewEvent(kind, lease.node, lease.scope, now, encode_record(record), lease.token)
    return Transition(
        lease.execution,
        (),
        (event,),
        lease.token,
        lease.fence,
        lease.scope,
        lease.live,
        Park(None, lease.data, lease.attempt, again=True),
        lease.epoch,
        worker=decision,
        hand=lease.attempt,
    )


def is_settleable(token: TokenView) -> bool:
    """Return True for a task or node that is pending or running, and does not wait for branches or items."""
    if token.kind not in SETTLED or token.state in ("consumed", "cancelled"):
        return False
    if token.kind != "join":
        return True
    body = decode_body(token.data)
    is_open = token.state != "parked" or body.joined
    return body.fan is None and is_open and token.reason not in ("dead", "timeout", "tripped")


def obstacle(token: TokenView, action: Action) -> str | None:
    """Return why a person cannot do this to the token and what to do instead; None if they can."""
    what = f"task '{token.node}'" if token.kind == "task" else f"node '{token.node}'"
    if not is_settleable(token):
        return f"{what} waits for others of its workflow: settle those that have not arrived (see `dalsegno why`)"
    if token.awaits is not None:
        return f"{what} {_awaited(token)}"
    if action != "requeue":
        return None
    if token.state == "ready":
        return f"no worker holds {what}: it waits in queue '{token.queue}' already"
    if token.state == "held":
        return f"no worker holds {what}: its execution is paused; resume it"
    if token.kind == "node" and token.state == "parked" and decode_body(token.data).sleeping is not None:
        return f"{what} sleeps until it is due, and no worker holds it; complete or skip it"
    return None


def _awaited(token: TokenView) -> str:
    awaiting = awaiting_in(token)
    child = awaited_child(awaiting) if awaiting is not None else None
    if child is not None:
        return f"waits for execution {child}: settle a task of that one, or cancel it"
    if awaiting is not None and awaiting.question is not None:
        return "waits for a decision: approve or reject it"
    name = signal_of(awaiting) if awaiting is not None else None
    return f"waits for the signal '{name}': send it"


def cannot_complete(node: Node) -> str | None:
    """Return why a node of a graph cannot be completed by hand; None if it can."""
    if node.control not in CHOOSING:
        return None
    return (
        f"node '{node.id}' ({node.type}) chooses among its edges, which its output alone does not "
        f"determine; fail, skip or requeue it"
    )
