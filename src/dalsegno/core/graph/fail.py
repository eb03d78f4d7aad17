"""Failure of a run: retry it, continue in spite of it, or end the scope."""

from __future__ import annotations

import msgspec

from dalsegno.core.graph.complete import Step, transition_of
from dalsegno.core.graph.ending import cancel_abandoned, cancel_children, failed, item_event
from dalsegno.core.graph.step_input import (
    VALUE,
    Entry,
    ItemResult,
    Result,
    RunRecord,
    StepInput,
    encode,
    encode_record,
    run_event,
)
from dalsegno.graph.plan import Edge, Node
from dalsegno.model.effect import EndScope
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Park

MAX_LOSSES = 5
"""A token whose worker was lost this many times is taken to be the cause."""


def worker_lost(node: str, losses: int) -> Failure:
    return Failure(
        f"the worker process died {losses} times while it ran this node",
        code="WORKER_LOST",
        type="WorkerLost",
        node=node or None,
        retryable=False,
    )


def retries(step_input: StepInput, failure: Failure) -> bool:
    return step_input.policy.allows(step_input.lease.attempt, failure)


def retry(step_input: StepInput, failure: Failure) -> Step:
    """Park the token for a retry under the same id, hence with the same idempotency key."""
    lease, policy = step_input.lease, step_input.policy
    due = step_input.now + policy.delay(lease.token, lease.attempt, failure)
    record = RunRecord(
        lease.ready_at, step_input.started_at, lease.attempt, error=failure.recorded_briefly(), retry_at=due
    )
    park = Park(due, encode(step_input.body), lease.attempt + 1)
    event = run_event("NodeRetrying", step_input, record)
    return Step(transition_of(step_input, (), (event,), park), {})


def halts(node: Node) -> bool:
    return node.strategy == "halt"


def halt(step_input: StepInput, failure: Failure) -> Step:
    """End the innermost scope: the item, or the execution."""
    lease = step_input.lease
    record = RunRecord(
        lease.ready_at,
        step_input.started_at,
        lease.attempt,
        error=failure.recorded(),
        tripped=bool(lease.node) and step_input.tripped,
    )
    event = run_event("NodeFailed", step_input, record)
    if not lease.scope:
        finish = failed(step_input, step_input.body.context, failure)
        children = cancel_children(step_input, "its parent failed")
        return Step(transition_of(step_input, (finish, *children), (event,)), {})
    trip = step_input.body.loops[-1].halts
    end = EndScope(lease.scope, failed_item(failure), trip, item_event(step_input))
    children = () if _ends_alone(step_input, trip) else cancel_abandoned(step_input, lease.scope)
    return Step(transition_of(step_input, (end, *children), (event,)), {})


def _ends_alone(step_input: StepInput, trip: bool) -> bool:
    """Return True if nothing else can have been live in what ends, including other items, which a trip ends too."""
    node = step_input.plan.nodes.get(step_input.lease.node)
    return not trip and node is not None and node.solitary


def failed_item(failure: Failure) -> bytes:
    raw = encode_record({"error": failure.as_dict()})
    return encode(ItemResult(Entry(VALUE, msgspec.Raw(raw)), failed=True))


def error_output(failure: Failure) -> Result:
    """Return the context entry that takes the place of the output."""
    return Result(encode_record({"error": failure.as_dict()}))


def edges_despite(node: Node) -> tuple[Edge, ...]:
    """Return the edges that a failed run takes.

    Those are its error edges (``branch``), or the edges that do not depend on its output (``ignore``).
    """
    return node.error_edges if node.strategy == "branch" else node.despite
