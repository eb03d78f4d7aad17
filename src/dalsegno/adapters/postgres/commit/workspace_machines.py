"""The part of the workspace for scripts and limits: machines, inboxes, mailboxes, slots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from dalsegno.adapters.postgres.commit.changes import Changes
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import LoadedRows, NotLoaded
from dalsegno.adapters.postgres.store import Row
from dalsegno.adapters.rows import machine_row
from dalsegno.core.settlement import Kept, MachineRow, SignalRow
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.machine import Completion
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
