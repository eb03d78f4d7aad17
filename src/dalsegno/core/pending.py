"""Executions that wait to be begun: by somebody who triggers them, or by their time.

One is created PENDING, with a token of kind ``start`` if it is to begin at a time. Whoever comes first, that token's
step or a trigger, takes it to RUNNING in the same commit that spawns the tokens an ordinary start would spawn; the
ledger lets the other one find that it has begun.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.core.script_ending import failing
from dalsegno.core.told import tell
from dalsegno.lang.effects import ErrorValue
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


class StartToken(Struct, frozen=True, omit_defaults=True):
    """What the token that begins an execution carries. All the rest is on record."""

    queue: str | None = None
    """Of a task that is an execution of its own: where it is to run."""
    concurrency: Mapping[str, Any] | None = None
    """And what limits it."""
    again: Again | None = None
    """Of a retry or rerun that stands in line: it starts in the middle."""


encode = msgspec.json.Encoder().encode
decode_start_token = msgspec.json.Decoder(StartToken).decode


def submit(
    new: NewExecution,
    now: float,
    due: float | None = None,
    body: StartToken | None = None,
    limit: Concurrency | None = None,
) -> Transition:
    """Creates an execution that does nothing yet. ``due``: when it begins by itself. ``limit``: it stands in line for a
    slot of that key from then on, or from now on, and holds the slot until it ends."""
    effects: list[Effect] = [CreateExecution(new, pending=True)]
    body = body or StartToken()
    if due is not None or limit is not None:
        effects.append(SpawnToken(_start_token(new, due, body, limit)))
    options = {"concurrency": body.concurrency} if body.concurrency else None
    told = tell(new.input, due, body.queue, options)
    return Transition(new.id, tuple(effects), (NewEvent("ExecutionSubmitted", "", "", now, told),))


def line_up(
    new: NewExecution, limit: Concurrency, body: StartToken, replaced: bytes | None = None
) -> Transition:
    """Somebody triggered it: it stands in line for its slot, with the ``replaced`` input if there is one."""
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
    """What an ordinary start would do, done to an execution that exists. ``replaced``: the input it begins with instead
    of the submitted one."""
    _, *first = started.effects
    return msgspec.structs.replace(started, effects=(BeginExecution(replaced), *first))


def begin_in_time(lease: Lease, started: Transition) -> Transition:
    """The same as the step of the token whose time has come."""
    return msgspec.structs.replace(
        begin(started), token=lease.token, fence=lease.fence, live=lease.live, epoch=lease.epoch
    )


def never_begun(lease: Lease, error: ErrorValue, now: float) -> Transition:
    """What it was to run is gone: it ends without having begun."""
    finish = failing(error, now, hand_over=False)
    return Transition(
        lease.execution, (finish,), (), lease.token, lease.fence, "", lease.live, epoch=lease.epoch
    )


def as_submitted(view: ExecutionView) -> NewExecution:
    """A record as it was when it was created."""
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
