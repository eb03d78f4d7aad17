"""Claims, named leases, releases and lost workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dalsegno.adapters.postgres.claim.limited import LimitedClaims
from dalsegno.adapters.postgres.commit.columns import columns
from dalsegno.adapters.postgres.commit.commits import Commits
from dalsegno.adapters.postgres.commit.flight import Flight
from dalsegno.adapters.postgres.commit.load import (
    ID,
    NOW,
    TOKEN,
    TOKEN_BARRIER,
    TOKEN_ID,
    TOKEN_LIMIT_KEY,
    TOKEN_SCOPE,
    LoadedRows,
    load,
    lock,
)
from dalsegno.adapters.postgres.commit.read_set import Key, ReadSet
from dalsegno.adapters.postgres.commit.workspace import PostgresWorkspace
from dalsegno.adapters.postgres.store import PostgresStore, Row, Transaction
from dalsegno.core.settlement import ExecutionRow, TokenRow, claimable, ready_token, release_row
from dalsegno.model.token import Lease, not_among, with_handed_over
from dalsegno.model.transition import ReadyToken

FLAG, RUNS, LEASE = 0, 1, 2
"""Columns of ``leases.claim`` and ``leases.named``: limits matter, the token may run, the lease, and data of its
execution. Every claim reads them, so they are read by position.
"""
FLIGHT = 17
"""Offset of the execution's data from the lease."""
LEASE_TOKEN, LEASE_EXECUTION = 2, 3

Change = Callable[[PostgresWorkspace, Sequence[Key], float], tuple[ReadyToken, ...]]


class Claims:
    def __init__(self, store: PostgresStore, commits: Commits) -> None:
        self.store = store
        self.commits = commits
        self.limited = LimitedClaims(store)

    async def claim(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        """Claim in one round trip if no limits matter and no void tokens are in line."""
        leases: list[Lease] = []
        while len(leases) < limit:
            wanted = limit - len(leases)
            rows = await self.store.fetch("leases.claim", worker, queues, wanted, self.store.given_now())
            if rows[0][FLAG]:
                found, void = await self.limited.claim(worker, queues, wanted)
                leases += found
            else:
                leases += [self.given(worker, row[LEASE:]) for row in rows if row[RUNS]]
                void = [_named(row) for row in rows if row[RUNS] is False]
            if not void or not await self._put_away(void):
                break
        return leases

    async def look_at_others(
        self, queues: Sequence[str], pass_over: Collection[str], only_long: bool, limit: int, since: float
    ) -> tuple[list[Row], list[Row]]:
        rows = await self.store.fetch(
            "leases.ready_of_others", queues, limit, list(pass_over), since, only_long
        )
        return [row for row in rows if not row[-1]], [row for row in rows if row[-1]]

    def given(self, worker: str, columns: Sequence[Any]) -> Lease:
        """Return the lease and remember it, so that its commit may take the fast path."""
        lease = Lease(*columns[:FLIGHT])
        number, state, seq, live, priority, touched_at, notify, version = columns[FLIGHT:]
        if state == "RUNNING" and not lease.scope:
            run = ExecutionRow(
                lease.execution,
                state,
                lease.definition,
                lease.epoch,
                seq,
                live,
                priority,
                touched_at=touched_at,
                kind=lease.execution_kind,
                notify=notify,
            )
            self.commits.known.note_lease(Flight(number, run, version), _token_of(worker, lease))
        return lease

    async def lease(self, worker: str, named: Sequence[ReadyToken]) -> list[Lease]:
        keys = {(ready.execution, ready.token): None for ready in named}
        rows = await self.store.fetch(
            "leases.named", worker, [execution for execution, _ in keys], [token for _, token in keys]
        )
        await self._put_away([_named(row) for row in rows if row[RUNS] is False])
        given = {_named(row): self.given(worker, row[LEASE:]) for row in rows if row[RUNS] and not row[FLAG]}
        limited = [_named(row) for row in rows if row[RUNS] and row[FLAG]]
        if limited:
            given |= await self.limited.lease(worker, [key for key in keys if key in limited])
        return [given[key] for key in keys if key in given]

    async def obsolete(self, leases: Sequence[Lease]) -> list[Lease]:
        """Look for leases that were handed over only if they are no longer valid themselves: few are."""
        gone = not_among(leases, await self._valid(leases), handed_over=False)
        return not_among(gone, await self._valid(with_handed_over(gone))) if gone else gone

    async def _valid(self, leases: Sequence[Lease]) -> set[tuple[str, str, int]]:
        wanted = [(lease.execution, lease.token, lease.fence) for lease in leases]
        valid = await self.store.fetch("leases.validly_leased", *columns(wanted, 3))
        return {(execution, token, fence) for execution, token, fence in valid}

    async def _put_away(self, void: Sequence[Key]) -> bool:
        """Move void tokens out of the way of claims, under their execution's lock; return True if any could be locked.

        Void are tokens whose execution is paused or has ended, or whose scope is closed.
        """
        if not void:
            return False
        wanted = _wanted(void)
        loaded = LoadedRows()
        async with self.store.transaction() as tx:
            await lock(self.store, tx, wanted, loaded)
            await load(tx, _around(loaded, void), loaded)

            def put_away(rows: PostgresWorkspace) -> int:
                tokens = [rows.token(*key) for key in void if key[0] in loaded.flights]
                ready = [token for token in tokens if token is not None and token.state == "ready"]
                return len([token for token in ready if not claimable(token, rows)])

            done, _ = await self.commits.settle(tx, loaded, put_away)
        return done > 0

    # -- release and loss ---------------------------------------------------------------------------------------

    async def held_by(self, worker: str) -> list[Lease]:
        return [Lease(*row) for row in await self.store.fetch("leases.held_by", worker)]

    async def release(self, worker: str, leases: Sequence[Lease], *, lost: bool = False) -> None:
        if not leases:
            return
        wanted, loaded = _wanted([(given.execution, given.token) for given in leases]), LoadedRows()
        async with self.store.transaction() as tx:
            await tx.fetch("load.wait", list(wanted.executions))
            now = self.store.saw(await lock(self.store, tx, wanted, loaded))

            def release(rows: PostgresWorkspace) -> None:
                for given in leases:
                    token = (
                        rows.token(given.execution, given.token)
                        if given.execution in loaded.flights
                        else None
                    )
                    held = token is not None and token.state == "leased" and token.owner == worker
                    if token is not None and held and token.fence == given.fence:
                        release_row(token, lost, rows, now)

            await self.commits.settle(tx, loaded, release)

    async def expire(self, dead: Sequence[str]) -> tuple[ReadyToken, ...]:
        """Take back leases. Rows locked by others are found by the next call: leases of unknown workers count, too."""
        now = self.store.given_now()
        gone = sorted({*dead, *(worker for (worker,) in await self.store.fetch("leases.gone", now))})
        if not gone:
            return ()
        async with self.store.transaction() as tx:
            rows = await tx.fetch("leases.lost", gone)
            lost = await self.change(tx, rows, _take_back)
            await tx.fetch("leases.forget", now, gone, list(dead))
        return lost

    # -- changes by the rules -----------------------------------------------------------------------------------

    async def change(self, tx: Transaction, rows: Sequence[Row], change: Change) -> tuple[ReadyToken, ...]:
        """Change tokens that were locked together with their executions."""
        if not rows:
            return ()
        loaded = LoadedRows()
        loaded.add_locked(rows, ReadSet())
        now = self.store.saw(rows[0][NOW])
        keys = [(row[ID], row[TOKEN + TOKEN_ID]) for row in rows]
        await load(tx, _around(loaded, keys), loaded)
        ready, _ = await self.commits.settle(tx, loaded, lambda workspace: change(workspace, keys, now))
        return ready


def _take_back(rows: PostgresWorkspace, keys: Sequence[Key], now: float) -> tuple[ReadyToken, ...]:
    ready = []
    for key in keys:
        token = rows.token(*key)
        if token is not None and token.state == "leased":
            release_row(token, True, rows, now)
            ready.append(ready_token(token))
    return tuple(ready)


def _token_of(worker: str, lease: Lease) -> TokenRow:
    """Return the token's row, with the columns that a step that consumes it reads."""
    return TokenRow(
        lease.execution,
        lease.token,
        lease.scope,
        lease.kind,
        lease.node,
        lease.data,
        lease.queue,
        lease.priority,
        None,
        lease.live,
        "leased",
        fence=lease.fence,
        owner=worker,
        attempt=lease.attempt,
        losses=lease.losses,
        reason=lease.reason,
        ready_at=lease.ready_at,
    )


def _named(row: Row) -> Key:
    return row[LEASE_EXECUTION], row[LEASE_TOKEN]


def _wanted(tokens: Sequence[Key]) -> ReadSet:
    wanted = ReadSet()
    wanted.executions = {execution: None for execution, _ in tokens}
    wanted.tokens = set(tokens)
    return wanted


def _around(loaded: LoadedRows, tokens: Sequence[Key]) -> ReadSet:
    """Return the other rows that the rules read before they change these tokens."""
    wanted = ReadSet()
    for execution, token in tokens:
        row = loaded.tokens.get(execution, {}).get(token)
        if row is None:
            continue
        wanted.scope(execution, row[TOKEN_SCOPE])
        if row[TOKEN_BARRIER] is not None:
            wanted.barriers.add((execution, row[TOKEN_BARRIER]))
        if row[TOKEN_LIMIT_KEY] is not None:
            wanted.keys.add(row[TOKEN_LIMIT_KEY])
    return wanted
