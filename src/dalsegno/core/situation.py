"""A step's situation: which token, in which plan, since when. Everything a rule may look at."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.body import Body
from dalsegno.graph.plan import Node, Plan
from dalsegno.model.effect import StoreOutput, WriteOutbox
from dalsegno.model.event import EventKind, NewEvent
from dalsegno.model.ids import derive
from dalsegno.model.retry import NO_RETRY, RetryPolicy
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken, TokenKind


class Situation(Struct, gc=False):
    plan: Plan
    lease: Lease
    body: Body
    now: float
    started_at: float
    stores: tuple[StoreOutput, ...] = ()
    """Pages of a context that was united for this step: stored by whatever transition it leads to."""

    retry: RetryPolicy | None = None
    """The policy of the task that ran, where the document gives none."""
    orders: tuple[WriteOutbox, ...] = ()
    """What the step owes other executions, whatever transition it leads to."""

    @property
    def node(self) -> Node:
        """Of a bookkeeping token that belongs to no node, there is none: its steps never ask."""
        return self.plan.nodes[self.lease.node]

    @property
    def tripped(self) -> bool:
        """A split that opened its items already, and fails now because one of them did."""
        return self.body.fan is not None and self.node.control == "split"

    @property
    def policy(self) -> RetryPolicy:
        own = self.node.retry
        return own if self.retry is None or own != NO_RETRY else self.retry


class Result(Struct, frozen=True, gc=False):
    """A run's output as it enters the core: JSON, and the blob it was put into if it is large."""

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
    """The out-edges taken, where the node had a choice."""
    retry_at: float | None = None
    resume_at: float | None = None
    json: Raw | None = None
    json_ref: str | None = None
    """The working payload the run left: inline, by reference, or ``same`` as its output."""
    entries: dict[str, Raw] | None = None
    """Further context entries the run left (an aggregator's ``$<split>``)."""
    tripped: bool = False
    """A split that had succeeded failed later, because of an item: no further run."""
    signal: str | None = None
    child: str | None = None
    """What a waiting node waits for: a signal by name, or an execution by id."""
    due: float | None = None
    """When it gives up waiting."""
    question: dict[str, Any] | None = None
    """What it asks people meanwhile."""


encode_record = msgspec.json.Encoder().encode


def run_event(kind: EventKind, situation: Situation, record: RunRecord) -> NewEvent:
    lease = situation.lease
    return NewEvent(kind, lease.node, lease.scope, situation.now, encode_record(record), lease.token)


def system_token(
    situation: Situation, kind: TokenKind, cause: str, node: str, data: bytes, *, live: bool = True
) -> NewToken:
    """A bookkeeping token of the situation's scope, named by its cause."""
    lease = situation.lease
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
