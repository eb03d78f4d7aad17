"""Claims in which limits matter: read the lines under the locks of their keys, then choose."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.adapters.limit_lines import SPARE_LINES, heads_of_each
from dalsegno.adapters.postgres.claim.limit_queues import (
    Candidate,
    KeyLocks,
    KeyUse,
    LimitQueueCursor,
    OutOfHeads,
    TakeKeys,
    candidate,
)
from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.commit.read_set import Key
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Choice, Suspicion
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken


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
            leases += [token.lease for token in chosen]
            void += claim.void
            openings += [line.opens_at for line in claim.lines if line.opens_at is not None]
            if len(chosen) < wanted and not (claim.more and changed):
                break
        if openings:
            self.store.announce_opening(min(openings))
        return leases, void

    async def lease(self, worker: str, named: Sequence[Key]) -> dict[Key, Lease]:
        """Lease the named tokens for which there is room."""
        executions, tokens = [execution for execution, _ in named], [token for _, token in named]

        async def lease(tx: Transaction, take: TakeKeys) -> list[Candidate]:
            asked = [key for (key,) in await tx.fetch("leases.keys_of", executions, tokens)]
            keys = list(await take(asked))
            ready = {}
            for *columns_of_token, key in await tx.fetch("leases.named_in_line", executions, tokens):
                if key in keys:
                    token = candidate(columns_of_token)
                    ready[token.name] = key, token
            now = self.store.now()
            uses = await read_uses(tx, keys, now)
            await read_starts(tx, uses, [(key, token.allowance) for key, token in ready.values()], len(named))
            chosen = []
            for key, token in (ready[name] for name in named if name in ready):
                if token.runs and uses[key].room(token.allowance).free:
                    uses[key].take(token.allowance)
                    chosen.append(token)
            await give(tx, worker, chosen, uses, now)
            return chosen

        return {token.name: token.lease for token in await self.locks.run(lease)}

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

    async def choose(self, worker: str) -> list[Candidate]:
        stored = await self._lock_lines()
        plain = [
            candidate(row) for row in await self.tx.fetch("leases.plain", worker, self.queues, self.wanted)
        ]
        holds = bool(await self.tx.fetch("leases.holds_suspect", worker))
        at_a_time = heads_of_each(self.wanted, len(stored))
        while True:
            suspicion = Suspicion(
                allowed=not holds and not any(token.lease.losses >= SUSPECT_LOSSES for token in plain)
            )
            heads = await self._read_heads(stored, at_a_time)
            self.lines = [
                LimitQueueCursor(line, self.uses[line["key"]], found, at_a_time, suspicion)
                for line, found in zip(stored, heads, strict=True)
            ]
            runnable = [(token.place, token) for token in plain if token.runs]
            try:
                chosen = Choice(runnable, self.lines).take(self.wanted)
                [line.head() for line in self.lines]
            except OutOfHeads:
                at_a_time *= 4
                continue
            every = [*plain, *(token for found in heads for token in found)]
            self.void = [token.name for token in every if not token.runs]
            return chosen

    async def _lock_lines(self) -> list[Row]:
        most = self.wanted + SPARE_LINES
        found = await self.tx.fetch("limits.open_lines", self.queues, most, self.now)
        if not found:
            return []
        self.more = len(found) >= most
        taken = await self.take_keys(list({key for _, key in found}))
        lines = [(queue, key) for queue, key in found if key in taken]  # the others are for the next look
        return await self.tx.fetch("limits.lines", *columns(lines, 2), self.now)

    async def _read_heads(self, stored: Sequence[Row], at_a_time: int) -> list[list[Candidate]]:
        if not stored:
            return []
        names = [(line["queue"], line["key"]) for line in stored]
        heads: list[list[Candidate]] = [[] for _ in stored]
        for *columns_of_token, place in await self.tx.fetch("leases.heads", *columns(names, 2), at_a_time):
            heads[place - 1].append(candidate(columns_of_token))
        self.uses = await read_uses(self.tx, list({key for _, key in names}), self.now)
        asked = [
            (key, token.allowance) for (_, key), found in zip(names, heads, strict=True) for token in found
        ]
        await read_starts(self.tx, self.uses, asked, self.wanted)
        return heads

    async def leave(self, worker: str, chosen: Sequence[Candidate]) -> bool:
        """Lease what was chosen and store the state of the lines; return True if any line changed."""
        await give(self.tx, worker, chosen, self.uses, self.now)
        left: list[tuple[object, ...]] = []
        empty: list[tuple[str, str]] = []
        for line in self.lines:
            head = line.head()
            if head is None:
                empty.append((line.queue, line.key))
            priority = head.token.lease.priority if line.served and head is not None else None
            left.append((line.queue, line.key, priority, line.served, line.full, line.opens_at))
        if left:
            await self.tx.fetch("limits.leave", *columns(left, 6), self.now)
        cleared = await self.tx.fetch("limits.clear", *columns(empty, 2)) if empty else []
        return bool(cleared) or any(line.served or line.full for line in self.lines)


_Look = tuple[_Claim, list[Candidate], bool]
"""The claim, the tokens leased by it, and True if any line changed."""


async def read_uses(tx: Transaction, keys: Sequence[str], now: float) -> dict[str, KeyUse]:
    uses = [KeyUse(row, now) for row in await tx.fetch("limits.use", keys)]
    return {use.key: use for use in uses}


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
    tx: Transaction, worker: str, chosen: Sequence[Candidate], uses: dict[str, KeyUse], now: float
) -> None:
    if not chosen:
        return
    executions, tokens = [token.execution for token in chosen], [token.lease.token for token in chosen]
    await tx.fetch("leases.give", worker, executions, tokens)
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
