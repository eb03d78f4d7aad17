"""Stored rows as the ports show them. The order of fields is that of ``lua/1_rows.lua``."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dalsegno.adapters.redis.encoding import absent
from dalsegno.adapters.redis.keys import FIELDS
from dalsegno.model.barrier import BarrierView, SlotView
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import TokenView

decode = msgspec.msgpack.decode
TOKEN, DATA = FIELDS["token_field"].encode(), FIELDS["data_field"].encode()


def execution_view(execution: str, flight: bytes, about: Mapping[bytes, bytes]) -> ExecutionView:
    state, definition, epoch, seq, live, touched_at, paused_at, ended_at = decode(flight)
    workflow, version, _, created_at, priority, tag_names, tag_values, key, parent, relation = decode(
        about[b"row"]
    )
    return ExecutionView(
        id=execution,
        workflow=workflow,
        version=version,
        definition=definition,
        state=state,
        input=about[b"input"],
        created_at=created_at,
        touched_at=touched_at,
        epoch=epoch,
        live=live,
        seq=seq,
        priority=priority,
        tags=tuple(zip(tag_names, tag_values, strict=True)),
        idempotency_key=absent(key),
        parent=absent(parent),
        relation=absent(relation),
        paused_at=absent(paused_at),
        ended_at=absent(ended_at),
        output=about.get(b"output"),
        context=about.get(b"context"),
        error=about.get(b"error"),
    )


def token_views(state: Mapping[bytes, bytes]) -> tuple[TokenView, ...]:
    """The unfinished tokens among an execution's state."""
    ids = [field.removeprefix(TOKEN) for field in state if field.startswith(TOKEN)]
    return tuple(_token_view(token, state[TOKEN + token], state[DATA + token]) for token in ids)


def _token_view(token: bytes, row: bytes, data: bytes) -> TokenView:
    (
        scope,
        kind,
        node,
        state,
        queue,
        priority,
        limit_key,
        live,
        attempt,
        losses,
        reason,
        due,
        owner,
        fence,
        *_,
    ) = decode(row)
    return TokenView(
        id=token.decode(),
        scope=scope,
        kind=kind,
        node=node,
        state=state,
        queue=queue,
        priority=priority,
        limit_key=absent(limit_key),
        live=live,
        attempt=attempt,
        losses=losses,
        reason=reason,
        due=absent(due),
        owner=absent(owner),
        fence=fence,
        data=data,
    )


def barrier_view(barrier: bytes, row: bytes) -> BarrierView:
    scope, node, state, mode, expected, resolved, live, deadline, *_ = decode(row)
    return BarrierView(barrier.decode(), scope, node, state, mode, expected, resolved, live, absent(deadline))


def slot_view(slot: int, value: bytes) -> SlotView:
    """``L`` and its data, ``N``: live without data, ``S``: skipped."""
    mark, data = value[:1], value[1:]
    return SlotView(slot, mark != b"S", data if mark == b"L" else None)
