"""Reading the rows of a batch: one statement locks the executions and brings their tokens, others follow only where
something else is wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dalsegno.adapters.postgres.arrays import names, numbers
from dalsegno.adapters.postgres.loaded import NOW, Loaded
from dalsegno.adapters.postgres.store import PostgresStore, Transaction
from dalsegno.adapters.postgres.wanted import Key, Wanted
from dalsegno.model.transition import ReadyToken


async def lock(store: PostgresStore, tx: Transaction, wanted: Wanted, loaded: Loaded) -> float:
    """Locks what can be locked and reads what is wanted of it. Returns the time of the database."""
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


def _without_tokens(wanted: Wanted) -> Wanted:
    rest = Wanted()
    for kind in Wanted.__slots__:
        if kind not in ("tokens", "executions"):
            setattr(rest, kind, getattr(wanted, kind))
    return rest


async def load_executions(tx: Transaction, executions: list[str], loaded: Loaded) -> None:
    if not executions:
        return
    loaded.swept.update(dict.fromkeys(executions))
    for row in await tx.fetch("load.records", executions):
        if row["ended_at"] is None:
            loaded.busy.add(row["id"])  # just created by another process
        else:
            loaded.swept[row["id"]] = row


async def load(tx: Transaction, wanted: Wanted, loaded: Loaded) -> None:
    """Reads rows of executions that are locked. Those of others are passed over."""
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


async def _load_joins(tx: Transaction, wanted: Wanted, loaded: Loaded) -> None:
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


async def _load_machines(tx: Transaction, wanted: Wanted, loaded: Loaded) -> None:
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


async def _load_limits(tx: Transaction, wanted: Wanted, loaded: Loaded) -> None:
    if executions := _locked(wanted.held_keys, loaded):
        loaded.held_keys.update((execution, []) for execution in executions)
        for row in await tx.fetch("load.held_keys", [loaded.number(name) for name in executions]):
            loaded.held_keys[loaded.names[row[0]]].append(row[1])
            wanted.keys.add(row[1])
    if keys := [key for key in wanted.keys if key not in loaded.heads]:
        loaded.heads.update((key, []) for key in keys)
        for key, *ready in await tx.fetch("load.first_in_lines", keys):
            loaded.heads[key].append(ReadyToken(*ready))


def _locked(executions: Iterable[str], loaded: Loaded) -> list[str]:
    return [execution for execution in executions if execution in loaded.flights]


def _pairs(keys: Iterable[Key], loaded: Loaded) -> list[Key]:
    return [key for key in keys if key[0] in loaded.flights]


def _columns(keys: Sequence[Key], loaded: Loaded) -> tuple[str, str]:
    return numbers([loaded.number(execution) for execution, _ in keys]), names([name for _, name in keys])
