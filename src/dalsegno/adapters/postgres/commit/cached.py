"""Executions cached from this process's own commits and claims, and commits based on them (the fast path).

- Every change of an execution's rows increments the version of its flight row; only claims do not, and they change
  only ready tokens. So a cached row is valid as long as the stored version is the same, without messages between
  processes.
- A commit that knows all rows it needs is one statement: it locks the executions whose version matches, writes,
  and leaves the others alone.
- An ending assumes that nothing was left at the root and that no slots are held. The statement checks that.
- A script's machine is cached, too, once it was read or written here; signals are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dalsegno.adapters.postgres.commit.changes import Changes
from dalsegno.adapters.postgres.commit.columns import columns, ending, numbers, parked_tokens
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import LoadedRows, NotLoaded
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.core.settlement import LARGE, MachineRow, TokenRow, settle
from dalsegno.model.effect import (
    Effect,
    EndIfLast,
    FinishExecution,
    SaveMachine,
    SettlePromise,
    SpawnToken,
    StoreOutput,
)
from dalsegno.model.transition import Applied, Outcome, Park, Transition

MOST_FLIGHTS = 5_000
"""Most cached executions; beyond that all are dropped and read again when they change."""


class CachedExecutions:
    """Flights with their versions and leased tokens."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self.hits = 0
        """Transitions that took the fast path."""

    def note(self, flight: Flight) -> None:
        """Cache a flight as it is stored now.

        Of its tokens only leased ones are kept: others change them under a new version only. Without any, this
        process could commit nothing of it.
        """
        flight.mark_stored()
        if flight.tokens and flight.row.ended_at is None:
            self._keep(flight)
        else:
            self.forget(flight.row.id)

    def note_lease(self, flight: Flight, token: TokenRow) -> None:
        """Cache a lease from a claim, which may have seen an older version than the cached one."""
        found = self._flights.get(token.execution)
        if found is None or found.version < flight.version:
            self._keep(flight)
            found = flight
        found.tokens[token.id] = token

    def _keep(self, flight: Flight) -> None:
        if len(self._flights) >= MOST_FLIGHTS:
            self._flights.clear()
        self._flights[flight.row.id] = flight

    def forget(self, execution: str) -> None:
        self._flights.pop(execution, None)

    def take(self, transition: Transition) -> Flight | None:
        """Return the flight, if this is a plain step of which everything is known. A large one is not plain."""
        flight = self._flights.get(transition.execution)
        if flight is None or transition.token is None or len(transition.effects) > LARGE:
            return None
        token = flight.tokens.get(transition.token)
        if token is None or not _is_plain_step(transition, token, flight):
            return None
        for effect in transition.effects:  # written out: nearly all effects are of these two kinds
            if type(effect) is SpawnToken:
                new = effect.token
                if new.due is not None or new.limit_key is not None or new.kind == "resume":
                    return None
            elif type(effect) is not StoreOutput and not _is_known(effect, token, flight):
                return None
        return flight

    async def commit(self, store: PostgresStore, batch: Sequence[Transition]) -> dict[int, Outcome]:
        """Apply those of a batch that may take the fast path; return outcomes by index. The others are untouched."""
        chosen: dict[int, Flight] = {}
        excluded: set[str] = set()
        scripts: list[int] = []
        for place, transition in enumerate(batch):
            flight = self.take(transition)
            if flight is None:
                excluded.add(transition.execution)
            else:
                chosen[place] = flight
                if flight.machine is not None:
                    scripts.append(place)
        if len(scripts) > 1:
            excluded |= _saved_too_early([batch[place] for place in scripts])
        chosen = {place: flight for place, flight in chosen.items() if flight.row.id not in excluded}
        if not chosen:
            return {}
        for flight in chosen.values():
            self.forget(flight.row.id)  # settling changes its rows in memory, also where the commit fails
        outcomes, changes = _settle(batch, chosen, store.now())
        if changes is None:
            return {}
        return await self._write(store, chosen, outcomes, changes)

    async def _write(
        self, store: PostgresStore, chosen: dict[int, Flight], outcomes: dict[int, Outcome], changes: Changes
    ) -> dict[int, Outcome]:
        steps = changes.steps()
        flights = list(changes.executions.values())
        for flight in flights:
            steps.advance(flight)
        seen = (
            numbers([flight.version for flight in flights]),
            numbers([flight.seen_at for flight in flights]),
        )
        if changes.has_runs():
            more = *_stops(flights, changes), *changes.runs()
            rows = await store.fetch("write.held_runs", *steps.parameters(), *seen, *more)
        elif changes.tokens or any(flight.row.ended_at is not None for flight in flights):
            stops = _stops(flights, changes)
            rows = await store.fetch("write.held_stops", *steps.parameters(), *seen, *stops)
        else:
            rows = await store.fetch("write.held_steps", *steps.parameters(), *seen)
        if not rows:
            return {}
        store.saw(rows[0][1])
        held = {row[0] for row in rows}
        for flight in flights:
            if flight.number in held:
                flight.version += 1
                self.note(flight)
        applied = {place: outcomes[place] for place, flight in chosen.items() if flight.number in held}
        self.hits += len(applied)
        return applied


class KnownWorkspace(PostgresWorkspace):
    """A workspace without reads: its tokens are leases, whose fence no step changes."""

    def _stored_fence(self, flight: Flight, row: TokenRow) -> int:
        return row.fence

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """Return the unfinished tokens of an ending script, whose tasks continue without it. Unfinished means live."""
        if scope is not None or self._flights[execution].row.live:
            raise NotLoaded("unfinished", execution)
        return ()


def _settle(
    batch: Sequence[Transition], chosen: dict[int, Flight], now: float
) -> tuple[dict[int, Outcome], Changes | None]:
    """Settle the chosen steps. None instead of changes: one is not plain, and all take the slow path."""
    loaded = LoadedRows()
    loaded.fresh = _spawned(batch, chosen)
    for flight in chosen.values():
        loaded.left[flight.row.id, ""] = False
        loaded.held_keys[flight.row.id] = []
    rows = KnownWorkspace(loaded, _no_number)
    rows.adopt({flight.row.id: flight for flight in chosen.values()})
    outcomes: dict[int, Outcome] = {}
    try:
        for place in chosen:
            outcome = outcomes[place] = settle(batch[place], rows, now)
            if type(outcome) is not Applied:
                return {}, None
    except (NotLoaded, LookupError):
        return {}, None
    return outcomes, rows.changes if rows.changes.are_plain() else None


def _stops(flights: Sequence[Flight], changes: Changes) -> list[Any]:
    return [*columns([ending(flight) for flight in flights], 5), *parked_tokens(changes.tokens)]


def _is_plain_step(transition: Transition, token: TokenRow, flight: Flight) -> bool:
    """Return True if a step is known to apply. One that does not would make all others take the slow path with it."""
    row = flight.row
    return (
        token.fence == transition.fence
        and not transition.hand
        and token.limit_key is None
        and row.state == "RUNNING"
        and row.epoch == transition.epoch
        and not transition.scope
        and (transition.park is None or _is_plain_rest(transition.park))
        and (token.kind != "resume" or flight.machine is not None)
    )


def _saved_too_early(steps: Sequence[Transition]) -> set[str]:
    """Return the scripts whose machine is saved in a batch together with another step of theirs.

    The run that saves it has usually not seen the other step, so its save would be stale.
    """
    counts = Counter(step.execution for step in steps)
    return {step.execution for step in steps if counts[step.execution] > 1 and _saves(step)}


def _saves(step: Transition) -> bool:
    return any(type(effect) is SaveMachine for effect in step.effects)


def _is_known(effect: Effect, token: TokenRow, flight: Flight) -> bool:
    """Return True if every row the effect needs is known."""
    if type(effect) is SaveMachine:
        return _is_plain_run(effect, flight.machine)
    if type(effect) is SettlePromise:
        return flight.machine is not None
    return _is_plain_ending(effect, token, flight)


def _is_plain_run(effect: SaveMachine, machine: MachineRow | None) -> bool:
    """Return True for a run of the machine as it is cached, without signals."""
    if machine is None or machine.version != effect.version or effect.taken or effect.wake.signals:
        return False
    return effect.settled is None or (machine.inbox == effect.read and not machine.resuming)


def _is_plain_ending(effect: Effect, token: TokenRow, flight: Flight) -> bool:
    """Return True for the ending of an execution with nothing to notify.

    One that hands over tasks has only the token that ends it.
    """
    finish = effect.finish if type(effect) is EndIfLast and not effect.scope else effect
    if type(finish) is not FinishExecution or flight.row.notify is not None:
        return False
    return not finish.hand_over or (flight.machine is not None and flight.row.live == int(token.live))


def _is_plain_rest(park: Park) -> bool:
    """Return True if only its time ends the park."""
    return park.awaits is None and park.queue is None and park.due is not None


def _spawned(batch: Sequence[Transition], chosen: dict[int, Flight]) -> set[tuple[str, str]]:
    return {
        (batch[place].execution, effect.token.id)
        for place in chosen
        for effect in batch[place].effects
        if type(effect) is SpawnToken
    }


def _no_number() -> int:
    raise NotLoaded("numbers", 1)
