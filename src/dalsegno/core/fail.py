"""A run failed: try again, go on in spite of it, or end the scope."""

from __future__ import annotations

import msgspec

from dalsegno.core.body import ItemResult, encode
from dalsegno.core.complete import Run, Step, complete, transition_of
from dalsegno.core.context import VALUE, Entry
from dalsegno.core.ending import cancel_abandoned, cancel_children, failed, item_event
from dalsegno.core.situation import Result, RunRecord, Situation, encode_record, run_event
from dalsegno.graph.plan import Edge, Node
from dalsegno.model.effect import EndScope
from dalsegno.model.failure import Failure
from dalsegno.model.transition import Park

MAX_LOSSES = 5
"""A token that loses its worker this often is held to be the reason."""


def worker_lost(node: str, losses: int) -> Failure:
    return Failure(
        f"the worker process died {losses} times while it ran this node",
        code="WORKER_LOST",
        type="WorkerLost",
        node=node or None,
        retryable=False,
    )


def retries(situation: Situation, failure: Failure) -> bool:
    return situation.policy.allows(situation.lease.attempt, failure)


def retry(situation: Situation, failure: Failure) -> Step:
    """The token sleeps and runs again under the same id, hence with the same idempotency key."""
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


def halt(situation: Situation, failure: Failure) -> Step:
    """Ends the innermost scope: the item, or the execution."""
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


def _alone(situation: Situation, trip: bool) -> bool:
    """Whether nothing else can have been live in what ends: not even in other items, which a trip ends too."""
    node = situation.plan.nodes.get(situation.lease.node)
    return not trip and node is not None and node.solitary


def failed_item(failure: Failure) -> bytes:
    raw = encode_record({"error": failure.as_dict()})
    return encode(ItemResult(Entry(VALUE, msgspec.Raw(raw)), failed=True))


def error_output(failure: Failure) -> Result:
    """What the context holds in place of an output."""
    return Result(encode_record({"error": failure.as_dict()}))


def edges_despite(node: Node) -> tuple[Edge, ...]:
    """Where a failed run goes on: along its error edges (``branch``), or as far as one can go without knowing its
    output (``ignore``)."""
    return node.error_edges if node.strategy == "branch" else node.despite


def go_on(situation: Situation, failure: Failure, run: Run) -> Step:
    """The node is FAILED, the workflow goes on with the error in its context."""
    return complete(situation, msgspec.structs.replace(run, failure=failure))
