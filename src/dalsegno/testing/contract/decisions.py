"""Decisions that a step may come to, chosen by number: what the model comparison commits.

They need not make sense as a workflow; a ledger knows no graphs. Each depends only on its lease and number, so
that the same step may come to the same conclusion twice, which is what L1 and L3 are about.
"""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.model.barrier import BarrierMode, BarrierSpec
from dalsegno.model.effect import (
    CancelTokens,
    Effect,
    EndIfLast,
    EndScope,
    OpenBarrier,
    OpenScope,
    StoreOutput,
)
from dalsegno.model.token import Lease, NewToken
from dalsegno.model.transition import Park, Transition
from dalsegno.testing.contract.build import (
    adjust,
    aggregator,
    arrive,
    barrier,
    event,
    finish,
    finisher,
    gate,
    last,
    last_of_item,
    milestone,
    skip,
    step,
    token,
)

Parts = list[Effect | NewToken]
SLOTS = 3


def decide(lease: Lease, choice: int, worker: str) -> Transition:
    """The transition for a lease that decision ``choice`` leads to."""
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
    """What a step without successor carries, in the root or in an item."""
    if lease.scope:
        return last_of_item(lease.scope, lease.token, left, b"of " + lease.token.encode())
    return last(lease.token, left)


def _nothing_more(lease: Lease) -> EndIfLast:
    """What a step carries whose arrival may be dropped: it knows no ending and leaves nothing."""
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
    """Closes an edge unused: at the merge others arrive at, or at one that nobody reaches alive."""
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
    """Ends the item early, or in the root (seldom) the execution."""
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
