"""PostgresWorkspace: the rows that the settlement rules work on, for one commit.

All rows are read ahead. A missing one raises :class:`NotLoaded`; it is then read and the rules restart on a new
workspace. Changed rows are in ``changes``, each once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping

from dalsegno.adapters.postgres.commit.changes import Changes
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import (
    FLIGHT_COLUMNS,
    NUMBER,
    TOKEN_FENCE,
    TOKEN_NUMBER,
    VERSION,
    LoadedRows,
    NotLoaded,
    barrier_of,
    token_of,
)
from dalsegno.adapters.postgres.store import Row
from dalsegno.adapters.rows import machine_row
from dalsegno.core.settlement import (
    BarrierRow,
    ExecutionRow,
    GateRow,
    Kept,
    MachineRow,
    ScopeRow,
    SignalRow,
    TokenRow,
)
from dalsegno.model.effect import AppendChunks, PublishValues, ReplaceTags
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import SCRIPTED, NewExecution
from dalsegno.model.machine import Completion
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import ReadyToken

INBOX = 14
"""Column of ``load.machines`` where the inbox begins."""


class MachineWorkspace:
    def __init__(self, loaded: LoadedRows) -> None:
        self.loaded = loaded
        self.changes = Changes()
        self._flights: dict[str, Flight] = {}

    # -- reading ----------------------------------------------------------------------------------------------

    def machine(self, execution: str) -> MachineRow | None:
        flight = self._flights[execution]
        if flight.machine is None and flight.row.kind in SCRIPTED and not flight.is_new:
            try:
                row = self.loaded.machines[execution]
            except KeyError:
                raise NotLoaded("machines", execution) from None
            if row is not None:
                flight.machine = machine_row(execution, row[:INBOX])
                flight.inbox.update(_inbox_of(row))
        return flight.machine

    def completions(self, execution: str) -> Mapping[int, Kept]:
        self.machine(execution)  # loads its inbox, too
        return self._flights[execution].inbox

    def signal(self, execution: str, signal: str) -> SignalRow | None:
        flight = self._flights[execution]
        found = flight.mailbox.get(signal)
        if found is None and not flight.is_new:
            try:
                row = self.loaded.signals[execution, signal]
            except KeyError:
                raise NotLoaded("signals", (execution, signal)) from None
            if row is not None:
                found = flight.mailbox[signal] = SignalRow(execution, *row[1:])
        return found

    def next_signal(self, execution: str, names: Collection[str]) -> SignalRow | None:
        flight = self._flights[execution]
        if not flight.is_new:
            for name in names:
                self._look_for_signals(flight, name)
        found = [row for row in flight.mailbox.values() if not row.taken and row.name in names]
        return min(found, key=lambda signal: signal.number, default=None)

    def _look_for_signals(self, flight: Flight, name: str) -> None:
        execution = flight.row.id
        try:
            stored = self.loaded.waiting_signals[execution, name]
        except KeyError:
            raise NotLoaded("waiting_signals", (execution, name)) from None
        for row in stored:
            if row[1] not in flight.mailbox:
                flight.mailbox[row[1]] = SignalRow(execution, *row[1:])

    # -- writing ----------------------------------------------------------------------------------------------

    def save_machine(self, row: MachineRow) -> None:
        flight = self._flights[row.execution]
        flight.machine = row
        self.changes.machines[flight.number] = row

    def add_completion(self, execution: str, completion: Completion) -> None:
        flight = self._flights[execution]
        flight.inbox[completion.promise] = (completion.number, completion.ok)
        self.changes.completions[flight.number, completion.number] = completion

    def remove_completions(self, execution: str, promises: Collection[int]) -> None:
        flight = self._flights[execution]
        for promise in promises:
            key = flight.number, flight.inbox.pop(promise)[0]
            if self.changes.completions.pop(key, None) is None:
                self.changes.removed.append(key)

    def save_signal(self, row: SignalRow) -> None:
        flight = self._flights[row.execution]
        flight.mailbox[row.id] = row
        self.changes.signals[flight.number, row.id] = row

    # -- limits -----------------------------------------------------------------------------------------------

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        try:
            heads = self.loaded.heads[key]
        except KeyError:
            raise NotLoaded("keys", key) from None
        self.changes.freed.add(key)
        return heads

    def release_slots(self, execution: str) -> Collection[str]:
        flight = self._flights[execution]
        held = [key for key, holder in self.changes.held if holder == flight.number]
        if flight.is_new:
            return held
        try:
            stored = self.loaded.held_keys[execution]
        except KeyError:
            raise NotLoaded("held_keys", execution) from None
        if stored:
            self.changes.unheld.add(flight.number)
        return {*stored, *held}

    def hold_slot(self, execution: str, key: str) -> None:
        self.changes.held.add((key, self._flights[execution].number))


def _inbox_of(row: Row) -> dict[int, Kept]:
    promises, numbers, oks = row[INBOX:]
    if promises is None:
        return {}
    return {promise: (number, ok) for promise, number, ok in zip(promises, numbers, oks, strict=True)}


AFTER_ALL_STORED = 1 << 62
"""Tokens that are spawned here come after those that are stored."""


class PostgresWorkspace(MachineWorkspace):
    def __init__(self, loaded: LoadedRows, take_number: Callable[[], int]) -> None:
        super().__init__(loaded)
        self._take_number = take_number
        self._born = AFTER_ALL_STORED

    def adopt(self, flights: dict[str, Flight]) -> None:
        """Use flights that are known already."""
        self._flights.update(flights)

    def stored_flights(self) -> list[Flight]:
        """Return the changed flights, as they are once the changes are written."""
        changed = self.changes.executions
        for name, flight in changed.items():
            if name not in self.changes.created:
                flight.version += 1
        return list(changed.values())

    def _flight(self, execution: str) -> Flight | None:
        found = self._flights.get(execution)
        if found is None:
            row = self.loaded.flights.get(execution)
            if row is not None:
                known = ExecutionRow(*row[FLIGHT_COLUMNS])
                found = self._flights[execution] = Flight(row[NUMBER], known, row[VERSION])
        return found

    # -- reading ----------------------------------------------------------------------------------------------

    def execution(self, execution: str) -> ExecutionRow | None:
        flight = self._flights.get(execution) or self._flight(execution)
        if flight is not None:
            return flight.row
        if execution in self.loaded.created:
            return None
        try:
            swept = self.loaded.swept[execution]
        except KeyError:
            raise NotLoaded("executions", execution) from None
        return ExecutionRow(*swept[1:]) if swept is not None else None

    def token(self, execution: str, token: str) -> TokenRow | None:
        flight = self._flights.get(execution) or self._flight(execution)
        if flight is None:
            return None
        found = flight.tokens.get(token)
        if found is not None or flight.is_new or token in flight.moved_away:
            return found
        try:
            row = self.loaded.tokens[execution][token]
        except KeyError:
            if (execution, token) in self.loaded.fresh:
                return None
            raise NotLoaded("tokens", (execution, token)) from None
        if row is None:
            return None
        found = flight.tokens[token] = token_of(execution, row)
        return found

    def scope(self, execution: str, scope: str) -> ScopeRow | None:
        flight = self._flights[execution]
        found = flight.scopes.get(scope)
        if found is not None or flight.is_new:
            return found
        try:
            row = self.loaded.scopes[execution, scope]
        except KeyError:
            if (execution, scope) in self.loaded.fresh:
                return None
            raise NotLoaded("scopes", (execution, scope)) from None
        if row is not None:
            found = flight.scopes[scope] = ScopeRow(execution, *row[1:6])
        return found

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        flight = self._flights[execution]
        found = flight.barriers.get(barrier)
        if found is not None or flight.is_new:
            return found
        try:
            row = self.loaded.barriers[execution, barrier]
        except KeyError:
            if (execution, barrier) in self.loaded.fresh:
                return None
            raise NotLoaded("barriers", (execution, barrier)) from None
        if row is not None:
            found = flight.barriers[barrier] = barrier_of(execution, row)
        return found

    def gate(self, execution: str, gate: str) -> GateRow | None:
        flight = self._flights[execution]
        found = flight.gates.get(gate)
        if found is not None or flight.is_new:
            return found
        try:
            row = self.loaded.gates[execution, gate]
        except KeyError:
            raise NotLoaded("gates", (execution, gate)) from None
        if row is not None:
            found = flight.gates[gate] = GateRow(execution, gate, row[2], frozenset(json.loads(row[3])))
        return found

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool:
        flight = self._flights[execution]
        if (barrier, slot) in flight.slots or flight.is_new:
            return (barrier, slot) in flight.slots
        try:
            return self.loaded.slots[execution, barrier, slot]
        except KeyError:
            raise NotLoaded("slots", (execution, barrier, slot)) from None

    def has_left(self, execution: str, scope: str) -> bool:
        flight = self._flights[execution]
        if scope in flight.left or flight.is_new:
            return scope in flight.left
        try:
            return self.loaded.left[execution, scope]
        except KeyError:
            if (execution, scope) in self.loaded.fresh:
                return False
            raise NotLoaded("left", (execution, scope)) from None

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        flight = self._flights[execution]
        if not flight.is_new and execution not in self.loaded.unfinished:
            raise NotLoaded("unfinished", execution)
        self._look_at_all_tokens(flight)
        found = [
            token
            for token in flight.tokens.values()
            if token.state in UNFINISHED and (scope is None or token.scope == scope)
        ]
        return sorted(found, key=lambda token: self._place(flight, token.id))

    def waiting_tokens(self, execution: str, awaits: str) -> Iterable[TokenRow]:
        flight = self._flights[execution]
        if not flight.is_new and (execution, awaits) not in self.loaded.awaiting:
            raise NotLoaded("awaiting", (execution, awaits))
        self._look_at_all_tokens(flight)
        waiting = [
            token for token in flight.tokens.values() if token.state == "parked" and token.awaits == awaits
        ]
        return sorted(waiting, key=lambda token: (token.ready_at, self._place(flight, token.id)))

    def _look_at_all_tokens(self, flight: Flight) -> None:
        """Create objects for all tokens that were read."""
        for token in self.loaded.tokens.get(flight.row.id, ()):
            self.token(flight.row.id, token)

    def _place(self, flight: Flight, token: str) -> int:
        """Return the token's position in spawn order."""
        spawned = flight.spawned.get(token)
        if spawned is not None:
            return spawned
        row = self.loaded.tokens[flight.row.id].get(token)
        return int(row[TOKEN_NUMBER]) if row is not None else 0

    # -- writing ----------------------------------------------------------------------------------------------

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None:
        flight = self._flights[row.id] = Flight(self._take_number(), row, is_new=True)
        self.changes.created[row.id] = (flight, new)

    def replace_input(self, execution: str, data: bytes) -> None:
        self.changes.inputs[self._flights[execution].number] = data

    def change_version(self, execution: str, version: int, definition: str) -> None:
        self.changes.versions[self._flights[execution].number] = version, definition

    def replace_tags(self, execution: str, change: ReplaceTags) -> None:
        self.changes.tags.append((self._flights[execution].number, change))

    def publish(self, execution: str, change: PublishValues, at: float) -> None:
        self.changes.published.update({(execution, key): (data, at) for key, data in change.values})

    def append_chunks(self, execution: str, change: AppendChunks, at: float) -> None:
        self.changes.appended.append((execution, change, at))

    def save_execution(self, row: ExecutionRow) -> None:
        self.changes.executions[row.id] = self._flights[row.id]

    def add_token(self, row: TokenRow) -> None:
        flight = self._flights[row.execution]
        self._born += 1
        flight.tokens[row.id] = row
        flight.spawned[row.id] = self._born
        self.changes.spawned[self._born] = (row, flight)

    def save_token(self, row: TokenRow) -> None:
        flight = self._flights[row.execution]
        if row.id in flight.spawned:
            return  # written in its final form
        key = flight.number, row.id
        if row.state == "consumed":
            self.changes.consumed[key] = row
            self.changes.tokens.pop(key, None)
        else:
            self.changes.tokens[key] = (row, self._stored_fence(flight, row))
        self.changes.touched.add(flight.number)

    def rewrite_token(self, row: TokenRow) -> None:
        self.save_token(row)

    def _stored_fence(self, flight: Flight, row: TokenRow) -> int:
        """Return the fence by which the write detects a concurrent claim."""
        stored = self.loaded.tokens[row.execution][row.id]
        if stored is None:
            raise LookupError(f"token {row.id} is to be changed, but is not stored")
        return int(stored[TOKEN_FENCE])

    def move_token(self, row: TokenRow, execution: str) -> None:
        left, entered = self._flights[row.execution], self._flights[execution]
        del left.tokens[row.id]
        left.moved_away |= {row.id}
        spawned = left.spawned.pop(row.id, None)
        if spawned is not None:
            entered.spawned[row.id] = spawned
            self.changes.spawned[spawned] = (row, entered)
        else:
            fence = self._stored_fence(left, row)
            self.changes.moved[left.number, row.id] = entered.number
            self.changes.tokens[left.number, row.id] = (row, fence)
        row.execution = execution
        entered.tokens[row.id] = row

    def save_scope(self, row: ScopeRow) -> None:
        flight = self._flights[row.execution]
        flight.scopes[row.scope] = row
        stored = None if flight.is_new else self.loaded.scopes.get((row.execution, row.scope))
        self.changes.save("scopes", flight.number, row.scope, row, new=stored is None)

    def save_barrier(self, row: BarrierRow) -> None:
        flight = self._flights[row.execution]
        flight.barriers[row.id] = row
        stored = None if flight.is_new else self.loaded.barriers.get((row.execution, row.id))
        self.changes.save("barriers", flight.number, row.id, row, new=stored is None)

    def save_gate(self, row: GateRow) -> None:
        flight = self._flights[row.execution]
        flight.gates[row.id] = row
        self.changes.gates[flight.number, row.id] = row

    def add_slot(self, execution: str, barrier: str, slot: int, live: bool, data: bytes | None) -> None:
        flight = self._flights[execution]
        flight.slots.add((barrier, slot))
        self.changes.slots.setdefault((flight.number, barrier, slot), (live, data))

    def add_left(self, execution: str, scope: str, key: str, data: bytes) -> None:
        flight = self._flights[execution]
        flight.left.add(scope)
        self.changes.left[flight.number, scope, key] = data

    def add_output(self, execution: str, output: str, data: bytes) -> None:
        self.changes.outputs[self._flights[execution].number, output] = data

    def add_outbox(self, execution: str, entry: str, topic: str, data: bytes) -> None:
        self.changes.outbox.setdefault(entry, (execution, topic, data))

    def add_publication(self, execution: str, owner: str | None, until: float | None) -> None:
        self.changes.publications.append((execution, owner, until))

    def is_owed(self, entry: str) -> bool:
        try:
            return self.loaded.orders[entry] and entry not in self.changes.taken_orders
        except KeyError:
            raise NotLoaded("orders", entry) from None

    def take_order(self, entry: str) -> None:
        self.changes.taken_orders[entry] = None

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None:
        number = self._flights[execution].number
        self.changes.events.append(
            (
                number,
                seq,
                event.kind,
                event.node,
                event.scope,
                event.at,
                event.token,
                arrived,
                expected,
                event.data,
            )
        )
