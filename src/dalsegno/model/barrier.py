"""Barriers and gates, where branches meet: ids, counters and times."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from dalsegno.model.token import NewToken

BarrierMode = Literal["all", "any"]
BarrierState = Literal["waiting", "open", "dead", "timeout", "tripped", "cancelled"]
"""Every state but ``waiting`` is a tombstone: nothing reopens the barrier before the execution ends (L7)."""


class BarrierSpec(Struct, frozen=True, gc=False):
    """Everything a store needs to create a barrier on its first arrival.

    ``join`` is the token parked at the barrier. It counts as live from the first live arrival on (or from
    creation, with ``live_at_once``: a split's aggregator). ``timeout`` seconds run from that same moment.
    """

    id: str
    scope: str
    node: str
    expected: int
    join: NewToken
    mode: BarrierMode = "all"
    timeout: float | None = None
    live_at_once: bool = False


class Milestone(Struct, frozen=True, gc=False):
    """Makes ``token`` ready once ``resolved`` slots of the barrier are resolved: how a split's window advances."""

    resolved: int
    token: NewToken


class GateSpec(Struct, frozen=True, gc=False):
    """Bookkeeping of a node that may run several times.

    ``open_edges`` in-edges are open at the start; when those and the live visits are both zero, ``closed`` becomes
    ready.
    """

    id: str
    scope: str
    node: str
    open_edges: int
    closed: NewToken


class BarrierView(Struct, frozen=True):
    id: str
    scope: str
    node: str
    state: BarrierState
    mode: BarrierMode
    expected: int
    resolved: int
    live: int
    deadline: float | None


class SlotView(Struct, frozen=True, gc=False):
    """A resolved slot. ``data`` is None for a skipped one."""

    slot: int
    live: bool
    data: bytes | None


class LeftView(Struct, frozen=True, gc=False):
    """A context entry that a branch left in its scope. Lists of them are in key order."""

    key: str
    data: bytes


def open_slots(resolved: Iterable[int], expected: int, most: int) -> tuple[int, ...]:
    """Return the first numbers below ``expected`` that are not among the resolved ones, which are ordered."""
    found: list[int] = []
    number = 0
    for slot in resolved:
        found += range(number, min(slot, number + most))
        number = slot + 1
        if len(found) >= most:
            return tuple(found[:most])
    found += range(number, min(expected, number + most))
    return tuple(found[:most])
