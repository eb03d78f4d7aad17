"""PostgresLedger: the ledger's contract on one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.flat import Fields, UnsupportedTransition
from dalsegno.adapters.postgres.encoding import outcome_of, transition_fields
from dalsegno.adapters.postgres.errors import RefusedValue
from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.adapters.postgres.views import execution_view
from dalsegno.model.barrier import BarrierView, LeftView, SlotView
from dalsegno.model.event import Event
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.ledger import SLOTS_PAGE, Inspection, OutboxEntry, Woken


class PostgresLedger:
    """Covers ``commit`` with all effects, ``claim``, ``wake``, the outbox, and reading one execution.

    Named leases, heartbeats, expiry, reconciling and sweeping are not here yet: it is no whole Ledger.
    """

    def __init__(self, store: PostgresStore) -> None:
        self.store = store

    def now(self) -> float:
        return self.store.now()

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        outcomes: list[Outcome | None] = [None] * len(batch)
        sound: list[tuple[int, Fields]] = []
        for index, transition in enumerate(batch):
            try:
                sound.append((index, transition_fields(transition)))
            except UnicodeEncodeError as error:
                outcomes[index] = Refused(f"a name is not valid Unicode: {error}")
            except UnsupportedTransition as error:
                outcomes[index] = Refused(str(error))
        if sound:
            await self._commit(batch, sound, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    async def _commit(
        self,
        batch: Sequence[Transition],
        sound: Sequence[tuple[int, Fields]],
        outcomes: list[Outcome | None],
    ) -> None:
        """Halves what cannot be stored until the offender stands alone; all others are applied."""
        parameters = [fields for _, fields in sound]
        try:
            rows = await self.store.fetch("commit.batch", self.store.given_now(), parameters)
        except RefusedValue as error:
            if len(sound) == 1:
                outcomes[sound[0][0]] = Refused(str(error))
                return
            middle = len(sound) // 2
            await self._commit(batch, sound[:middle], outcomes)
            await self._commit(batch, sound[middle:], outcomes)
            return
        for row in rows:
            index = sound[row[0] - 1][0]
            outcomes[index] = outcome_of(row, batch[index])
        self.store.saw(rows[0]["seen"])

    # -- leases -----------------------------------------------------------------------------------------------

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        return [Lease(*row) for row in await self.store.fetch("commit.claim", worker, queues, limit)]

    # -- time -------------------------------------------------------------------------------------------------

    async def wake(self, limit: int = 500) -> Woken:
        woken = await self.store.fetch("commit.wake", self.store.given_now(), limit)
        [(next_due,)] = await self.store.fetch("look.next_due")
        return Woken(tuple(ReadyToken(*row) for row in woken), next_due)

    # -- reading ----------------------------------------------------------------------------------------------

    async def slots(
        self, execution: str, barrier: str, after: int = -1, limit: int = SLOTS_PAGE
    ) -> list[SlotView]:
        rows = await self.store.fetch("look.slots", execution, barrier, after, limit)
        return [SlotView(*row) for row in rows]

    async def left(self, execution: str, scope: str) -> list[LeftView]:
        return [LeftView(*row) for row in await self.store.fetch("look.left", execution, scope)]

    async def gate_used(self, execution: str, gate: str) -> tuple[int, ...]:
        rows = await self.store.fetch("look.gate_used", execution, gate)
        return tuple(rows[0][0]) if rows else ()

    async def outputs(self, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
        return dict(await self.store.fetch("look.outputs", execution, ids))

    async def inspect(self, execution: str) -> Inspection | None:
        looks = ("look.execution", "look.tokens", "look.barriers")
        found, tokens, barriers = await self.store.fetch_together(*((name, (execution,)) for name in looks))
        if not found:
            return None
        return Inspection(
            execution_view(found[0]),
            tuple(TokenView(*row) for row in tokens),
            tuple(BarrierView(*row) for row in barriers),
        )

    async def ready(self, execution: str) -> tuple[ReadyToken, ...]:
        return tuple(ReadyToken(*row) for row in await self.store.fetch("look.ready", execution))

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        """Belongs to the archive, which is not here yet."""
        return [Event(*row) for row in await self.store.fetch("look.events", execution, after, limit)]

    # -- leaving ----------------------------------------------------------------------------------------------

    async def outbox(self, limit: int = 100) -> list[OutboxEntry]:
        return [OutboxEntry(*row) for row in await self.store.fetch("look.outbox", limit)]

    async def delivered(self, ids: Sequence[str]) -> None:
        await self.store.fetch("commit.delivered", ids)

    async def close(self) -> None:
        await self.store.close()
