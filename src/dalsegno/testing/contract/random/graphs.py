"""Random operations on graphs: a stack and the memory reference get the same operations and are compared after each.

* Decisions of a step are chosen by number. They need not make sense as a workflow, because a ledger knows no graphs.
* A decision depends only on its lease and number, so that a step may reach the same decision twice, for L1 and L3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from dalsegno.adapters.memory import MemoryArchive, MemoryLedger, MemoryStore
from dalsegno.core.settlement.workspace import is_closed
from dalsegno.model.barrier import BarrierMode, BarrierSpec
from dalsegno.model.effect import (
    CancelTokens,
    Effect,
    EndIfLast,
    EndScope,
    MarkStarted,
    OpenBarrier,
    OpenScope,
    SpawnToken,
    StoreOutput,
)
from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ENDED
from dalsegno.model.token import Lease, NewToken, TokenView
from dalsegno.model.transition import Applied, Outcome, Park, ReadyToken, Transition
from dalsegno.testing.contract.builders import (
    adjust,
    aggregator,
    arrive,
    barrier,
    cancel,
    command,
    deadline,
    event,
    finish,
    finisher,
    gate,
    last,
    last_of_item,
    milestone,
    pause,
    resume,
    skip,
    start,
    step,
    token,
)
from dalsegno.testing.contract.stack import ContractStack
from dalsegno.testing.histories import History, order_problems

Parts = list[Effect | NewToken]
SLOTS = 3


def decide(lease: Lease, choice: int, worker: str) -> Transition:
    """Return the transition for a lease and a decision."""
    if choice % 10 == 9:
        due = lease.ready_at // 1 + choice
        return step(
            lease, events=[event("NodeRetrying", lease.node)], park=Park(due, b"again", lease.attempt + 1)
        )
    parts = DECISIONS[choice % len(DECISIONS)](lease, choice)
    keep = [_child(lease, 0).id] if choice % 3 == 0 else []
    completed = event("NodeCompleted", lease.node, lease.scope)
    return step(
        lease, StoreOutput(lease.token, b"%d" % choice), *parts, events=[completed], keep=keep, worker=worker
    )


def _child(lease: Lease, number: int) -> NewToken:
    return token(f"{lease.token}.{number}", lease.scope, node="xyz"[number])


def _leaf(lease: Lease, left: bytes | None) -> EndIfLast:
    """The effect of a step without successor, in the root or in an item."""
    if lease.scope:
        return last_of_item(lease.scope, lease.token, left, b"of " + lease.token.encode())
    return last(lease.token, left)


def _nothing_more(lease: Lease) -> EndIfLast:
    """The effect of a step whose arrival may be dropped: it has no ending and leaves nothing."""
    return EndIfLast(lease.scope, finisher(lease.scope))


def _chain(lease: Lease, _choice: int) -> Parts:
    return [_child(lease, 0)]


def _fan_out(lease: Lease, _choice: int) -> Parts:
    return [_child(lease, number) for number in range(3)]


def _sleep(lease: Lease, choice: int) -> Parts:
    child = _child(lease, 0)
    return [token(child.id, child.scope, node=child.node, due=lease.ready_at // 1 + choice)]


def _arrive(lease: Lease, choice: int) -> Parts:
    data = lease.token.encode()
    return [arrive(_merge(lease, "all"), choice % SLOTS, data), _nothing_more(lease)]


def _race(lease: Lease, choice: int) -> Parts:
    return [arrive(_merge(lease, "any"), choice % SLOTS), _nothing_more(lease)]


def _skip(lease: Lease, choice: int) -> Parts:
    """Close an edge unused: at the merge where others arrive, or at one without live arrivals."""
    spec = _merge(lease, "all") if choice % 4 == 0 else barrier("unreached", 2, scope=lease.scope)
    return [skip(spec, choice % spec.expected), _child(lease, 0)]


def _merge(lease: Lease, mode: BarrierMode) -> BarrierSpec:
    return barrier(f"merge-{mode}", SLOTS, mode, timeout=30, scope=lease.scope)


def _end_branch(lease: Lease, _choice: int) -> Parts:
    return [_leaf(lease, b"left by " + lease.token.encode())]


def _split(lease: Lease, _choice: int) -> Parts:
    collect = aggregator(f"collect-{lease.token}", 2, timeout=40, scope=lease.scope)
    parts: Parts = [OpenBarrier(collect, milestone(1, f"advance({lease.token})"))]
    for index in range(2):
        scope = f"{lease.scope}/{lease.token}:{index}"
        parts += [OpenScope(scope, collect.id, index), token(f"{lease.token}:{index}", scope, node="item")]
    return parts


def _halt(lease: Lease, choice: int) -> Parts:
    """End the item early, or in the root (seldom) the execution."""
    if lease.scope:
        return [EndScope(lease.scope, b"halted", trip=choice % 2 == 0)]
    return [finish("FAILED")] if choice > 90 else [_child(lease, 1)]


def _visit(lease: Lease, choice: int) -> Parts:
    return [adjust(gate(open_edges=SLOTS), -1, choice % SLOTS), _leaf(lease, None)]


def _cancel(lease: Lease, _choice: int) -> Parts:
    return [CancelTokens(lease.scope, ("x", "merge-all")), _child(lease, 2)]


DECISIONS: tuple[Callable[[Lease, int], Parts], ...] = (
    _chain,
    _fan_out,
    _sleep,
    _arrive,
    _arrive,
    _race,
    _skip,
    _end_branch,
    _split,
    _halt,
    _visit,
    _cancel,
    _fan_out,
)


WORKER = "w1"
MOST_DEATHS = 2
"""Beyond that number tokens are suspects, and the order among several of them is not guaranteed."""

DROPS: tuple[EventKind, ...] = ("NodeCancelled", "TaskCancelled")


class Twins:
    """``subject`` is under test; ``reference`` shares its clock. Only executions of this pair count as alive."""

    def __init__(self, subject: ContractStack, name: str) -> None:
        self.store = MemoryStore()
        self.subject = subject
        self.reference = ContractStack(
            MemoryLedger(subject.clock, self.store), subject.clock, MemoryArchive(self.store, subject.clock)
        )
        self.executions = (f"{name}-a", f"{name}-b")
        self.leases: list[Lease] = []
        """All leases ever given."""
        self.held: list[Lease] = []
        """Leases whose steps are still running."""
        self.sent: list[Transition] = []
        self.deaths = 0

    async def begin(self) -> None:
        for execution in self.executions:
            timeout = deadline("timeout", self.subject.clock.now() + 150)
            await self.commit(start(execution, token("p"), token("q"), token("r"), timeout))

    async def end(self) -> None:
        """Leave nothing alive for the next pair on the same store."""
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
        """Commit up to ``a`` steps at once."""
        if not self.held:
            await self.claim(a, b)
        chosen = [self.held.pop((a * b) % len(self.held)) for _ in range(min(a % 5, len(self.held)))]
        await self.commit(*(decide(lease, b + index, WORKER) for index, lease in enumerate(chosen)))

    async def duplicate(self, a: int, b: int) -> None:
        if self.sent:
            await self.commit(self.sent[-1 - a % len(self.sent)])

    async def late(self, a: int, b: int) -> None:
        """Commit another decision for a token leased before, possibly long ago and more than once."""
        if self.leases:
            lease = self.leases[-1 - a % len(self.leases)]
            await self.commit(decide(replace(lease, fence=lease.fence - b % 2), b, WORKER))

    async def show(self, a: int, b: int) -> None:
        """Record that a run has started: one that is in progress or over, possibly recorded before."""
        if self.leases:
            lease = self.leases[-1 - a % len(self.leases)]
            self.subject.clock.advance(b % 3)
            begun = event("NodeStarted", lease.node, lease.scope)
            await self.commit(command(lease.execution, MarkStarted(lease.token, lease.fence), events=[begun]))

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
        """Drop tokens of ended executions, which a store may or may not still find."""
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
                assert own == other  # the first difference, rather than two long lists
            assert mine == theirs
            assert order_problems(History(mine["execution"], mine["events"])) == []

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
        """A store may drop tokens of a closed scope at once or when it next reads them."""
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
    """Sort by name the tokens dropped at one moment: timers of one moment come due in any order."""
    ordered: list[Event] = []
    for (kind, _), group in groupby(events, key=lambda event: (event.kind, event.at)):
        run = list(group)
        by_name = sorted(run, key=lambda event: event.token or "") if kind in DROPS else run
        ordered += [replace(event, seq=place.seq) for event, place in zip(by_name, run, strict=True)]
    return ordered


def _settled(token: TokenView) -> TokenView:
    """A paused execution's ready tokens may be held at once or by the next claim that reads them."""
    state = "ready" if token.state == "held" else token.state
    return replace(token, state=state, due=token.due if state == "parked" else None)


def _decided(outcome: Outcome) -> tuple[str, Any, frozenset[str], frozenset[ReadyToken]]:
    if isinstance(outcome, Applied):
        return "Applied", outcome.ended, frozenset(outcome.kept), frozenset(outcome.ready)
    return type(outcome).__name__, getattr(outcome, "reason", None), frozenset(), frozenset()
