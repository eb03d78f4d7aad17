"""A stack and the memory reference, driven by the same operations and compared after each."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from dalsegno.adapters.memory import MemoryArchive, MemoryLedger, MemoryStore
from dalsegno.core.settlement.scopes import is_closed
from dalsegno.model.effect import SpawnToken
from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ENDED
from dalsegno.model.token import Lease, TokenView
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Transition
from dalsegno.testing.contract.build import cancel, deadline, gate, pause, resume, start, token
from dalsegno.testing.contract.decisions import decide
from dalsegno.testing.contract.stack import ContractStack

WORKER = "w1"
MOST_DEATHS = 2
"""Beyond that tokens are suspects, and which of several is handed out first is not promised."""

DROPS: tuple[EventKind, ...] = ("NodeCancelled", "TaskCancelled")


class Twins:
    """``subject`` is under test; ``reference`` shares its clock. Both know only this pair's executions as alive."""

    def __init__(self, subject: ContractStack, name: str) -> None:
        self.store = MemoryStore()
        self.subject = subject
        self.reference = ContractStack(
            MemoryLedger(subject.clock, self.store), subject.clock, MemoryArchive(self.store, subject.clock)
        )
        self.executions = (f"{name}-a", f"{name}-b")
        self.leases: list[Lease] = []
        """All that were ever given."""
        self.held: list[Lease] = []
        """Those whose steps are still running."""
        self.sent: list[Transition] = []
        self.deaths = 0

    async def begin(self) -> None:
        for execution in self.executions:
            timeout = deadline("timeout", self.subject.clock.now() + 150)
            await self.commit(start(execution, token("p"), token("q"), token("r"), timeout))

    async def end(self) -> None:
        """Leaves nothing alive for the next pair on the same store."""
        for side in (self.subject, self.reference):
            await side.commit(*(cancel(execution) for execution in self.executions))

    # -- operations, chosen by number -------------------------------------------------------------------------

    async def claim(self, a: int, b: int) -> None:
        mine = {_key(lease): _plain(lease) for lease in await self.subject.claim(1000)}
        theirs = {_key(lease): _plain(lease) for lease in await self.reference.claim(1000)}
        assert mine == theirs
        self._hold(theirs.values())

    async def step(self, a: int, b: int) -> None:
        await self.batch(1, b)

    async def batch(self, a: int, b: int) -> None:
        """Concludes up to ``a`` steps at once."""
        if not self.held:
            await self.claim(a, b)
        chosen = [self.held.pop((a * b) % len(self.held)) for _ in range(min(a % 5, len(self.held)))]
        await self.commit(*(decide(lease, b + index, WORKER) for index, lease in enumerate(chosen)))

    async def duplicate(self, a: int, b: int) -> None:
        if self.sent:
            await self.commit(self.sent[-1 - a % len(self.sent)])

    async def late(self, a: int, b: int) -> None:
        """Another conclusion about a token that was given away, maybe long ago and maybe more than once."""
        if self.leases:
            lease = self.leases[-1 - a % len(self.leases)]
            await self.commit(decide(replace(lease, fence=lease.fence - b % 2), b, WORKER))

    async def wake(self, a: int, b: int) -> None:
        self.subject.clock.advance(a)
        mine, theirs = await self.subject.ledger.wake(), await self.reference.ledger.wake()
        assert set(mine.ready) == set(theirs.ready)

    async def pause(self, a: int, b: int) -> None:
        await self.commit(pause(self.executions[a % 2]))

    async def resume(self, a: int, b: int) -> None:
        self.subject.clock.advance(b)
        await self.commit(*(resume(execution) for execution in self.executions))

    async def release(self, a: int, b: int) -> None:
        if self.held:
            lease = self.held.pop(a % len(self.held))
            for side in (self.subject, self.reference):
                await side.ledger.release(WORKER, [lease])

    async def die(self, a: int, b: int) -> None:
        self.deaths += 1
        if self.deaths <= MOST_DEATHS:
            mine = await self.subject.ledger.expire(dead=[WORKER])
            theirs = await self.reference.ledger.expire(dead=[WORKER])
            assert self._alive(mine) == self._alive(theirs)
            self.held.clear()

    def _alive(self, tokens: Iterable[ReadyToken]) -> set[ReadyToken]:
        """Without those of ended executions, which a store may or may not still find."""
        rows = ((token, self.store.execution(token.execution)) for token in tokens)
        return {token for token, row in rows if row is not None and row.state not in ENDED}

    async def commit(self, *batch: Transition) -> None:
        mine, theirs = await self.subject.commit(*batch), await self.reference.commit(*batch)
        assert [_decided(outcome) for outcome in mine] == [_decided(outcome) for outcome in theirs], (
            mine,
            theirs,
        )
        self.sent += batch
        for transition, outcome in zip(batch, theirs, strict=True):
            if isinstance(outcome, Applied):
                self._hold(_kept_lease(transition, name) for name in outcome.kept)

    def _hold(self, leases: Iterable[Lease]) -> None:
        new = list(leases)
        self.held += new
        self.leases += new

    # -- comparison -------------------------------------------------------------------------------------------

    async def compare(self) -> None:
        for execution in self.executions:
            mine = await self._look(self.subject, execution)
            theirs = await self._look(self.reference, execution)
            for own, other in zip(mine["events"], theirs["events"], strict=False):
                assert own == other  # the first that differs, rather than two long lists
            assert mine == theirs

    async def _look(self, side: ContractStack, execution: str) -> dict[str, Any]:
        found = await side.ledger.inspect(execution)
        assert found is not None
        ended = found.execution.state in ENDED
        barriers = {view.id: view for view in found.barriers}
        return {
            "execution": found.execution,
            "events": _unordered_drops(await side.events(execution)),
            "tokens": {} if ended else self._open_tokens(execution, found.tokens),
            "barriers": barriers,
            "slots": {name: await side.ledger.slots(execution, name) for name in sorted(barriers)},
            "left": await side.ledger.left(execution, ""),
            "used": await side.ledger.gate_used(execution, gate().id),
            "outputs": await side.ledger.outputs(execution, sorted({lease.token for lease in self.leases})),
        }

    def _open_tokens(self, execution: str, tokens: tuple[TokenView, ...]) -> dict[str, TokenView]:
        """A store may drop tokens of a closed scope at once or when somebody comes across them."""
        closed = {
            token.scope for token in tokens if token.scope and is_closed(self.store, execution, token.scope)
        }
        return {token.id: _settled(token) for token in tokens if token.scope not in closed}


def _key(lease: Lease) -> tuple[str, str]:
    return lease.execution, lease.token


def _kept_lease(transition: Transition, name: str) -> Lease:
    [new] = [
        effect.token
        for effect in transition.effects
        if isinstance(effect, SpawnToken) and effect.token.id == name
    ]
    place = (new.scope, new.kind, new.node, new.data, new.queue, new.priority)
    return Lease(
        name, transition.execution, 1, *place, 1, 0, "", transition.events[0].at, "", transition.epoch
    )


def _plain(lease: Lease) -> Lease:
    return replace(lease, ready_at=lease.ready_at // 1)


def _unordered_drops(events: Iterable[Event]) -> list[Event]:
    """Timers of one moment come due in any order, so the tokens they drop are recorded in any order: here by name."""
    told: list[Event] = []
    for (kind, _), group in groupby(events, key=lambda event: (event.kind, event.at)):
        run = list(group)
        by_name = sorted(run, key=lambda event: event.token or "") if kind in DROPS else run
        told += [replace(event, seq=place.seq) for event, place in zip(by_name, run, strict=True)]
    return told


def _settled(token: TokenView) -> TokenView:
    """A paused execution's ready tokens may be held at once or when a claim comes across them."""
    state = "ready" if token.state == "held" else token.state
    return replace(token, state=state, due=token.due if state == "parked" else None)


def _decided(outcome: Outcome) -> tuple[str, Any, frozenset[str], frozenset[ReadyToken]]:
    if isinstance(outcome, Applied):
        return "Applied", outcome.ended, frozenset(outcome.kept), frozenset(outcome.ready)
    return type(outcome).__name__, getattr(outcome, "reason", None), frozenset(), frozenset()
