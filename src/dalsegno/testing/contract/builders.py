"""Builders of transitions. They spell out literally what the core would compute."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.model.barrier import BarrierMode, BarrierSpec, GateSpec, Milestone
from dalsegno.model.effect import (
    AdjustGate,
    CreateExecution,
    Effect,
    EndIfLast,
    FinishExecution,
    PauseExecution,
    ResolveSlot,
    ResumeExecution,
    SpawnToken,
)
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.execution import EndState, NewExecution
from dalsegno.model.ids import ROOT_SCOPE, barrier_id
from dalsegno.model.limits import Allowance
from dalsegno.model.token import DEFAULT_QUEUE, SYSTEM_QUEUE, Lease, NewToken, TokenKind
from dalsegno.model.transition import Park, Transition
from dalsegno.testing.clock import MIDNIGHT

RUN = "run-1"
"""The execution that most tests use."""

ENDING: dict[EndState, EventKind] = {
    "COMPLETED": "ExecutionCompleted",
    "FAILED": "ExecutionFailed",
    "CANCELLED": "ExecutionCancelled",
}


# -- tokens and events ----------------------------------------------------------------------------------------


def token(
    id: str,
    scope: str = ROOT_SCOPE,
    *,
    kind: TokenKind = "node",
    node: str | None = None,
    data: bytes = b"{}",
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    due: float | None = None,
    live: bool = True,
    key: str | None = None,
    allows: Allowance | None = None,
) -> NewToken:
    """A token at the node of the same name."""
    where = node if node is not None else id
    return NewToken(id, scope, kind, where, data, queue, priority, key, live, due, allows)


def deadline(id: str, due: float) -> NewToken:
    """The execution's own timeout: keeps no scope open."""
    return token(id, kind="deadline", queue=SYSTEM_QUEUE, due=due, live=False)


def finisher(scope: str = ROOT_SCOPE) -> NewToken:
    return token(f"finish{scope}", scope, kind="finish", node="", queue=SYSTEM_QUEUE)


def event(
    kind: EventKind = "NodeCompleted", node: str = "a", scope: str = ROOT_SCOPE, data: bytes | None = None
) -> NewEvent:
    return NewEvent(kind, node, scope, MIDNIGHT, data)


# -- transitions ----------------------------------------------------------------------------------------------


def new_execution(execution: str = RUN, **fields: object) -> NewExecution:
    settings: dict[str, object] = {
        "workflow": "orders",
        "version": 1,
        "definition": "hash-of-orders",
        "input": b"{}",
        "created_at": MIDNIGHT,
    }
    return NewExecution(execution, **(settings | fields))  # type: ignore[arg-type]


def start(execution: str | NewExecution, *effects: Effect | NewToken) -> Transition:
    """Create the execution; spawn the tokens among the effects."""
    new = new_execution(execution) if isinstance(execution, str) else execution
    return command(new.id, CreateExecution(new), *effects, events=(event("ExecutionStarted", ""),))


def command(
    execution: str, *effects: Effect | NewToken, events: Iterable[NewEvent] = (), scope: str = ROOT_SCOPE
) -> Transition:
    """A transition from outside: consumes no token."""
    return Transition(execution, _effects(effects), tuple(events), scope=scope)


def step(
    lease: Lease,
    *effects: Effect | NewToken,
    events: Iterable[NewEvent] = (),
    park: Park | None = None,
    keep: Iterable[str] = (),
    worker: str = "",
    fence: int | None = None,
) -> Transition:
    """The transition that a worker commits for a lease; spawns the tokens among the effects."""
    return Transition(
        lease.execution,
        _effects(effects),
        tuple(events),
        lease.token,
        lease.fence if fence is None else fence,
        lease.scope,
        lease.live,
        park,
        lease.epoch,
        tuple(keep),
        worker,
    )


def _effects(effects: Iterable[Effect | NewToken]) -> tuple[Effect, ...]:
    return tuple(SpawnToken(effect) if isinstance(effect, NewToken) else effect for effect in effects)


def pause(execution: str = RUN) -> Transition:
    return command(execution, PauseExecution(event("ExecutionPaused", "")))


def resume(execution: str = RUN) -> Transition:
    return command(execution, ResumeExecution(event("ExecutionResumed", "")))


def cancel(execution: str = RUN) -> Transition:
    return command(execution, finish("CANCELLED"))


# -- endings --------------------------------------------------------------------------------------------------


def finish(state: EndState = "COMPLETED", output: bytes | None = b'"done"') -> FinishExecution:
    return FinishExecution(state, event(ENDING[state], ""), output)


def last(key: str = "0", left: bytes | None = b"left", output: bytes | None = b'"done"') -> EndIfLast:
    """A leaf of the root: finishes the execution if it is the last, else leaves its context.

    Without output it cannot finish.
    """
    return EndIfLast(ROOT_SCOPE, finisher(), key, left, finish(output=output) if output is not None else None)


def last_of_item(
    scope: str, key: str = "0", left: bytes | None = None, slot: bytes | None = b"1"
) -> EndIfLast:
    """A leaf inside an item: ends the item's scope with ``slot`` if it is the last."""
    progress = event("NodeWaiting", "collect")
    return EndIfLast(scope, finisher(scope), key, left, slot_data=slot, event=progress)


# -- barriers and gates ---------------------------------------------------------------------------------------


def barrier(
    node: str = "merge",
    expected: int = 2,
    mode: BarrierMode = "all",
    timeout: float | None = None,
    scope: str = ROOT_SCOPE,
) -> BarrierSpec:
    """The barrier of a merge. Its join token is named after it."""
    join = token(f"join-{node}{scope}", scope, kind="join", node=node, queue=SYSTEM_QUEUE)
    return BarrierSpec(barrier_id(0, scope, node), scope, node, expected, join, mode, timeout)


def aggregator(
    node: str = "collect", expected: int = 2, timeout: float | None = None, scope: str = ROOT_SCOPE
) -> BarrierSpec:
    """A split's barrier: its join token is live at once."""
    join = token(f"join-{node}{scope}", scope, kind="join", node=node, queue=SYSTEM_QUEUE)
    return BarrierSpec(
        barrier_id(0, scope, node), scope, node, expected, join, "all", timeout, live_at_once=True
    )


def milestone(resolved: int, id: str = "advance") -> Milestone:
    return Milestone(resolved, token(id, kind="advance", node="split", queue=SYSTEM_QUEUE, live=False))


def arrive(spec: BarrierSpec, slot: int, data: bytes = b"{}") -> ResolveSlot:
    """A live token over edge ``slot``, with both events that the kernel may choose from."""
    return ResolveSlot(
        spec,
        slot,
        live=True,
        data=data,
        waiting=event("NodeWaiting", spec.node, spec.scope),
        dropped=event("ArrivalDropped", spec.node, spec.scope),
    )


def skip(spec: BarrierSpec, slot: int) -> ResolveSlot:
    """The edge closes unused."""
    return ResolveSlot(spec, slot, live=False)


def gate(node: str = "gate", open_edges: int = 2) -> GateSpec:
    closed = token(f"closed-{node}", kind="closed", node=node, queue=SYSTEM_QUEUE)
    return GateSpec(f"gate-{node}", ROOT_SCOPE, node, open_edges, closed)


def adjust(spec: GateSpec, delta: int, *used: int) -> AdjustGate:
    return AdjustGate(spec, delta, used)
