"""Pending executions: created now, begun later by a trigger or at a time.

One is created PENDING, with a token of kind ``start`` if it is to begin at a time. The first to act, that
token's step or a trigger, moves it to RUNNING in the same commit that spawns the tokens of an ordinary start.
The ledger lets the other find that the execution has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.history import start_facts
from dalsegno.core.scripts.ending import failing
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.effect import BeginExecution, CreateExecution, Effect, SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.ids import derive
from dalsegno.model.limits import Concurrency
from dalsegno.model.token import SYSTEM_QUEUE, Lease, NewToken
from dalsegno.model.transition import Transition


class Again(Struct, frozen=True):
    """Where a retry or rerun starts, and the edits to its context by key."""

    nodes: tuple[str, ...]
    edits: dict[str, msgspec.Raw] = {}
    machine_of: str | None = None
    """For a script: the failed execution with whose machine it starts."""
    branch_of: str | None = None
    """For a script: the execution from an earlier turn of which it starts. That machine is stored with it."""


class StartToken(Struct, frozen=True, omit_defaults=True):
    """The body of the token that begins an execution. Everything else is on record."""

    queue: str | None = None
    """For a task that is an execution of its own: its queue."""
    concurrency: Mapping[str, Any] | None = None
    """For a task that is an execution of its own: its concurrency limit."""
    again: Again | None = None
    """For a queued retry or rerun: it starts in the middle."""


encode = msgspec.json.Encoder().encode
decode_start_token = msgspec.json.Decoder(StartToken).decode


def submit(
    new: NewExecution,
    now: float,
    due: float | None = None,
    body: StartToken | None = None,
    limit: Concurrency | None = None,
) -> Transition:
    """Create an execution that does not begin yet.

    ``due``: when it begins without a trigger. ``limit``: it queues for a slot of that key, from ``due`` or from now
    on, and holds the slot until it ends.
    """
    effects: list[Effect] = [CreateExecution(new, pending=True)]
    body = body or StartToken()
    if due is not None or limit is not None:
        effects.append(SpawnToken(_start_token(new, due, body, limit)))
    options = {"concurrency": body.concurrency} if body.concurrency else None
    facts = start_facts(new.input, due, body.queue, options)
    return Transition(new.id, tuple(effects), (NewEvent("ExecutionSubmitted", "", "", now, facts),))


def line_up(
    new: NewExecution, limit: Concurrency, body: StartToken, replaced: bytes | None = None
) -> Transition:
    """Queue a triggered execution for its slot, with the ``replaced`` input if there is one."""
    token = _start_token(new, None, body, limit, "triggered")
    if replaced is None:
        return Transition(new.id, (SpawnToken(token),))
    return Transition(new.id, (BeginExecution(replaced, in_line=token.id), SpawnToken(token)))


def _start_token(
    new: NewExecution, due: float | None, body: StartToken, limit: Concurrency | None, cause: str = ""
) -> NewToken:
    return NewToken(
        derive(new.id, "start", cause) if cause else derive(new.id, "start"),
        "",
        "start",
        "",
        encode(body),
        SYSTEM_QUEUE,
        new.priority,
        limit.key if limit is not None else None,
        live=False,
        due=due,
        allowance=limit.allows if limit is not None else None,
    )


def begin(started: Transition, replaced: bytes | None = None) -> Transition:
    """Apply an ordinary start to an execution that exists. ``replaced``: the input that replaces the submitted one."""
    _, *first = started.effects
    return msgspec.structs.replace(started, effects=(BeginExecution(replaced), *first))


def begin_in_time(lease: Lease, started: Transition) -> Transition:
    """The same as a step of the start token whose time has come."""
    return msgspec.structs.replace(
        begin(started), token=lease.token, fence=lease.fence, live=lease.live, epoch=lease.epoch
    )


def never_begun(lease: Lease, error: ErrorValue, now: float) -> Transition:
    """End an execution whose definition is gone before it has begun."""
    finish = failing(error, now, hand_over=False)
    return Transition(
        lease.execution, (finish,), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def as_submitted(view: ExecutionView) -> NewExecution:
    """Return the record as it was when the execution was created."""
    return NewExecution(
        id=view.id,
        workflow=view.workflow,
        version=view.version,
        definition=view.definition,
        input=view.input,
        created_at=view.created_at,
        priority=view.priority,
        tags=view.tags,
        idempotency_key=view.idempotency_key,
        parent=view.parent,
        relation=view.relation,
        kind=view.kind,
    )
