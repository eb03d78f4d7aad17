"""Claims in which limits matter: read the lines under the locks of their keys, then choose."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.postgres.claim.limit_queues import (
    ALLOWANCE,
    EXECUTION,
    LEASE,
    LINE,
    LOSSES,
    PRIORITY,
    RUNS,
    KeyLocks,
    KeyUse,
    LimitQueueCursor,
    OutOfHeads,
    TakeKeys,
    place,
)
from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.commit.read_set import Key
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement.claim_order import Choice, Suspicion
from dalsegno.core.settlement.claims import SUSPECT_LOSSES
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken

SPARE_LINES = 32
"""Lines read in addition to those that may be needed: some turn out to be full or empty."""


class LimitedClaims:
    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.locks = KeyLocks(store)

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> tuple[list[Lease], list[Key]]:
        """Return leases, the keys served, and the tokens met that may not run."""
        leases: list[Lease] = []
        void: list[Key] = []
        openings: list[float] = []
        while len(leases) < limit:
            wanted = limit - len(leases)

            async def look(tx: Transaction, take: TakeKeys, wanted: int = wanted) -> _Look:
                claim = _Claim(tx, take, self.store.now(), queues, wanted)
                chosen = await claim.choose(worker)
                return claim, chosen, await claim.leave(worker, chosen)

            claim, chosen, changed = await self.locks.run(look)
            leases += [Lease(*row[LEASE]) for row in chosen]
            void += claim.void
            openings += [line.opens_at for line in claim.lines if line.opens_at is not None]
            if len(chosen) < wanted and not (claim.more and changed):
                break
        if openings:
            self.store.announce_opening(min(openings))
        return leases, void

    async def lease(self, worker: str, named: Sequence[Key]) -> dict[Key, Lease]:
        """Lease the named tokens for which there is room."""
        executions, tokens = [key[0] for key in named], [key[1] for key in named]

        async def lease(tx: Transaction, take: TakeKeys) -> list[Row]:
            asked = [key for (key,) in await tx.fetch("leases.keys_of", executions, tokens)]
            keys = list(await take(asked))
            named_now = await tx.fetch("leases.named_in_line", executions, tokens)
            found = [row for row in named_now if row[LINE] in keys]
            now = self.store.now()
            uses = await read_uses(tx, keys, now)
            await read_starts(tx, uses, [(row[LINE], row[ALLOWANCE]) for row in found], len(named))
            by_name = {(row[1], row[0]): row for row in found if row[RUNS]}
            chosen = []
            for row in (by_name[key] for key in named if key in by_name):
                if uses[row[LINE]].room(row[ALLOWANCE]).free:
                    uses[row[LINE]].take(row[ALLOWANCE])
                    chosen.append(row)
            await give(tx, worker, chosen, uses, now)
            return chosen

        return {(row[1], row[0]): Lease(*row[LEASE]) for row in await self.locks.run(lease)}

    async def open_due(self) -> list[ReadyToken]:
        """Open lines whose rate allows a start again; return the first token of each."""
        now = self.store.given_now()
        keys = sorted(key for (key,) in await self.store.fetch("limits.due_keys", now))
        if not keys:
            return []
        async with self.store.transaction() as tx:
            await tx.fetch("limits.lock", keys)
            opened = {key for (key,) in await tx.fetch("limits.open_due", now, keys)}
            found = await tx.fetch("load.first_in_lines", sorted(opened))
        return [ReadyToken(*ready) for _, *ready in sorted(found, key=lambda row: row[0])]


class _Claim:
    """The lines and plain tokens seen by one claim, in one transaction."""

    def __init__(
        self, tx: Transaction, take: TakeKeys, now: float, queues: Sequence[str], wanted: int
    ) -> None:
        self.tx = tx
        self.take_keys = take
        self.now = now
        self.queues = queues
        self.wanted = wanted
        self.more = False
        """There may be more lines than were read."""
        self.lines: list[LimitQueueCursor] = []
        self.uses: dict[str, KeyUse] = {}
        self.void: list[Key] = []

    async def choose(self, worker: str) -> list[Row]:
        stored = await self._lock_lines()
        plain = await self.tx.fetch("leases.plain", worker, self.queues, self.wanted)
        holds = bool(await self.tx.fetch("leases.holds_suspect", worker))
        at_a_time = max(2, self.wanted // max(len(stored), 1) + 1)
        while True:
            suspicion = Suspicion(
                allowed=not holds and not any(row[LOSSES] >= SUSPECT_LOSSES for row in plain)
            )
            heads = await self._read_heads(stored, at_a_time)
            self.lines = [
                LimitQueueCursor(line, self.uses[line[1]], found, at_a_time, suspicion)
                for line, found in zip(stored, heads, strict=True)
            ]
            runnable = [(place(row), row) for row in plain if row[RUNS]]
            try:
                chosen = Choice(runnable, self.lines).take(self.wanted)
                [line.head() for line in self.lines]
            except OutOfHeads:
                at_a_time *= 4
                continue
            every = [*plain, *(row for found in heads for row in found)]
            self.void = [(row[1], row[0]) for row in every if not row[RUNS]]
            return chosen

    async def _lock_lines(self) -> list[Row]:
        most = self.wanted + SPARE_LINES
        found = await self.tx.fetch("limits.open_lines", self.queues, most, self.now)
        if not found:
            return []
        self.more = len(found) >= most
        taken = await self.take_keys(list({key for _, key in found}))
        lines = [line for line in found if line[1] in taken]  # the others are for the next look
        return await self.tx.fetch("limits.lines", *columns(lines, 2), self.now)

    async def _read_heads(self, stored: Sequence[Row], at_a_time: int) -> list[list[Row]]:
        if not stored:
            return []
        names = [line[:2] for line in stored]
        heads: list[list[Row]] = [[] for _ in stored]
        for row in await self.tx.fetch("leases.heads", *columns(names, 2), at_a_time):
            heads[row[LINE] - 1].append(row)
        self.uses = await read_uses(self.tx, list({key for _, key in names}), self.now)
        asked = [
            (line[1], row[ALLOWANCE]) for line, found in zip(stored, heads, strict=True) for row in found
        ]
        await read_starts(self.tx, self.uses, asked, self.wanted)
        return heads

    async def leave(self, worker: str, chosen: Sequence[Row]) -> bool:
        """Lease what was chosen and store the state of the lines; return True if any line changed."""
        await give(self.tx, worker, chosen, self.uses, self.now)
        left: list[tuple[object, ...]] = []
        empty: list[tuple[str, str]] = []
        for line in self.lines:
            head = line.head()
            if head is None:
                empty.append((line.queue, line.key))
            priority = head[PRIORITY] if line.served and head is not None else None
            left.append((line.queue, line.key, priority, line.served, line.full, line.opens_at))
        if left:
            await self.tx.fetch("limits.leave", *columns(left, 6), self.now)
        cleared = await self.tx.fetch("limits.clear", *columns(empty, 2)) if empty else []
        return bool(cleared) or any(line.served or line.full for line in self.lines)


_Look = tuple[_Claim, list[Row], bool]
"""The claim, the rows leased by it, and True if any line changed."""


async def read_uses(tx: Transaction, keys: Sequence[str], now: float) -> dict[str, KeyUse]:
    return {row[0]: KeyUse(row, now) for row in await tx.fetch("limits.use", keys)}


async def read_starts(
    tx: Transaction, uses: dict[str, KeyUse], asked: Sequence[tuple[str, str | None]], most: int
) -> None:
    """Read the starts that the rates of these tokens may need, while up to ``most`` more are taken."""
    wanted = set()
    for key, allowance in set(asked):
        use = uses[key]
        for rate in use.rates([allowance]):
            first = use.last - rate.starts + 1
            wanted.add((key, first, first + most))
    if wanted:
        for key, number, at in await tx.fetch("limits.starts", *columns(wanted, 3)):
            uses[key].starts[number] = at


async def give(
    tx: Transaction, worker: str, chosen: Sequence[Row], uses: dict[str, KeyUse], now: float
) -> None:
    if not chosen:
        return
    await tx.fetch("leases.give", worker, [row[EXECUTION] for row in chosen], [row[0] for row in chosen])
    noted = [
        (use.key, use.last + place, now, now + rate.period)
        for use in uses.values()
        for place, rate in enumerate(use.started, 1)
    ]
    if noted:
        await tx.fetch("limits.note_starts", *columns(noted, 4))
        forgotten = [
            (use.key, use.last + len(use.started) - use.started[-1].starts)
            for use in uses.values()
            if use.started
        ]
        await tx.fetch("limits.forget_starts", *columns(forgotten, 2))
