"""RedisLedger: the ledger's contract on one Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.adapters.flat import UnsupportedTransition
from dalsegno.adapters.redis.encoding import (
    ENTRIES_PER_CALL,
    MOST_ENTRIES,
    Envelope,
    absent,
    outcome_of,
    weigh,
)
from dalsegno.adapters.redis.errors import RefusedValue, driver_errors
from dalsegno.adapters.redis.store import RedisStore
from dalsegno.adapters.redis.views import barrier_view, execution_view, slot_view, token_views
from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.ledger import SLOTS_PAGE, Inspection, OutboxEntry, Woken

decode = msgspec.msgpack.decode


class RedisLedger:
    """Covers ``commit`` with all effects, ``claim``, ``wake``, the outbox, and reading one execution.

    Named leases, heartbeats, expiry, reconciling and sweeping are not here yet: it is no whole Ledger.
    """

    def __init__(self, store: RedisStore) -> None:
        self.store = store

    def now(self) -> float:
        return self.store.now()

    # -- committing -------------------------------------------------------------------------------------------

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        envelopes = self._pack(batch, range(len(batch)), outcomes)
        if envelopes:
            answers = await self.store.run(*(envelope.call() for envelope in envelopes))
            for envelope, answer in zip(envelopes, answers, strict=True):
                await self._settle(batch, envelope.places, answer, outcomes)
        return [outcomes[place] for place in range(len(batch))]

    def _pack(
        self, batch: Sequence[Transition], places: Sequence[int], outcomes: dict[int, Outcome]
    ) -> list[Envelope]:
        """As few calls as their size allows; sent together, applied in order, each whole."""
        envelopes: list[Envelope] = []
        for place in places:
            transition = batch[place]
            if not envelopes or envelopes[-1].entries + weigh(transition) > ENTRIES_PER_CALL:
                envelopes.append(Envelope(self.store.keys))
            try:
                envelopes[-1].add(place, transition)
            except UnicodeEncodeError as error:
                outcomes[place] = Refused(f"a name is not valid Unicode: {error}")
            except UnsupportedTransition as error:
                outcomes[place] = Refused(str(error))
        return [envelope for envelope in envelopes if envelope.places]

    async def _settle(
        self, batch: Sequence[Transition], places: Sequence[int], answer: Any, outcomes: dict[int, Outcome]
    ) -> None:
        """Halves what a script cannot work with until the offender stands alone; all others are applied."""
        try:
            with driver_errors():
                if isinstance(answer, Exception):
                    raise answer
        except RefusedValue as error:
            if len(places) == 1:
                outcomes[places[0]] = Refused(str(error))
                return
            middle = len(places) // 2
            for half in (places[:middle], places[middle:]):
                [envelope] = self._pack(batch, half, outcomes)
                [again] = await self.store.run(envelope.call())
                await self._settle(batch, half, again, outcomes)
            return
        now, rows = decode(answer)
        self.store.saw(now)
        for place, row in zip(places, rows, strict=True):
            outcomes[place] = outcome_of(row, batch[place])

    # -- leases -----------------------------------------------------------------------------------------------

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        leases: list[Lease] = []
        more = True
        while more and len(leases) < limit:
            wanted = limit - len(leases)
            packed, rest, *payloads = await self.store.run_one("claim", worker, wanted, *queues)
            for row, data in zip(decode(packed), payloads, strict=True):
                fields = [*row[:6], data, *row[6:]]
                leases.append(Lease(*fields))
            more = rest == b"more"
        return leases

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        rows, next_due = decode(await self.store.run_one("wake", min(limit, MOST_ENTRIES)))
        return Woken(tuple(ReadyToken(*row) for row in rows), absent(next_due))

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        """Asks by number, so that a page costs the same wherever it lies."""
        keys, found = self.store.keys, list[SlotView]()
        [row] = await self.store.ask(("HGET", keys.of(execution, "barriers"), barrier))
        end = barrier_view(b"", row).expected if row is not None else 0
        while len(found) < limit and after + 1 < end:
            numbers = range(after + 1, min(after + 1 + limit, end))
            [values] = await self.store.ask(("HMGET", keys.of(execution, "slots", barrier), *numbers))
            pairs = zip(numbers, values, strict=True)
            found += [slot_view(slot, value) for slot, value in pairs if value is not None]
            after = numbers[-1]
        return found[:limit]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        [found] = await self.store.ask(("HGETALL", self.store.keys.of(execution, "left", scope)))
        return sorted(
            (LeftView(key.decode(), data) for key, data in found.items()), key=lambda view: view.key
        )

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        [packed] = await self.store.ask(("HGET", self.store.keys.of(execution, "gates"), gate))
        return tuple(sorted(set(decode(packed)[1]))) if packed else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        if not ids:
            return {}
        [found] = await self.store.ask(("HMGET", self.store.keys.of(execution, "outputs"), *ids))
        return {name: data for name, data in zip(ids, found, strict=True) if data is not None}

    async def inspect(self, execution: str) -> Inspection | None:
        keys = self.store.keys
        looks = (("HGETALL", keys.of(execution, what)) for what in ("state", "about", "barriers"))
        state, about, barriers = await self.store.ask(*looks)
        if not state:
            return None
        return Inspection(
            execution_view(execution, state[b"flight"], about),
            token_views(state),
            tuple(barrier_view(*item) for item in barriers.items()),
        )

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        [state] = await self.store.ask(("HGETALL", self.store.keys.of(execution, "state")))
        return tuple(
            ReadyToken(view.id, execution, view.queue, view.priority)
            for view in token_views(state)
            if view.state == "ready"
        )

    # -- leaving ----------------------------------------------------------------------------------------------

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        keys = self.store.keys
        [ids] = await self.store.ask(("ZRANGE", keys.outbox, 0, limit - 1))
        if not ids:
            return []
        addresses, payloads = await self.store.ask(
            ("HMGET", keys.outbox_about, *ids), ("HMGET", keys.outbox_entries, *ids)
        )
        entries = []
        for name, address, data in zip(ids, addresses, payloads, strict=True):
            if data is not None:  # else it was delivered between the two looks
                execution, topic = decode(address)
                entries.append(OutboxEntry(name.decode(), execution, topic, data))
        return entries

    async def delivered(self, ids: Sequence[str]) -> None:
        if ids:
            keys = self.store.keys
            await self.store.ask(
                ("ZREM", keys.outbox, *ids),
                ("HDEL", keys.outbox_about, *ids),
                ("HDEL", keys.outbox_entries, *ids),
            )

    async def close(self) -> None:
        await self.store.close()
