"""Failure of a run: retry it, continue in spite of it, or end the scope."""

from __future__ import annotations

import msgspec

from dalsegno.core.graph.complete import Step, transition_of
from dalsegno.core.graph.context import VALUE, Entry
from dalsegno.core.graph.ending import cancel_abandoned, cancel_children, failed, item_event
from dalsegno.core.graph.step_input import Result, RunRecord, StepInput, encode_record, run_event
from dalsegno.core.graph.token_body import ItemResult, encode
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


def retries(situation: StepInput, failure: Failure) -> bool:
    return situation.policy.allows(situation.lease.attempt, failure)


def retry(situation: StepInput, failure: Failure) -> Step:
    """Park the token for a retry under the same id, hence with the same idempotency key."""
    lease, policy = situation.lease, situation.policy
    due = situation.now + policy.delay(lease.token, lease.attempt, failure)
    record = RunRecord(
        lease.ready_at, situation.started_at, lease.attempt, error=failure.recorded_briefly(), retry_at=due
    )
    park = Park(due, encode(situation.body), lease.attempt + 1)
    event = run_event("NodeRetrying", situation, record)
    return Step(transition_of(situation, (), (event,), park), {})


def halts(node: Node) -> bool:
    return node.strategy == "halt"


def halt(situation: StepInput, failure: Failure) -> Step:
    """End the innermost scope: the item, or the execution."""
    lease = situation.lease
    record = RunRecord(
        lease.ready_at,
        situation.started_at,
        lease.attempt,
        error=failure.recorded(),
        tripped=bool(lease.node) and situation.tripped,
    )
    event = run_event("NodeFailed", situation, record)
    if not lease.scope:
        finish = failed(situation, situation.body.context, failure)
        children = cancel_children(situation, "its parent failed")
        return Step(transition_of(situation, (finish, *children), (event,)), {})
    trip = situation.body.loops[-1].halts
    end = EndScope(lease.scope, failed_item(failure), trip, item_event(situation))
    children = () if _alone(situation, trip) else cancel_abandoned(situation, lease.scope)
    return Step(transition_of(situation, (end, *children), (event,)), {})


def _alone(situation: StepInput, trip: bool) -> bool:
    """Return True if nothing else can have been live in what ends, including other items, which a trip ends too."""
    node = situation.plan.nodes.get(situation.lease.node)
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
