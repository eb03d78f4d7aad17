"""What this process knows of executions from its own commits and claims, and commits that go by it.

Whoever changes rows of an execution counts up the version of its flight row; only claims do not, and they touch nothing
but tokens that are ready. So what is remembered together with a version is right as long as the stored version is the
same, and a commit that knows all rows it needs is one statement: it locks the executions whose version matches, writes,
and leaves the others alone. Nothing here needs to be told when other processes write.

An ending supposes that nothing was left at the root and that no slots are held. The statement looks whether it is so.
Of a script the machine is remembered, too, once it was read or written here; signals are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dalsegno.adapters.postgres.arrays import columns, numbers
from dalsegno.adapters.postgres.changes import Changes
from dalsegno.adapters.postgres.columns import ending
from dalsegno.adapters.postgres.flight import Flight
from dalsegno.adapters.postgres.loaded import Loaded, NotLoaded
from dalsegno.adapters.postgres.steps import rests
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.adapters.postgres.workspace import PostgresWorkspace
from dalsegno.core.settlement import MachineRow, TokenRow, settle
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
"""Executions remembered at most; beyond that all are forgotten and read again when they move."""


class Known:
    """Flights as of their versions, with those of their tokens that are leased."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self.hits = 0
        """Transitions that went the short way."""

    def note(self, flight: Flight) -> None:
        """As it is stored now. Of its tokens only leased ones are worth keeping: nobody changes them unseen. Without
        any there is nothing that this process could commit."""
        flight.settle_down()
        if flight.tokens and flight.row.ended_at is None:
            self._keep(flight)
        else:
            self.forget(flight.row.id)

    def note_lease(self, flight: Flight, token: TokenRow) -> None:
        """From a claim, which may have seen an older version than is known here."""
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
        """The flight, if this is a plain step of which everything is known."""
        flight = self._flights.get(transition.execution)
        if flight is None or transition.token is None:
            return None
        token = flight.tokens.get(transition.token)
        if token is None or not _is_plain_step(transition, token, flight):
            return None
        for effect in transition.effects:  # spelt out: nearly all are of these two kinds
            if type(effect) is SpawnToken:
                new = effect.token
                if new.due is not None or new.limit_key is not None or new.kind == "resume":
                    return None
            elif type(effect) is not StoreOutput and not _is_known(effect, token, flight):
                return None
        return flight

    async def commit(self, store: PostgresStore, batch: Sequence[Transition]) -> dict[int, Outcome]:
        """Applies those of a batch that may go the short way; outcomes by their places. The others are untouched."""
        chosen: dict[int, Flight] = {}
        beside: set[str] = set()
        scripts: list[int] = []
        for place, transition in enumerate(batch):
            flight = self.take(transition)
            if flight is None:
                beside.add(transition.execution)
            else:
                chosen[place] = flight
                if flight.machine is not None:
                    scripts.append(place)
        if len(scripts) > 1:
            beside |= _overtaken([batch[place] for place in scripts])
        chosen = {place: flight for place, flight in chosen.items() if flight.row.id not in beside}
        if not chosen:
            return {}
        for flight in chosen.values():
            self.forget(flight.row.id)  # whatever goes wrong from here on, its rows were changed in memory
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
    """Rows that were not read: of tokens only leases, whose fence no step of theirs changes."""

    def _stored_fence(self, flight: Flight, row: TokenRow) -> int:
        return row.fence

    def unfinished_tokens(self, execution: str, scope: str | None = None) -> Iterable[TokenRow]:
        """Asked where a script ends, whose tasks go on without it. Those that are not done count as live."""
        if scope is not None or self._flights[execution].row.live:
            raise NotLoaded("unfinished", execution)
        return ()


def _settle(
    batch: Sequence[Transition], chosen: dict[int, Flight], now: float
) -> tuple[dict[int, Outcome], Changes | None]:
    """None instead of changes: something is not as plain as it looked, and all of it goes the long way."""
    loaded = Loaded()
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
    return [*columns([ending(flight) for flight in flights], 5), *rests(changes.tokens)]


def _is_plain_step(transition: Transition, token: TokenRow, flight: Flight) -> bool:
    """Whether it may apply, as far as is known. One that does not would send all others the long way with it."""
    row = flight.row
    return (
        token.fence == transition.fence
        and token.limit_key is None
        and row.state == "RUNNING"
        and row.epoch == transition.epoch
        and not transition.scope
        and (transition.park is None or _is_plain_rest(transition.park))
        and (token.kind != "resume" or flight.machine is not None)
    )


def _overtaken(steps: Sequence[Transition]) -> set[str]:
    """Of scripts: those that are saved beside something else of theirs, which the run has not seen as a rule."""
    several = Counter(step.execution for step in steps)
    return {step.execution for step in steps if several[step.execution] > 1 and _saves(step)}


def _saves(step: Transition) -> bool:
    return any(type(effect) is SaveMachine for effect in step.effects)


def _is_known(effect: Effect, token: TokenRow, flight: Flight) -> bool:
    """Whether all that it asks for is."""
    if type(effect) is SaveMachine:
        return _is_plain_run(effect, flight.machine)
    if type(effect) is SettlePromise:
        return flight.machine is not None
    return _is_plain_ending(effect, token, flight)


def _is_plain_run(effect: SaveMachine, machine: MachineRow | None) -> bool:
    """Of the machine as it stands, without signals."""
    if machine is None or machine.version != effect.version or effect.taken or effect.wake.signals:
        return False
    return effect.settled is None or (machine.inbox == effect.read and not machine.resuming)


def _is_plain_ending(effect: Effect, token: TokenRow, flight: Flight) -> bool:
    """Of an execution of which nobody else is to be told. One that hands over its tasks has none but the one that ends
    it."""
    finish = effect.finish if type(effect) is EndIfLast and not effect.scope else effect
    if type(finish) is not FinishExecution or flight.row.notify is not None:
        return False
    return not finish.hand_over or (flight.machine is not None and flight.row.live == int(token.live))


def _is_plain_rest(park: Park) -> bool:
    """Whether nothing but its time ends it."""
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
