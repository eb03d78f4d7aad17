"""The parts of the workspace for scripts and limits: machines, inboxes, mailboxes, slots.

A machine's row is cached with its execution, and so is an inbox without its data. Signals are few: they are read
and written at once.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping

from dalsegno.adapters.rows import machine_row
from dalsegno.adapters.sqlite.commit.changes import Changes
from dalsegno.adapters.sqlite.commit.columns import stored_signal
from dalsegno.adapters.sqlite.commit.flight import Flight
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.core.settlement import Kept, MachineRow, SignalRow
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.machine import Completion
from dalsegno.model.transition import ReadyToken


class MachineWorkspace:
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
        found = self.connection.execute(SQL["limits.lines_of"], (key,))
        return [ReadyToken(token, execution, queue, priority) for queue, token, execution, priority in found]

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
