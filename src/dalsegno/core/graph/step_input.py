"""The input of a step: the token, its plan and the time. A rule sees nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.token_body import Body
from dalsegno.graph.plan import Node, Plan
from dalsegno.model.effect import StoreOutput, WriteOutbox
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.failure import NO_RETRY, RetryPolicy
from dalsegno.model.ids import derive
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken, TokenKind


class StepInput(Struct, gc=False):
    plan: Plan
    lease: Lease
    body: Body
    now: float
    started_at: float
    stores: tuple[StoreOutput, ...] = ()
    """Pages of a context that was merged for this step: stored by the transition it leads to."""

    retry: RetryPolicy | None = None
    """The policy of the task that ran, used if the document gives none."""
    orders: tuple[WriteOutbox, ...] = ()
    """What the step sends to other executions, whichever transition it leads to."""
    events: tuple[NewEvent, ...] = ()
    """The history events of these orders."""
    node: Node = None  # type: ignore[assignment]
    """The lease's node. A bookkeeping token without a node has None: its steps do not use it."""

    def __post_init__(self) -> None:
        self.node = self.plan.nodes.get(self.lease.node)  # type: ignore[assignment]

    @property
    def tripped(self) -> bool:
        """Return True for a split that opened its items already and fails now because one of them did."""
        return self.body.fan is not None and self.node.control == "split"

    @property
    def policy(self) -> RetryPolicy:
        own = self.node.retry
        return own if self.retry is None or own != NO_RETRY else self.retry


class Result(Struct, frozen=True, gc=False):
    """A run's output as the core receives it: JSON, and its blob if it is large."""

    raw: bytes
    blob: str | None = None


class RunRecord(Struct, frozen=True, omit_defaults=True, gc=False):
    """The data of an event about a run of a node."""

    queued_at: float
    started_at: float
    attempt: int = 1
    output: Raw | None = None
    output_ref: str | None = None
    error: dict[str, Any] | None = None
    edges: tuple[str, ...] | None = None
    """The out-edges taken, if the node had a choice."""
    retry_at: float | None = None
    resume_at: float | None = None
    json: Raw | None = None
    json_ref: str | None = None
    """The working payload the run left: inline, by reference, or ``same`` as its output."""
    entries: dict[str, Raw] | None = None
    """Further context entries the run left (an aggregator's ``$<split>``)."""
    items: int | None = None
    """For a split: how many items it has opened, or will open."""
    tripped: bool = False
    """A split that had succeeded failed later because of an item: this is not another run."""
    signal: str | None = None
    child: str | None = None
    """What a waiting node waits for: a signal by name, or an execution by id."""
    due: float | None = None
    """When the wait times out."""
    question: dict[str, Any] | None = None
    """What the node asks people while it waits."""


encode_record = msgspec.json.Encoder().encode


def run_event(kind: EventKind, step_input: StepInput, record: RunRecord) -> NewEvent:
    lease = step_input.lease
    return NewEvent(kind, lease.node, lease.scope, step_input.now, encode_record(record), lease.token)


def system_token(
    step_input: StepInput, kind: TokenKind, cause: str, node: str, data: bytes, *, live: bool = True
) -> NewToken:
    """Return a bookkeeping token in the scope of the step, named by its cause."""
    lease = step_input.lease
    return NewToken(
        derive(lease.execution, str(lease.epoch), kind, lease.scope, cause),
        lease.scope,
        kind,
        node,
        data,
        SYSTEM_QUEUE,
        lease.priority,
        live=live,
    )
