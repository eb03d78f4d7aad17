"""Loading of the rows that a commit needs.

One statement locks the executions and reads their tokens; others follow only for other rows. The rules never
change the loaded rows, so that they can be applied again when they need a row that was not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dalsegno.adapters.postgres.commit.columns import names, numbers
from dalsegno.adapters.postgres.commit.read_set import Key, ReadSet
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement import BarrierRow, TokenRow
from dalsegno.model.transition import ReadyToken

FLIGHT_COLUMNS = slice(1, 13)
"""The columns of ExecutionRow in ``load.locked``."""
NUMBER, ID, STATE, VERSION, MOVED, HAS_LEFT, KEYS, NOW, TOKEN = 0, 1, 2, 13, 14, 15, 16, 17, 18
"""More columns of ``load.locked``; those of the token come last, as in all statements that read tokens."""

TOKEN_ID, TOKEN_SCOPE, TOKEN_LIMIT_KEY, TOKEN_FENCE, TOKEN_BARRIER, TOKEN_NUMBER = 1, 2, 8, 12, 17, 22
"""Columns of a token. Every commit reads rows by position: fields by name, or an object for each
row, would take longer than the rules.
"""


class NotLoaded(Exception):
    """The rules need a row that was not read: it is read, and they restart."""

    def __init__(self, kind: str, key: Any) -> None:
        self.kind = kind
        self.key = key
        super().__init__(f"{kind} {key}")


class LoadedRows:
    """None represents a row that was looked for and does not exist."""

    def __init__(self) -> None:
        self.flights: dict[str, Row] = {}
        self.names: dict[int, str] = {}
        """Ids of the executions by their numbers."""
        self.busy: set[str] = set()
        """Executions that another process has locked, or has just created."""
        self.swept: dict[str, Row | None] = {}
        self.created: Collection[str] = ()
        self.fresh: Collection[Key] = ()
        self.tokens: dict[str, dict[str, Row | None]] = {}
        self.scopes: dict[Key, Row | None] = {}
        self.barriers: dict[Key, Row | None] = {}
        self.gates: dict[Key, Row | None] = {}
        self.slots: dict[tuple[str, str, int], bool] = {}
        self.left: dict[Key, bool] = {}
        self.unfinished: set[str] = set()
        self.awaiting: set[Key] = set()
        self.machines: dict[str, Row | None] = {}
        self.signals: dict[Key, Row | None] = {}
        self.waiting_signals: dict[Key, list[Row]] = {}
        self.held_keys: dict[str, list[str]] = {}
        self.heads: dict[str, list[ReadyToken]] = {}
        self.orders: dict[str, bool] = {}
        """Entries of the outbox, and True for those that exist."""

    def number(self, execution: str) -> int:
        return int(self.flights[execution][NUMBER])

    def add_token(self, row: Row) -> None:
        """Add a token; ``row``: its columns."""
        self.tokens.setdefault(self.names[row[0]], {})[row[TOKEN_ID]] = row

    def add_locked(self, rows: Sequence[Row], wanted: ReadSet) -> ReadSet:
        """Add the rows of ``load.locked``; return what must be read again because of a concurrent commit."""
        again = ReadSet()
        for row in rows:
            execution = row[ID]
            if row[STATE] is None:
                self.busy.add(execution)
                continue
            if execution not in self.flights:
                self.flights[execution] = row
                self.names[row[NUMBER]] = execution
                self.tokens.setdefault(execution, {})
                if row[HAS_LEFT] is not None and not row[MOVED]:
                    self.left[execution, ""] = row[HAS_LEFT]
                    self.held_keys[execution] = row[KEYS]
            if not row[MOVED] and row[TOKEN] is not None:
                self.tokens[execution][row[TOKEN + TOKEN_ID]] = row[TOKEN:]
        for execution, token in wanted.tokens:
            found = self.flights.get(execution)
            if found is not None and found[MOVED]:
                again.tokens.add((execution, token))
            elif found is not None:
                self.tokens[execution].setdefault(token, None)
        for execution in wanted.ending:
            if execution in self.flights and execution not in self.held_keys:
                again.left.add((execution, ""))
                again.held_keys.add(execution)
        return again

    def keys_to_free(self, wanted: ReadSet) -> set[str]:
        """Return the limit keys whose lines may move once this batch is applied."""
        keys = {key for execution in wanted.ending for key in self.held_keys.get(execution, ())}
        for execution, token in wanted.tokens:
            row = self.tokens.get(execution, {}).get(token)
            if row is not None and row[TOKEN_LIMIT_KEY] is not None:
                keys.add(row[TOKEN_LIMIT_KEY])
        return keys


def token_of(execution: str, row: Row) -> TokenRow:
    return TokenRow(execution, *row[1:TOKEN_NUMBER])


def barrier_of(execution: str, row: Row) -> BarrierRow:
    """Return a barrier from the columns after the execution's number."""
    return BarrierRow(execution, *row)


async def lock(store: PostgresStore, tx: Transaction, wanted: ReadSet, loaded: LoadedRows) -> float:
    """Lock what can be locked and read what is wanted of it. Return the time of the database."""
    asked = list(wanted.executions)
    place = {execution: number for number, execution in enumerate(asked, 1)}
    tokens = [(place[execution], token) for execution, token in wanted.tokens]
    rows = await tx.fetch(
        "load.locked",
        names(asked),
        numbers([execution in wanted.ending for execution in asked]),
        numbers([number for number, _ in tokens]),
        names([token for _, token in tokens]),
    )
    loaded.created, loaded.fresh = wanted.created, wanted.fresh
    again = loaded.add_locked(rows, wanted)
    strangers = [name for name in asked if name not in loaded.flights and name not in loaded.busy]
    await load_executions(tx, [name for name in strangers if name not in wanted.created], loaded)
    await load(tx, again, loaded)
    wanted.keys |= loaded.keys_to_free(wanted)
    if wanted.keys or wanted.has_more():
        await load(tx, _without_tokens(wanted), loaded)
    return float(rows[0][NOW]) if rows else store.now()


def _without_tokens(wanted: ReadSet) -> ReadSet:
    rest = ReadSet()
    for kind in ReadSet.__slots__:
        if kind not in ("tokens", "executions"):
            setattr(rest, kind, getattr(wanted, kind))
    return rest


async def load_executions(tx: Transaction, executions: list[str], loaded: LoadedRows) -> None:
    if not executions:
        return
    loaded.swept.update(dict.fromkeys(executions))
    for row in await tx.fetch("load.records", executions):
        if row["ended_at"] is None:
            loaded.busy.add(row["id"])  # just created by another process
        else:
            loaded.swept[row["id"]] = row


async def load(tx: Transaction, wanted: ReadSet, loaded: LoadedRows) -> None:
    """Read rows of executions that are locked; skip those of others."""
    if keys := _pairs(wanted.tokens, loaded):
        for key in keys:
            loaded.tokens[key[0]].setdefault(key[1], None)
        for row in await tx.fetch("load.tokens", *_columns(keys, loaded)):
            loaded.add_token(row)
    if executions := _locked(wanted.unfinished, loaded):
        for row in await tx.fetch("load.unfinished", [loaded.number(name) for name in executions]):
            loaded.add_token(row)
        loaded.unfinished.update(executions)
    if keys := _pairs(wanted.awaiting, loaded):
        for row in await tx.fetch("load.awaiting", *_columns(keys, loaded)):
            loaded.add_token(row)
        loaded.awaiting.update(keys)
    if wanted.scopes or wanted.barriers or wanted.gates or wanted.slots or wanted.left:
        await _load_joins(tx, wanted, loaded)
    if wanted.machines or wanted.signals or wanted.waiting_signals:
        await _load_machines(tx, wanted, loaded)
    if wanted.orders:
        loaded.orders.update(dict.fromkeys(wanted.orders, False))
        for row in await tx.fetch("load.orders", list(wanted.orders)):
            loaded.orders[row[0]] = True
    if wanted.held_keys or wanted.keys:
        await _load_limits(tx, wanted, loaded)


async def _load_joins(tx: Transaction, wanted: ReadSet, loaded: LoadedRows) -> None:
    known = loaded.names
    if keys := _pairs(wanted.scopes, loaded):
        loaded.scopes.update(dict.fromkeys(keys))
        for row in await tx.fetch("load.scopes", *_columns(keys, loaded)):
            execution = known[row[0]]
            loaded.scopes[execution, row[1]] = row
            loaded.left[execution, row[1]] = row[6]
            loaded.barriers[execution, row[2]] = row[7:] if row[7] is not None else None
    if keys := _pairs(wanted.barriers, loaded):
        loaded.barriers.update(dict.fromkeys(keys))
        for row in await tx.fetch("load.barriers", *_columns(keys, loaded)):
            loaded.barriers[known[row[0]], row[1]] = row[1:]
    if keys := _pairs(wanted.gates, loaded):
        loaded.gates.update(dict.fromkeys(keys))
        for row in await tx.fetch("load.gates", *_columns(keys, loaded)):
            loaded.gates[known[row[0]], row[1]] = row
    if keys := _pairs(wanted.left, loaded):
        loaded.left.update(dict.fromkeys(keys, False))
        for row in await tx.fetch("load.left", *_columns(keys, loaded)):
            loaded.left[known[row[0]], row[1]] = True
    if slots := [slot for slot in wanted.slots if slot[0] in loaded.flights]:
        loaded.slots.update(dict.fromkeys(slots, False))
        keys = [(execution, barrier) for execution, barrier, _ in slots]
        places = numbers([slot for _, _, slot in slots])
        for row in await tx.fetch("load.slots", *_columns(keys, loaded), places):
            loaded.slots[known[row[0]], row[1], row[2]] = True


async def _load_machines(tx: Transaction, wanted: ReadSet, loaded: LoadedRows) -> None:
    if executions := _locked(wanted.machines, loaded):
        loaded.machines.update(dict.fromkeys(executions))
        for row in await tx.fetch("load.machines", [loaded.number(name) for name in executions]):
            loaded.machines[loaded.names[row[0]]] = row
    if keys := _pairs(wanted.signals, loaded):
        loaded.signals.update(dict.fromkeys(keys))
        for row in await tx.fetch("load.signals", *_columns(keys, loaded)):
            loaded.signals[loaded.names[row[0]], row[1]] = row
    if keys := _pairs(wanted.waiting_signals, loaded):
        loaded.waiting_signals.update((key, []) for key in keys)
        for row in await tx.fetch("load.waiting_signals", *_columns(keys, loaded)):
            loaded.waiting_signals[loaded.names[row[0]], row[2]].append(row)


async def _load_limits(tx: Transaction, wanted: ReadSet, loaded: LoadedRows) -> None:
    if executions := _locked(wanted.held_keys, loaded):
        loaded.held_keys.update((execution, []) for execution in executions)
        for row in await tx.fetch("load.held_keys", [loaded.number(name) for name in executions]):
            loaded.held_keys[loaded.names[row[0]]].append(row[1])
            wanted.keys.add(row[1])
    if keys := [key for key in wanted.keys if key not in loaded.heads]:
        loaded.heads.update((key, []) for key in keys)
        for key, *ready in await tx.fetch("load.first_in_lines", keys):
            loaded.heads[key].append(ReadyToken(*ready))


def _locked(executions: Iterable[str], loaded: LoadedRows) -> list[str]:
    return [execution for execution in executions if execution in loaded.flights]


def _pairs(keys: Iterable[Key], loaded: LoadedRows) -> list[Key]:
    return [key for key in keys if key[0] in loaded.flights]


def _columns(keys: Sequence[Key], loaded: LoadedRows) -> tuple[str, str]:
    return numbers([loaded.number(execution) for execution, _ in keys]), names([name for _, name in keys])
