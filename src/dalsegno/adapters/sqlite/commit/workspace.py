"""SqliteWorkspace: the rows that the settlement rules work on, cached until another process writes.

Belongs to the writer thread. Within a transaction a row is one object; ``flush`` writes changed rows, each once.
Rows stay cached afterwards, so that a running chain reads nothing. SQLite's ``data_version`` shows when another
process has written; then the whole cache is dropped.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dalsegno.adapters.rows import machine_row
from dalsegno.adapters.sqlite.commit.changes import Changes, Flight, stored_signal
from dalsegno.adapters.sqlite.commit.streams import append
from dalsegno.adapters.sqlite.statements import SQL
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
from dalsegno.model.effect import (
    AppendChunks,
    DeliverToToken,
    DropTokens,
    HurryToken,
    PublishValues,
    ReplaceTags,
    SpawnToken,
)
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import SCRIPTED, NewExecution
from dalsegno.model.machine import Completion
from dalsegno.model.token import UNFINISHED
from dalsegno.model.transition import ReadyToken, Transition


class MachineWorkspace:
    """Machines, inboxes and mailboxes of scripts.

    A machine's row is cached with its execution, and so is an inbox without its data. Signals are few: they are read
    and written at once.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.changes = Changes()
        self._flights: dict[str, Flight] = {}

    def _warm_machines(self, flights: Iterable[Flight]) -> None:
        """Read the machines of a batch with one statement."""
        cold = {
            flight.number: flight
            for flight in flights
            if flight.machine is None and flight.row.kind in SCRIPTED
        }
        if cold:
            for row in self.connection.execute(SQL["machine.many"], (json.dumps(list(cold)),)):
                flight = cold[row[0]]
                flight.machine = machine_row(flight.row.id, row)

    # -- Workspace: reading -----------------------------------------------------------------------------------

    def machine(self, execution: str) -> MachineRow | None:
        flight = self._flights[execution]
        if flight.machine is None and flight.row.kind in SCRIPTED:
            row = self.connection.execute(SQL["machine.one"], (flight.number,)).fetchone()
            if row is not None:
                flight.machine = machine_row(execution, row)
        return flight.machine

    def completions(self, execution: str) -> Mapping[int, Kept]:
        flight = self._flights[execution]
        if flight.machine is not None and len(flight.inbox) != flight.machine.kept:
            stored = self.connection.execute(SQL["machine.inbox"], (flight.number,))
            flight.inbox.update((promise, (number, bool(ok))) for promise, number, ok in stored)
        return flight.inbox

    def signal(self, execution: str, signal: str) -> SignalRow | None:
        flight = self._flights[execution]
        row = self.connection.execute(SQL["machine.signal"], (flight.number, signal)).fetchone()
        return SignalRow(execution, *row) if row is not None else None

    def next_signal(self, execution: str, names: Collection[str]) -> SignalRow | None:
        number = self._flights[execution].number
        looks = (self.connection.execute(SQL["machine.next_signal"], (number, name)) for name in names)
        found = [SignalRow(execution, *row) for row in (look.fetchone() for look in looks) if row is not None]
        return min(found, key=lambda signal: signal.number, default=None)

    # -- Workspace: writing -----------------------------------------------------------------------------------

    def save_machine(self, row: MachineRow) -> None:
        flight = self._flights[row.execution]
        flight.machine = row
        self.changes.machines[flight.number] = row

    def add_completion(self, execution: str, completion: Completion) -> None:
        flight = self._flights[execution]
        cleared = self.changes.cleared.get(flight.number)
        if cleared is not None and completion.number <= max(cleared):
            # A signal may take the number of a cleared completion: completions are then deleted one by one.
            self.changes.removed += [value for number in cleared for value in (flight.number, number)]
            del self.changes.cleared[flight.number]
        flight.inbox[completion.promise] = (completion.number, completion.ok)
        self.changes.completions += (
            flight.number,
            completion.number,
            completion.promise,
            1 if completion.ok else 0,
            bytearray(completion.data),
        )

    def remove_completions(self, execution: str, promises: Collection[int]) -> None:
        flight = self._flights[execution]
        gone = [flight.inbox.pop(promise)[0] for promise in promises]
        if not gone:
            return
        if flight.inbox:
            self.changes.removed += [value for number in gone for value in (flight.number, number)]
        else:
            self.changes.cleared.setdefault(flight.number, []).extend(gone)

    def save_signal(self, row: SignalRow) -> None:
        number = self._flights[row.execution].number
        self.connection.execute(SQL["machine.save_signal"], stored_signal(number, row))


class LimitWorkspace(MachineWorkspace):
    """Slots of tokens with a limit key."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.limits_matter: bool | None = None
        """Any token here has a limit key; None: not checked yet. Without one, limits cost nothing."""

    def has_limits(self) -> bool:
        if self.limits_matter is None:
            self.limits_matter = self.connection.execute(SQL["limits.any"]).fetchone() is not None
        return self.limits_matter

    def free_slot(self, key: str) -> Iterable[ReadyToken]:
        if not self.has_limits():
            return ()
        self.connection.execute(SQL["limits.open"], (key,))
        return self.first_in_lines(key)

    def first_in_lines(self, key: str) -> list[ReadyToken]:
        return [ReadyToken(*row) for row in self.connection.execute(SQL["limits.lines_of"], (key,))]

    def release_slots(self, execution: str) -> Collection[str]:
        if not self.has_limits():
            return ()
        number = self._flights[execution].number
        keys = [key for (key,) in self.connection.execute(SQL["limits.used_by"], {"execution": number})]
        if keys:
            self.connection.execute(SQL["limits.unhold"], (number,))
        return keys

    def hold_slot(self, execution: str, key: str) -> None:
        self.connection.execute(SQL["limits.hold"], (key, self._flights[execution].number))
        self.limits_matter = True


CACHED_FLIGHTS = 5_000
"""Most cached executions; beyond that all are dropped and read again when they change."""


class SqliteWorkspace(LimitWorkspace):
    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._fresh: set[tuple[str, str]] = set()
        self._absent: set[str] = set()
        """Executions that were looked for in this transaction and do not exist."""
        self._registered: set[str | None] = set()
        self.version = -1
        """SQLite's ``data_version`` when the last transaction began."""
        self._last_execution = self._last_token = 0
        self.makes_claimable = False
        """Whether this transaction lets claims find more."""
        self.large_bytes = 0
        """Bytes of large values that were written or removed since the file was opened."""

    # -- life of a transaction --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction: drop rows that another process may have changed."""
        self.makes_claimable = False
        (version,) = self.connection.execute("PRAGMA data_version").fetchone()
        if version != self.version or len(self._flights) > CACHED_FLIGHTS:
            self._forget_all()
            self.version = version
            (self._last_execution,) = self.connection.execute(SQL["execution.last_number"]).fetchone()
            (self._last_token,) = self.connection.execute(SQL["token.last_number"]).fetchone()

    def reset(self) -> None:
        """Drop the cache after a rollback: rows were changed in memory only."""
        self._forget_all()
        self.version = -1

    def _forget_all(self) -> None:
        self._flights.clear()
        self._registered.clear()
        self._fresh.clear()
        self._absent.clear()
        self.limits_matter = None
        self.changes = Changes()

    def flush(self) -> None:
        """Write the changes. The transaction is still open."""
        changes, self.changes = self.changes, Changes()
        self._fresh.clear()
        self._absent.clear()
        changes.write(self.connection)
        self.large_bytes += changes.large_bytes
        if changes.makes_claimable or self.limits_matter:  # an ended step may open its key's line
            self.makes_claimable = True
        if changes.lined_up:
            self.limits_matter = True
        for owner in changes.owners - self._registered:
            self._register(owner)
        for flight, token in changes.tombstones:
            del flight.tokens[token], flight.numbers[token]
        for row in changes.tokens.values():
            if row.state not in UNFINISHED and (found := self._flights.get(row.execution)) is not None:
                found.forget_token(row.id)
        for (_, path), scope in changes.scopes.items():
            if scope.ended and (found := self._flights.get(scope.execution)) is not None:
                found.scopes.pop(path, None)  # a split of many items must not fill the memory
        for execution, flight in changes.executions.items():
            if flight.row.ended_at is not None:
                self.forget(execution)
            else:
                flight.was_stopped = flight.row.state != "RUNNING"

    def forget(self, execution: str) -> None:
        """Drop an execution whose rows were changed or removed without this workspace."""
        self._flights.pop(execution, None)

    # -- workers ----------------------------------------------------------------------------------------------

    def _register(self, worker: str | None) -> None:
        """Create the row of a worker that holds a lease.

        So a worker that dies before its first heartbeat is found, too.
        """
        self.connection.execute(SQL["leases.register"], (worker,))
        self._registered.add(worker)

    def unregister(self, workers: Iterable[str]) -> None:
        self.connection.executemany(SQL["leases.forget"], [(worker,) for worker in workers])
        self._registered.difference_update(workers)

    # -- reading ahead ----------------------------------------------------------------------------------------

    def prefetch(self, batch: Sequence[Transition], *, careful: bool) -> None:
        """Read the rows of a batch with one statement per kind.

        Tokens that the batch spawns are not looked for: their ids are derived, so they hardly ever exist. If one
        does, its insert fails and the batch is applied again with ``careful``.
        """
        flights = self._flights
        self.warm({step.execution for step in batch if step.execution not in flights})
        spawned, missing = _named_tokens(batch)
        if not careful:
            self._fresh = spawned
        missing += [
            (step.execution, step.token)
            for step in batch
            if step.token is not None
            and ((flight := flights.get(step.execution)) is None or step.token not in flight.tokens)
        ]
        if missing:
            self._fetch(missing)
        self._warm_machines(flight for step in batch if (flight := flights.get(step.execution)) is not None)

    def _fetch(self, tokens: list[tuple[str, str]]) -> None:
        """Read the tokens that a batch consumes.

        A repeated transition may also spawn one of them; it exists nevertheless.
        """
        self._fresh.difference_update(tokens)
        wanted = [
            (flight.number, token)
            for execution, token in tokens
            if (flight := self._flights.get(execution)) is not None
        ]
        for row in self.connection.execute(SQL["token.many"], (json.dumps(wanted),)):
            self.adopt(row)

    def warm(self, executions: Iterable[str]) -> None:
        missing = [execution for execution in executions if execution not in self._flights]
        if missing:
            for row in self.connection.execute(SQL["execution.flights"], (json.dumps(missing),)):
                self._flights[row[1]] = Flight(row[0], ExecutionRow(*row[1:]))
            self._note_absent([execution for execution in missing if execution not in self._flights])

    def _note_absent(self, missing: list[str]) -> None:
        """Record executions without a flight as absent: most are about to be created, the others were swept."""
        if missing:
            recorded = self.connection.execute(SQL["execution.recorded"], (json.dumps(missing),))
            self._absent.update(missing)
            self._absent.difference_update([execution for (execution,) in recorded])

    def adopt(self, stored: tuple[Any, ...]) -> TokenRow:
        """Return the one object of a token from its number and the columns of TokenRow.

        Every claim calls this, so the row is read by position.
        """
        flight = self._flight(stored[1])
        if flight is None:
            raise LookupError(f"token {stored[2]} without its execution {stored[1]}")
        found = flight.tokens.get(stored[2])
        if found is None:
            found = flight.tokens[stored[2]] = TokenRow(*stored[1:23])
            flight.numbers[stored[2]] = stored[0]
        return found

    def number(self, row: TokenRow) -> int:
        return self._flights[row.execution].numbers[row.id]

    def _flight(self, execution: str) -> Flight | None:
        found = self._flights.get(execution)
        if found is None and execution not in self._absent:
            row = self.connection.execute(SQL["execution.flight"], (execution,)).fetchone()
            if row is not None:
                found = self._flights[execution] = Flight(row[0], ExecutionRow(*row[1:]))
        return found

    # -- Workspace: reading -----------------------------------------------------------------------------------

    def execution(self, execution: str) -> ExecutionRow | None:
        flight = self._flights.get(execution) or self._flight(execution)
        if flight is not None or execution in self._absent:
            return flight.row if flight is not None else None
        swept = self.connection.execute(SQL["execution.record"], (execution,)).fetchone()
        return ExecutionRow(*swept[1:]) if swept is not None else None

    def token(self, execution: str, token: str) -> TokenRow | None:
        flight = self._flights.get(execution) or self._flight(execution)
        if flight is None:
            return None
        found = flight.tokens.get(token)
        if found is None and (execution, token) not in self._fresh:
            row = self.connection.execute(SQL["token.one"], (flight.number, token)).fetchone()
            return self.adopt(row) if row is not None else None
        return found

    def scope(self, execution: str, scope: str) -> ScopeRow | None:
        flight = self._flights[execution]
        found = flight.scopes.get(scope)
        if found is None:
            row = self.connection.execute(SQL["join.scope"], (flight.number, scope)).fetchone()
            if row is not None:
                found = flight.scopes[scope] = ScopeRow(execution, scope, *row)
        return found

    def barrier(self, execution: str, barrier: str) -> BarrierRow | None:
        flight = self._flights[execution]
        found = flight.barriers.get(barrier)
        if found is None and not flight.is_new:
            row = self.connection.execute(SQL["join.barrier"], (flight.number, barrier)).fetchone()
            if row is not None:
                found = flight.barriers[barrier] = BarrierRow(execution, *row)
        return found

    def gate(self, execution: str, gate: str) -> GateRow | None:
        flight = self._flights[execution]
        found = flight.gates.get(gate)
        if found is None and not flight.is_new:
            row = self.connection.execute(SQL["join.gate"], (flight.number, gate)).fetchone()
            if row is not None:
                count, used = row
                found = flight.gates[gate] = GateRow(execution, gate, count, frozenset(json.loads(used)))
        return found

    def has_slot(self, execution: str, barrier: str, slot: int) -> bool:
        key = (self._flights[execution].number, barrier, slot)
        if key in self.changes.slots:
            return True
        return self.connection.execute(SQL["join.has_slot"], key).fetchone() is not None

    def has_left(self, execution: str, scope: str) -> bool:
        flight = self._flights[execution]
        if scope in flight.left or flight.is_new:
            return scope in flight.left
        return self.connection.execute(SQL["join.has_left"], (flight.number, scope)).fetchone() is not None

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """Return stored tokens, as changed in this transaction, and those spawned in it."""
        flight = self._flights[execution]
        if not flight.is_new:
            for row in self.connection.execute(SQL["token.unfinished"], (execution,)).fetchall():
                self.adopt(row)
        found = [
            token
            for token in flight.tokens.values()
            if token.state in UNFINISHED and (scope is None or token.scope == scope)
        ]
        return sorted(found, key=lambda token: flight.numbers[token.id])

    def waiting_tokens(self, execution: str, awaits: str) -> Iterable[TokenRow]:
        flight = self._flights[execution]
        if not flight.is_new:
            for row in self.connection.execute(SQL["token.awaiting"], (flight.number, awaits)).fetchall():
                self.adopt(row)
        waiting = [
            token for token in flight.tokens.values() if token.state == "parked" and token.awaits == awaits
        ]
        return sorted(waiting, key=lambda token: (token.ready_at, flight.numbers[token.id]))

    # -- Workspace: writing -----------------------------------------------------------------------------------

    def create_execution(self, row: ExecutionRow, new: NewExecution) -> None:
        self._last_execution += 1
        self._flights[row.id] = Flight(self._last_execution, row, is_new=True)
        self._absent.discard(row.id)
        self.changes.created[row.id] = new

    def replace_input(self, execution: str, data: bytes) -> None:
        self.changes.inputs[self._flights[execution].number] = data

    def change_version(self, execution: str, version: int, definition: str) -> None:
        self.changes.versions[self._flights[execution].number] = version, definition

    def replace_tags(self, execution: str, change: ReplaceTags) -> None:
        self.changes.tags.append((self._flights[execution].number, change))

    def publish(self, execution: str, change: PublishValues, at: float) -> None:
        rows = [(execution, key, data, at) for key, data in change.values]
        self.connection.executemany(SQL["published.publish"], rows)

    def append_chunks(self, execution: str, change: AppendChunks, at: float) -> None:
        append(self.connection, execution, change, at)

    def save_execution(self, row: ExecutionRow) -> None:
        self.changes.executions[row.id] = self._flights[row.id]

    def add_token(self, row: TokenRow) -> None:
        self._last_token = number = self._last_token + 1
        flight = self._flights[row.execution]
        flight.tokens[row.id] = row
        flight.numbers[row.id] = number
        self.changes.spawned[number] = (row, flight)

    def save_token(self, row: TokenRow) -> None:
        flight = self._flights[row.execution]
        number = flight.numbers[row.id]
        if row.state == "consumed":
            # Nothing changes it after that, but it stays until the flush: a copy of its transition must find it.
            self.changes.consumed += (number, bytearray(row.digest or b""))
            self.changes.tombstones.append((flight, row.id))
        else:
            self.changes.tokens[number] = row

    def rewrite_token(self, row: TokenRow) -> None:
        self.changes.rewritten.add(self._flights[row.execution].numbers[row.id])
        self.save_token(row)

    def move_token(self, row: TokenRow, execution: str) -> None:
        left, entered = self._flights[row.execution], self._flights[execution]
        number = left.numbers[row.id]
        left.forget_token(row.id)
        row.execution = execution
        entered.tokens[row.id] = row
        entered.numbers[row.id] = number
        if number in self.changes.spawned:
            self.changes.spawned[number] = (row, entered)
        else:
            self.changes.moved[number] = entered.number
            self.changes.tokens[number] = row

    def save_scope(self, row: ScopeRow) -> None:
        flight = self._flights[row.execution]
        flight.scopes[row.scope] = row
        self.changes.scopes[flight.number, row.scope] = row

    def save_barrier(self, row: BarrierRow) -> None:
        flight = self._flights[row.execution]
        flight.barriers[row.id] = row
        self.changes.barriers[flight.number, row.id] = row

    def save_gate(self, row: GateRow) -> None:
        flight = self._flights[row.execution]
        flight.gates[row.id] = row
        self.changes.gates[flight.number, row.id] = row

    def add_slot(self, execution: str, barrier: str, slot: int, live: bool, data: bytes | None) -> None:
        self.changes.slots.setdefault((self._flights[execution].number, barrier, slot), (live, data))

    def add_left(self, execution: str, scope: str, key: str, data: bytes) -> None:
        flight = self._flights[execution]
        flight.left.add(scope)
        self.changes.left[flight.number, scope, key] = data

    def add_output(self, execution: str, output: str, data: bytes) -> None:
        self.changes.outputs.append((self._flights[execution].number, output, data))

    def add_outbox(self, execution: str, entry: str, topic: str, data: bytes) -> None:
        self.changes.outbox.append((entry, execution, topic, data))

    def add_publication(self, execution: str, owner: str | None, until: float | None) -> None:
        self.changes.publications.append((execution, owner, until))

    def is_owed(self, entry: str) -> bool:
        if entry in self.changes.taken_orders:
            return False
        return self.connection.execute(SQL["history.is_owed"], (entry,)).fetchone() is not None

    def take_order(self, entry: str) -> None:
        self.changes.taken_orders[entry] = None

    def add_event(
        self, execution: str, seq: int, event: NewEvent, arrived: int | None, expected: int | None
    ) -> None:
        number, data, token = self._flights[execution].number, event.data, event.token
        changes = self.changes
        if data is None or expected is not None:
            row = (number, seq, event.kind, event.node, event.scope, event.at, data, token, arrived, expected)
            changes.events.append(row)
        elif token is None:
            changes.notes += (number, seq, event.kind, event.node, event.scope, event.at, bytearray(data))
        else:
            changes.steps += (
                number,
                seq,
                event.kind,
                event.node,
                event.scope,
                event.at,
                bytearray(data),
                token,
            )


NAMING = frozenset((DropTokens, DeliverToToken, HurryToken))
"""Effects on tokens that others have spawned."""


def _named_tokens(batch: Sequence[Transition]) -> tuple[set[tuple[str, str]], list[tuple[str, str]]]:
    """Return the tokens that the effects of a batch spawn, and the others they name."""
    spawned: set[tuple[str, str]] = set()
    named: list[tuple[str, str]] = []
    for step in batch:
        execution = step.execution
        for effect in step.effects:
            if type(effect) is SpawnToken:
                spawned.add((execution, effect.token.id))
            elif type(effect) not in NAMING:
                continue
            elif isinstance(effect, DropTokens):
                named += [(execution, token) for token in effect.tokens]
            elif isinstance(effect, DeliverToToken | HurryToken):
                named.append((execution, effect.token))
    return spawned, named
