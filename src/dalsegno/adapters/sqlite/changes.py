"""What a transaction changed, and how it is written: each row once, one statement per kind of change."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import BarrierRow, ExecutionRow, GateRow, ScopeRow, TokenRow
from dalsegno.model.execution import NewExecution

Parameters = tuple[Any, ...]

_turns = itertools.count(1)
"""Order among tokens that this process made ready at the same instant."""


class Changes:
    __slots__ = (
        "barriers",
        "created",
        "events",
        "executions",
        "gates",
        "left",
        "left_scopes",
        "moved",
        "outbox",
        "outputs",
        "scopes",
        "slots",
        "spawned",
        "tokens",
    )

    def __init__(self) -> None:
        self.created: dict[str, tuple[ExecutionRow, NewExecution]] = {}
        self.executions: dict[str, ExecutionRow] = {}
        self.moved: set[str] = set()
        """Executions whose state changed, not only their counters."""
        self.tokens: dict[tuple[str, str], TokenRow] = {}
        self.spawned: set[tuple[str, str]] = set()
        """Tokens that are not stored yet."""
        self.scopes: dict[tuple[str, str], ScopeRow] = {}
        self.barriers: dict[tuple[str, str], BarrierRow] = {}
        self.gates: dict[tuple[str, str], GateRow] = {}
        self.slots: dict[tuple[str, str, int], tuple[bool, bytes | None]] = {}
        self.left: dict[tuple[str, str, str], bytes] = {}
        self.left_scopes: set[tuple[str, str]] = set()
        self.outputs: list[Parameters] = []
        self.outbox: list[Parameters] = []
        self.events: list[Parameters] = []

    def write(self, connection: sqlite3.Connection) -> None:
        for name, rows in self._writes():
            if rows:
                connection.executemany(SQL[name], rows)

    def _writes(self) -> Iterator[tuple[str, list[Parameters]]]:
        yield from self._executions()
        yield from self._tokens()
        yield "join.save_scope", [_scope(row) for row in self.scopes.values()]
        yield "join.save_barrier", [_barrier(row) for row in self.barriers.values()]
        yield "join.save_gate", [_gate(row) for row in self.gates.values()]
        yield "join.save_slot", [(*key, *slot) for key, slot in self.slots.items()]
        yield "join.save_left", [(*key, data) for key, data in self.left.items()]
        yield "history.save_output", self.outputs
        yield "history.insert_outbox", self.outbox
        yield "history.insert_event", self.events

    def _executions(self) -> Iterator[tuple[str, list[Parameters]]]:
        created, moved = self.created, self.moved
        if created:
            yield "execution.insert_flight", [_flight(row) for row, _ in created.values()]
            yield "execution.insert_record", [_record(row, new) for row, new in created.values()]
            yield (
                "execution.insert_tag",
                [(*tag, new.created_at, new.id) for _, new in created.values() for tag in new.tags],
            )
        stored = [row for name, row in self.executions.items() if name not in created]
        yield (
            "execution.advance",
            [(row.epoch, row.seq, row.live, row.touched_at, row.id) for row in stored if row.id not in moved],
        )
        if moved:
            changed = [row for row in stored if row.id in moved]
            yield "execution.change_flight", [_change_flight(row) for row in changed]
            yield "execution.change_record", [_change_record(row) for row in changed]

    def _tokens(self) -> Iterator[tuple[str, list[Parameters]]]:
        spawned = self.spawned
        consumed, leased, changed, kept, inserted = [], [], [], [], []
        for key, row in self.tokens.items():
            if key in spawned:
                if row.state == "leased" and row.fence == 1 and row.limit_key is None:
                    kept.append(_kept(row))
                else:
                    inserted.append(_inserted(row))
            elif row.state == "consumed":
                consumed.append((row.digest, row.execution, row.id))
            elif row.state == "leased":
                leased.append((row.owner, row.fence, row.execution, row.id))
            else:
                changed.append(_changed(row))
        yield "token.consume", consumed
        yield "token.insert_kept", kept
        yield "token.insert", inserted
        yield "token.lease", leased
        yield "token.change", changed


def _turn(row: TokenRow) -> int:
    return next(_turns) if row.state == "ready" else 0


def _flight(row: ExecutionRow) -> Parameters:
    return (
        row.id,
        row.state,
        row.definition,
        row.epoch,
        row.seq,
        row.live,
        row.priority,
        row.paused_at,
        row.touched_at,
        row.ended_at,
    )


def _record(row: ExecutionRow, new: NewExecution) -> Parameters:
    return (
        new.id,
        new.workflow,
        new.version,
        new.definition,
        row.state,
        new.created_at,
        new.priority,
        new.parent,
        new.relation,
        new.idempotency_key,
        row.paused_at,
        row.ended_at,
        json.dumps(new.tags),
        row.error,
        row.context,
        row.output,
        new.input,
    )


def _change_flight(row: ExecutionRow) -> Parameters:
    return row.state, row.epoch, row.seq, row.live, row.touched_at, row.paused_at, row.ended_at, row.id


def _change_record(row: ExecutionRow) -> Parameters:
    return row.state, row.paused_at, row.ended_at, row.output, row.context, row.error, row.id


def _kept(row: TokenRow) -> Parameters:
    return (
        row.execution,
        row.id,
        row.scope,
        row.kind,
        row.node,
        row.data,
        row.queue,
        row.priority,
        row.live,
        row.owner,
        row.ready_at,
    )


def _inserted(row: TokenRow) -> Parameters:
    return (
        row.execution,
        row.id,
        row.scope,
        row.kind,
        row.node,
        row.data,
        row.queue,
        row.priority,
        row.limit_key,
        row.live,
        row.state,
        row.due,
        row.fence,
        row.owner,
        row.attempt,
        row.losses,
        row.reason,
        row.barrier,
        row.ready_at,
        row.digest,
        _turn(row),
    )


def _changed(row: TokenRow) -> Parameters:
    return (
        row.data,
        row.state,
        row.due,
        row.fence,
        row.owner,
        row.attempt,
        row.losses,
        row.reason,
        row.barrier,
        row.ready_at,
        row.digest,
        _turn(row),
        row.execution,
        row.id,
    )


def _scope(row: ScopeRow) -> Parameters:
    return row.execution, row.scope, row.barrier, row.slot, row.live, row.ended


def _barrier(row: BarrierRow) -> Parameters:
    return (
        row.execution,
        row.id,
        row.scope,
        row.node,
        row.mode,
        row.expected,
        row.join,
        row.state,
        row.resolved,
        row.live,
        row.deadline,
        row.milestone_at,
        row.milestone_token,
    )


def _gate(row: GateRow) -> Parameters:
    return row.execution, row.id, row.count, json.dumps(sorted(row.used))
