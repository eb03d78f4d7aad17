"""The changes of a commit and their writing: each row once, in few statements, those of rare kinds only if needed."""

from __future__ import annotations

import json
from typing import Any

from dalsegno.adapters.postgres.commit import columns as runs
from dalsegno.adapters.postgres.commit import columns as start_columns
from dalsegno.adapters.postgres.commit.columns import (
    Mark,
    Steps,
    changed_barrier,
    changed_token,
    columns,
    is_asleep,
    is_plain,
    moved_flight,
    names,
    numbers,
)
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.streams import append, publish
from dalsegno.adapters.postgres.store import Transaction
from dalsegno.adapters.rows import line_up, new_line, stored_barrier
from dalsegno.core.settlement import LARGE, BarrierRow, GateRow, MachineRow, ScopeRow, SignalRow, TokenRow
from dalsegno.model.effect import AppendChunks, ReplaceTags
from dalsegno.model.execution import NewExecution
from dalsegno.model.machine import Completion

Name = tuple[int, str]
"""The number of an execution, and a name in it."""


PART = 500
"""New tokens of a large commit that one statement writes."""


class TokenChanged(Exception):
    """A claim came between reading a token and writing it: the commit is retried."""


class StartedByOthers(Exception):
    """One of the new executions exists: only its record, or another process was first.

    Or it is being started in a caller's own open transaction; see ``starts``.
    """


class Changes:
    def __init__(self) -> None:
        self.created: dict[str, tuple[Flight, NewExecution]] = {}
        self.executions: dict[str, Flight] = {}
        self.touched: set[int] = set()
        """Executions whose rows changed. Those in ``executions`` are written anyway."""
        self.inputs: dict[int, bytes] = {}
        self.tags: list[tuple[int, ReplaceTags]] = []
        """Tags that running executions have set, by their numbers, in order."""
        self.versions: dict[int, tuple[int, str]] = {}
        """Versions that executions go on with, and their definitions, by the executions' numbers."""
        self.published: dict[tuple[str, str], tuple[bytes, float]] = {}
        """Values and times, by execution and key."""
        self.appended: list[tuple[str, AppendChunks, float]] = []
        self.consumed: dict[Name, TokenRow] = {}
        self.spawned: dict[int, tuple[TokenRow, Flight]] = {}
        """In spawn order."""
        self.tokens: dict[Name, tuple[TokenRow, int]] = {}
        """Stored tokens that changed, with the fence they were read with."""
        self.moved: dict[Name, int] = {}
        """Those of them that moved to another execution, and its number."""
        self.new_scopes: dict[Name, ScopeRow] = {}
        self.scopes: dict[Name, ScopeRow] = {}
        self.new_barriers: dict[Name, BarrierRow] = {}
        self.barriers: dict[Name, BarrierRow] = {}
        self.gates: dict[Name, GateRow] = {}
        self.slots: dict[tuple[int, str, int], tuple[bool, bytes | None]] = {}
        self.left: dict[tuple[int, str, str], bytes] = {}
        self.machines: dict[int, MachineRow] = {}
        self.completions: dict[tuple[int, int], Completion] = {}
        self.removed: list[tuple[int, int]] = []
        self.signals: dict[Name, SignalRow] = {}
        self.outputs: dict[Name, bytes] = {}
        self.outbox: dict[str, tuple[str, str, bytes]] = {}
        self.publications: list[Mark] = []
        """New executions whose statuses are published."""
        self.taken_orders: dict[str, None] = {}
        self.events: list[tuple[Any, ...]] = []
        self.freed: set[str] = set()
        """Limit keys of which a slot may be free."""
        self.held: set[tuple[str, int]] = set()
        self.unheld: set[int] = set()

    def save(self, kind: str, execution: int, name: str, row: Any, *, new: bool) -> None:
        """Save a scope or barrier: a new one is inserted, a stored one updated."""
        getattr(self, f"new_{kind}" if new else kind)[execution, name] = row
        self.touched.add(execution)

    # -- writing ----------------------------------------------------------------------------------------------

    async def write(self, tx: Transaction) -> None:
        if self.created:
            await self._write_created(tx)
        is_large = len(self.spawned) > LARGE
        steps = self.steps(with_tokens=not is_large)
        moves = []
        for name, flight in self.executions.items():
            if name in self.created:
                continue
            if flight.only_counts():
                steps.advance(flight)
            else:
                moves.append(moved_flight(flight))
        if not steps.is_empty():
            [(count,)] = await tx.fetch("write.steps", *steps.parameters())
            _check(count, len(steps.consumed))
        if steps.others:
            await tx.fetch("write.new_tokens", *columns(steps.others, 22))
        if is_large:
            await self._write_tokens_in_parts(tx)
        if self.tokens:
            await self._write_changed_tokens(tx)
        if moves:
            await tx.fetch("write.moves", *columns(moves, 11))
        await self._write_rest(tx)

    def are_starts(self) -> bool:
        """Return True if the changes consist of new executions and their new rows."""
        return (
            not (self.consumed or self.tokens or self.completions or self.removed or self._are_rare())
            and self.created.keys() == self.executions.keys()
            and all(is_plain(row) for row, _ in self.spawned.values())
            and all(machine.snapshot is not None for machine in self.machines.values())
        )

    def are_plain(self) -> bool:
        """Return True if the changes consist of steps, runs of scripts, parked tokens, and endings."""
        return (
            not (self.created or self._are_rare())
            and all(is_plain(row) for row, _ in self.spawned.values())
            and all(is_asleep(row) for row, _ in self.tokens.values())
            and all(flight.only_counts() or flight.has_just_ended() for flight in self.executions.values())
        )

    def _are_rare(self) -> bool:
        return bool(
            self.inputs
            or self.tags
            or self.versions
            or self.published
            or self.appended
            or self.moved
            or self.new_scopes
            or self.scopes
            or self.new_barriers
            or self.barriers
            or self.gates
            or self.slots
            or self.left
            or self.signals
            or self.outbox
            or self.taken_orders
            or self.freed
            or self.held
            or self.unheld
        )

    def steps(self, *, with_tokens: bool = True) -> Steps:
        """Return the columns of most commits; counters of executions are still to be added."""
        steps = Steps()
        if with_tokens:
            # The tokens of one execution are written by one statement: their order is the spawn order.
            mixed = {flight.number for row, flight in self.spawned.values() if not is_plain(row)}
            for row, flight in self.spawned.values():
                steps.spawn(row, flight, plain=flight.number not in mixed)
        for event in self.events:
            steps.record(event)
        steps.consumed = [(*name, row.fence, row.digest) for name, row in self.consumed.items()]
        steps.outputs = [(*name, data) for name, data in self.outputs.items()]
        return steps

    def has_runs(self) -> bool:
        """Return True if any change concerns machines of scripts."""
        return bool(self.machines or self.completions or self.removed)

    def runs(self) -> list[Any]:
        """Return machines and their inboxes, as parameters of ``write.machines`` and ``write.held_runs``."""
        return runs.parameters(self.machines, self.completions, self.removed)

    def start_parameters(self) -> list[Any]:
        """Return the parameters of ``write.starts``."""
        created, published = self.created.values(), self.publications
        return start_columns.starts_alone(self.steps(), created, self.machines, published)

    async def _write_created(self, tx: Transaction) -> None:
        given = start_columns.starts(self.created.values(), self.publications)
        made = await tx.fetch("write.starts", *given)
        if len(made) < len(self.created):
            raise StartedByOthers

    async def _write_tokens_in_parts(self, tx: Transaction) -> None:
        """Write many new tokens. The driver encodes the parameters of a statement without a pause."""
        spawned = list(self.spawned.values())
        for first in range(0, len(spawned), PART):
            steps = Steps()
            for row, flight in spawned[first : first + PART]:
                steps.spawn(row, flight, plain=False)
            await tx.fetch("write.new_tokens", *columns(steps.others, 22))

    async def _write_changed_tokens(self, tx: Transaction) -> None:
        rows = [
            changed_token(name, row, fence, self.moved.get(name, name[0]))
            for name, (row, fence) in self.tokens.items()
        ]
        [(count,)] = await tx.fetch("write.tokens", *columns(rows, 17))
        _check(count, len(rows))

    async def _write_rest(self, tx: Transaction) -> None:
        if self.inputs:
            await tx.fetch("write.inputs", list(self.inputs), list(self.inputs.values()))
        if self.tags:
            await self._write_tags(tx)
        if self.versions:
            await tx.fetch("write.versions", list(self.versions), *columns(self.versions.values(), 2))
        if self.has_runs() or self.signals:
            await self._write_machines(tx)
        if (
            self.new_scopes
            or self.scopes
            or self.slots
            or self.new_barriers
            or self.barriers
            or self.gates
            or self.left
        ):
            await self._write_joins(tx)
        if self.outbox:
            await tx.fetch("write.outbox", *columns(((name, *row) for name, row in self.outbox.items()), 4))
        if self.taken_orders:
            await tx.fetch("write.taken_orders", list(self.taken_orders))
        written = {flight.number for flight in self.executions.values()}
        if self.touched - written:
            await tx.fetch("write.touch", list(self.touched - written))
        if self.published:
            await publish(tx, self.published)
        if self.appended:
            await append(tx, self.appended)
        await self._write_limits(tx)

    async def _write_tags(self, tx: Transaction) -> None:
        last = {number: change.tags for number, change in self.tags}
        gone = {
            (*tag, number) for number, change in self.tags for tag in change.gone if tag not in last[number]
        }
        new = {(*tag, number) for number, change in self.tags for tag in change.new if tag in last[number]}
        texts = [json.dumps(tags) for tags in last.values()]
        await tx.fetch("write.tags", list(last), texts, *columns(sorted(gone), 3), *columns(sorted(new), 3))

    async def _write_joins(self, tx: Transaction) -> None:
        opened = [
            (*name, row.barrier, row.slot, row.live, row.ended) for name, row in self.new_scopes.items()
        ]
        executions, paths, barriers, places, lives, ends = columns(opened, 6)
        scopes = columns(((*name, row.live, row.ended) for name, row in self.scopes.items()), 4)
        slots = columns(((*name, *slot) for name, slot in self.slots.items()), 5)
        gates = [(*name, row.count, _positions(row)) for name, row in self.gates.items()]
        await tx.fetch(
            "write.joins",
            numbers(executions),
            names(paths),
            names(barriers),
            *(numbers(column) for column in (places, lives, ends)),
            numbers(scopes[0]),
            names(scopes[1]),
            *(numbers(column) for column in scopes[2:]),
            numbers(slots[0]),
            names(slots[1]),
            *(numbers(column) for column in slots[2:4]),
            slots[4],
            *columns((stored_barrier(name, row) for name, row in self.new_barriers.items()), 13),
            *columns((changed_barrier(name, row) for name, row in self.barriers.items()), 8),
            *columns(gates, 4),
            *columns(((*name, data) for name, data in self.left.items()), 4),
        )

    async def _write_machines(self, tx: Transaction) -> None:
        signals = [
            (*key, row.name, row.number, row.place, row.taken, row.data) for key, row in self.signals.items()
        ]
        await tx.fetch("write.machines", *self.runs(), *columns(signals, 7))

    async def _write_limits(self, tx: Transaction) -> None:
        lined_up = self._lined_up()
        keys = self.freed.union(key for _, key in lined_up)
        if keys:
            await tx.fetch("limits.lock", list(keys))
        if lined_up:
            await tx.fetch("limits.line_up", *columns((new_line(row) for row in lined_up.values()), 4))
        if self.freed:
            await tx.fetch("limits.open", list(self.freed))
        if self.held:
            await tx.fetch("limits.hold", *columns(self.held, 2))
        if self.unheld:
            await tx.fetch("limits.unhold", list(self.unheld))

    def _lined_up(self) -> dict[tuple[str, str], TokenRow]:
        """Return ready tokens with a limit key, the one of the highest priority for each queue and key."""
        found: dict[tuple[str, str], TokenRow] = {}
        rows = [row for row, _ in self.spawned.values()] + [row for row, _ in self.tokens.values()]
        for row in rows:
            if row.limit_key is not None and row.state == "ready":
                line_up(found, row, row.limit_key)
        return found


def _positions(row: GateRow) -> str:
    return f"[{', '.join(map(str, sorted(row.used)))}]"


def _check(count: int, sent: int) -> None:
    if count != sent:
        raise TokenChanged(f"{sent - count} of {sent} tokens were changed meanwhile")
