"""Rows as the ports show them."""

from __future__ import annotations

import json
from typing import Any

from dalsegno.core.settlement import BarrierRow, ExecutionRow, TokenRow
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ExecutionView
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import ReadyToken

TAGS = 12
"""Position of the tags in ``execution_view``, whose columns are ExecutionView's."""


def execution_view(row: tuple[Any, ...]) -> ExecutionView:
    columns: list[Any] = list(row)
    columns[TAGS] = tuple((name, value) for name, value in json.loads(row[TAGS]))
    return ExecutionView(*columns)


def token_view(row: TokenRow) -> TokenView:
    return TokenView(
        row.id,
        row.scope,
        row.kind,
        row.node,
        row.state,
        row.queue,
        row.priority,
        row.limit_key,
        bool(row.live),
        row.attempt,
        row.losses,
        row.reason,
        row.due,
        row.owner,
        row.fence,
        row.data,
    )


def barrier_view(row: BarrierRow) -> BarrierView:
    return BarrierView(
        row.id,
        row.scope,
        row.node,
        row.state,
        row.mode,
        row.expected,
        row.resolved,
        row.live,
        row.deadline,
    )


def ready_token(row: TokenRow) -> ReadyToken:
    return ReadyToken(row.id, row.execution, row.queue, row.priority)


def lease(token: TokenRow, execution: ExecutionRow) -> Lease:
    return Lease(
        token.id,
        token.execution,
        token.fence,
        token.scope,
        token.kind,
        token.node,
        token.data,
        token.queue,
        token.priority,
        token.attempt,
        token.losses,
        token.reason,
        token.ready_at,
        execution.definition,
        execution.epoch,
        bool(token.live),
    )
