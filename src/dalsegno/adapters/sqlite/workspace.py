"""SqliteWorkspace: the rows the settlement rules work on, kept between transactions as long as nobody else writes.

Belongs to the writer thread. Within a transaction a row is one object; what the rules change is written by ``flush``,
each row once. Rows stay cached afterwards, so that a running chain reads nothing at all; SQLite's ``data_version``
tells when another process has written, and then everything is dropped.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from dalsegno.adapters.sqlite.changes import Changes
from dalsegno.adapters.sqlite.flight import Flight
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import BarrierRow, ExecutionRow, GateRow, ScopeRow, TokenRow
from dalsegno.model.effect import SpawnToken
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import NewExecution
from dalsegno.model.transition import Transition

UNFINISHED = frozenset(("ready", "leased", "parked", "held"))
CACHED_FLIGHTS = 20_000
"""Executions remembered at most; beyond that all are forgotten and read again when they move."""


class SqliteWorkspace:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._flights: dict[str, Flight] = {}
        self._fresh: set[tuple[str, str]] = set()
        self._registered: set[str | None] = set()
        self._version = -1
        self.changes = Changes()

    # -- life of a transaction --------------------------------------------------------------------------------

    def begin(self) -> None:
        """First thing in a transaction: forget what another process may have changed."""
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self._version or len(self._flights) > CACHED_FLIGHTS:
            self._flights.clear()
            self._registered.clear()
            self._version = version

    def reset(self) -> None:
        """After a rollback: rows were changed in memory only."""
        self._flights.clear()
        self._registered.clear()
        self._fresh.clear()
        self.changes = Changes()

    def flush(self) -> None:
        """Writes what changed. The transaction is still open."""
        changes = self.changes
        changes.write(self.connection)
        for row in changes.tokens.values():
            if row.state == "leased":
                if row.owner not in self._registered:
                    self._register(row.owner)
            elif row.state not in UNFINISHED and (flight := self._flights.get(row.execution)) is not None:
                flight.tokens.pop(row.id, None)
        for execution in changes.executions.values():
            if execution.ended_at is not None:
                self.forget(execution.id)
            else:
                self._flights[execution.id].paused = execution.state == "PAUSED"
        self._fresh.clear()
        self.changes = Changes()

    def _register(self, worker: str | None) -> None:
        """Whoever holds a lease has a row, so that one who dies before the first heartbeat is missed, too."""
        self.connection.execute(SQL["worker.register"], (worker,))
        self._registered.add(worker)

    def unregister(self, workers: Iterable[str]) -> None:
        self.connection.executemany(SQL["worker.forget"], [(worker,) for worker in workers])
        self._registered.difference_update(workers)

    def forget(self, execution: str) -> None:
        """Its rows were changed or removed past this workspace."""
        self._flights.pop(execution, None)

    # -- reading ahead ----------------------------------------------------------------------------------------

    def prefetch(self, batch: Sequence[Transition], *, careful: bool) -> None:
        """Reads the rows of a batch with one statement each.

        Tokens that the batch spawns are not looked for: their ids are derived, so they hardly ever exist, and if one
        does its insert fails and the batch is applied again with ``careful``.
        """
        flights = self._flights
        self.warm({step.execution for step in batch if step.execution not in flights})
        missing = [
            (step.execution, step.token)
            for step in batch
            if step.token is not None
            and (flight := flights.get(step.execution)) is not None
            and step.token not in flight.tokens
        ]
        if len(missing) > 1:
            for row in self.connection.execute(SQL["token.many"], (json.dumps(missing),)):
                self.adopt(TokenRow(*row))
        if not careful:
            self._fresh = {
                (step.execution, effect.token.id)
                for step in batch
                for effect in step.effects
                if type(effect) is SpawnToken
            }

    def warm(self, executions: Iterable[str]) -> None:
        missing = [execution for execution in executions if execution not in self._flights]
        if len(missing) > 1:
            for row in self.connection.execute(SQL["execution.flights"], (json.dumps(missing),)):
                self._flights[row[0]] = Flight(ExecutionRow(*row))

    def adopt(self, row: TokenRow) -> TokenRow:
        """The one object of a token that was read by another way."""
        flight = self._flight(row.execution)
        return flight.tokens.setdefault(row.id, row) if flight is not None else row

    def _flight(self, execution: str) -> Flight | None:
        found = self._flights.get(execution)
        if found is not None:
            return found
        row = self.connection.execute(SQL["execution.flight"], (execution,)).fetchone()
        if row is None:
            row = self.connection.execute(SQL["execution.record"], (execution,)).fetchone()
            return Flight(ExecutionRow(*row)) if row is not None else None
        found = self._flights[execution] = Flight(ExecutionRow(*row))
        return found

    # -- Workspace: reading -----------------------------------------------------------------------------------

    def execution(self, execution: str) -> ExecutionRow | None:
        flight = self._flights.get(execution) or self._flight(execution)
        return flight.row if flight is not None else None

    def token(self, execution: str, token: str) -> TokenRow | None:
        flight = self._flights.get(execution)
        if flight is None:
            return self._read_token(execution, token)
        found = flight.tokens.get(token)
        if found is None and (execution, token) not in self._fresh:
            found = self._read_token(execution, token)
            if found is not None:
                flight.tokens[token] = found
        return found

    def _read_token(self, execution: str, token: str) -> TokenRow | None:
        row = self.connection.execute(SQL["token.one"], (execution, token)).fetchone()
        return TokenRow(*row) if row is not None else None

    def scope(self, execution: str, scope: str) -> ScopeRow | None:
        flight = self._flights[execution]
        found = flight.scopes.get(scope)
        if found is None:
            row = self.connection.execute(SQL["join.scope"], (execution, scope)).fetchone()
            if row is not None:
                found = flight.scopes[scope] = ScopeRow(*row)
        return found

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        flight = self._flights[execution]
        found = flight.barriers.get(barrier)
        if found is None:
            row = self.connection.execute(SQL["join.barrier"], (execution, barrier)).fetchone()
            if row is not None:
                found = flight.barriers[barrier] = BarrierRow(*row)
        return found

    def gate(self, execution: str, gate: str) -> GateRow | None:
        flight = self._flights[execution]
        found = flight.gates.get(gate)
        if found is None:
            row = self.connection.execute(SQL["join.gate"], (execution, gate)).fetchone()
            if row is not None:
                found = flight.gates[gate] = GateRow(row[0], row[1], row[2], frozenset(json.loads(row[3])))
        return found

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool:
        key = (execution, barrier, slot)
        if key in self.changes.slots:
            return True
        return self.connection.execute(SQL["join.has_slot"], key).fetchone() is not None

    def has_left(self, execution: str, scope: str) -> bool:
        if (execution, scope) in self.changes.left_scopes:
            return True
        return self.connection.execute(SQL["join.has_left"], (execution, scope)).fetchone() is not None

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """What is stored, as changed in this transaction, and what was spawned in it."""
        flight = self._flights[execution]
        for row in self.connection.execute(SQL["token.unfinished"], (execution,)).fetchall():
            if row[1] not in flight.tokens and (execution, row[1]) not in self.changes.tokens:
                flight.tokens[row[1]] = TokenRow(*row)
        return [
            token
            for token in flight.tokens.values()
            if token.state in UNFINISHED and (scope is None or token.scope == scope)
        ]

    # -- Workspace: writing -----------------------------------------------------------------------------------

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None:
        self._flights[row.id] = Flight(row)
        self.changes.created[row.id] = (row, new)

    def save_execution(self, row: ExecutionRow) -> None:
        self.changes.executions[row.id] = row
        if row.state != "RUNNING" or self._flights[row.id].paused:
            self.changes.moved.add(row.id)

    def add_token(self, row: TokenRow) -> None:
        self._flights[row.execution].tokens[row.id] = row
        key = (row.execution, row.id)
        self.changes.tokens[key] = row
        self.changes.spawned.add(key)

    def save_token(self, row: TokenRow) -> None:
        self.changes.tokens[row.execution, row.id] = row

    def save_scope(self, row: ScopeRow) -> None:
        self._flights[row.execution].scopes[row.scope] = row
        self.changes.scopes[row.execution, row.scope] = row

    def save_barrier(self, row: BarrierRow) -> None:
        self._flights[row.execution].barriers[row.id] = row
        self.changes.barriers[row.execution, row.id] = row

    def save_gate(self, row: GateRow) -> None:
        self._flights[row.execution].gates[row.id] = row
        self.changes.gates[row.execution, row.id] = row

    def add_slot(self, execution: str, barrier: str, slot: int, live: bool, data: bytes | None) -> None:
        self.changes.slots.setdefault((execution, barrier, slot), (live, data))

    def add_left(self, execution: str, scope: str, key: str, data: bytes) -> None:
        self.changes.left[execution, scope, key] = data
        self.changes.left_scopes.add((execution, scope))

    def add_output(self, execution: str, output: str, data: bytes) -> None:
        self.changes.outputs.append((execution, output, data))

    def add_outbox(self, execution: str, entry: str, topic: str, data: bytes) -> None:
        self.changes.outbox.append((entry, execution, topic, data))

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None:
        self.changes.events.append(
            (
                execution,
                seq,
                event.kind,
                event.node,
                event.scope,
                event.at,
                event.data,
                event.token,
                arrived,
                expected,
            )
        )
