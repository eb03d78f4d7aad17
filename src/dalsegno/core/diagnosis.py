"""What an execution waits for, read off its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.await_outside import awaited_child, awaiting_in, signal_of
from dalsegno.core.body import Awaiting
from dalsegno.core.limits import held_back
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.token import TokenView

WaitKind = Literal[
    "paused",
    "cleanup",
    "running",
    "lost",
    "queued",
    "timer",
    "retry",
    "barrier",
    "items",
    "deadline",
    "signal",
    "kept",
    "child",
    "task",
    "limit",
    "trigger",
    "stuck",
    "trouble",
]


WHEN_RESUMED = "it goes on when the execution is resumed"
"""What is said of whatever only a pause holds back."""

TIMERS_TOLD = 5
"""Timers of one kind that are told one by one; what is left is counted."""


class Wait(Struct, frozen=True):
    """One reason why an execution has not ended yet."""

    kind: WaitKind
    node: str
    scope: str
    sentence: str
    due: float | None = None
    queue: str | None = None
    arrived: int | None = None
    expected: int | None = None
    count: int = 1
    open: tuple[str, ...] = ()
    """Of a barrier: the branches that have not arrived, by the node or the item they come from; the first of them."""
    execution: str | None = None
    """Of a child: whose reason it is."""


def of_child(wait: Wait, child: ExecutionView) -> Wait:
    """A reason of a child, for whoever looks at its parent."""
    sentence = f"execution {child.id} of '{child.workflow}': {wait.sentence}"
    return replace(wait, sentence=sentence, execution=child.id)


class Lost(Struct, frozen=True):
    """What is known of a worker that holds tokens and does not live any more."""

    sentence: str
    due: float
    """When its leases end."""


def waits(
    inspection: Inspection,
    open_slots: Mapping[str, tuple[str, ...]] | None = None,
    lost: Mapping[str, Lost] | None = None,
) -> list[Wait]:
    """Everything a live execution waits for; equal reasons of many items are counted, not listed. ``open_slots`` names
    what has not arrived, by barrier; ``lost`` the owners of leases that are dead."""
    if inspection.execution.state in ENDED:
        return []
    if inspection.execution.state == "PENDING":
        return [_before_it_begins(inspection, lost or {})]
    barriers = {barrier.id: barrier for barrier in inspection.barriers}
    found = [
        _at_limit(token, inspection)
        or _of_the_lost(token, lost or {})
        or _wait(token, _barrier_of(token, barriers), open_slots or {})
        for token in inspection.tokens
    ]
    grouped = _group([wait for wait in found if wait is not None])
    if inspection.execution.state == "PAUSED":
        grouped.insert(0, Wait("paused", "", "", "the execution is paused; resume it to go on"))
    return grouped


def _before_it_begins(inspection: Inspection, lost: Mapping[str, Lost]) -> Wait:
    start = next((token for token in inspection.tokens if token.kind == "start"), None)
    if start is None:
        return Wait("trigger", "", "", "it was submitted, and waits to be triggered")
    held = held_back(start, inspection.limits)
    if held is not None:
        return Wait("limit", "", "", f"the execution {held.reason}", held.due)
    match start.state:
        case "leased" if (gone := lost.get(start.owner or "")) is not None:
            return Wait("lost", "", "", f"a worker was about to begin it; {gone.sentence}", gone.due)
        case "leased":
            return Wait("running", "", "", "a worker is about to begin it")
        case "ready":
            sentence = f"its time has come; it waits for a worker that serves queue '{start.queue}'"
            return Wait("queued", "", "", sentence, queue=start.queue)
        case _:
            return Wait(
                "timer", "", "", "it starts when its time has come, or when it is triggered", start.due
            )


def _at_limit(token: TokenView, inspection: Inspection) -> Wait | None:
    held = held_back(token, inspection.limits)
    if held is None:
        return None
    what = "task" if token.kind == "task" else "node"
    return Wait("limit", token.node, token.scope, f"{what} '{token.node}' {held.reason}", held.due)


def _of_the_lost(token: TokenView, lost: Mapping[str, Lost]) -> Wait | None:
    owner = lost.get(token.owner or "") if token.state == "leased" else None
    if owner is None:
        return None
    sentence = f"node '{token.node}' was running (attempt {token.attempt}); {owner.sentence}"
    return Wait("lost", token.node, token.scope, sentence, owner.due)


def _barrier_of(token: TokenView, barriers: dict[str, BarrierView]) -> BarrierView | None:
    if token.kind != "join":
        return None
    same = [each for each in barriers.values() if each.node == token.node and each.scope == token.scope]
    return next((each for each in same if each.state == "waiting"), same[0] if same else None)


def _wait(
    token: TokenView, barrier: BarrierView | None, open_slots: Mapping[str, tuple[str, ...]]
) -> Wait | None:
    node, scope = token.node, token.scope
    if token.kind == "deadline":
        sentence = "ends FAILED when its own timeout passes"
        return Wait("deadline", node, scope, sentence, token.due)
    if token.kind == "schedule" and token.state == "parked":
        return Wait(
            "timer", "", scope, "the schedule starts something when its next time has come", token.due
        )
    if token.state == "leased":
        return Wait("running", node, scope, f"node '{node}' is running (attempt {token.attempt})")
    if token.state == "held":
        return Wait("queued", node, scope, f"{_why_held(token)}; {WHEN_RESUMED}")
    if token.state == "ready":
        sentence = f"node '{node}' waits for a worker that serves queue '{token.queue}'"
        return Wait("queued", node, scope, sentence, queue=token.queue)
    if token.awaits is not None:
        return _for_outside(token)
    if barrier is not None:
        return _at_barrier(token, barrier, open_slots.get(barrier.id, ()))
    if token.kind == "advance":
        return Wait("items", node, scope, f"split '{node}' opens more items when its window has room")
    if token.attempt > 1:
        return Wait(
            "retry", node, scope, f"node '{node}' is tried again (attempt {token.attempt})", token.due
        )
    return Wait("timer", node, scope, f"node '{node}' sleeps until its time has come", token.due)


def _why_held(token: TokenView) -> str:
    """What made a token ready during the pause. Who serves its queue does not matter before that is over."""
    match token.reason:
        case "arrival":
            return f"what node '{token.node}' waited for has come"
        case "timer":
            return f"the time of node '{token.node}' has come"
        case _:
            return f"node '{token.node}' is ready"


def _for_outside(token: TokenView) -> Wait:
    awaiting = awaiting_in(token) or Awaiting(token.awaits or "", 0.0)
    child, signal = awaited_child(awaiting), signal_of(awaiting)
    if child is not None:
        sentence = f"node '{token.node}' waits for execution {child} to end"
        return Wait("child", token.node, token.scope, sentence, token.due)
    what = "a decision, by the signal" if awaiting.question is not None else "the signal"
    return Wait(
        "signal", token.node, token.scope, f"node '{token.node}' waits for {what} '{signal}'", token.due
    )


def _at_barrier(token: TokenView, barrier: BarrierView, missing: tuple[str, ...]) -> Wait:
    count = barrier.expected - barrier.resolved
    sentence = f"node '{token.node}' waits for {count} more of {barrier.expected} branches"
    if missing:
        more = f" and {count - len(missing):,} more" if count > len(missing) else ""
        sentence += f": {', '.join(missing)}{more}"
    return Wait(
        "barrier",
        token.node,
        token.scope,
        sentence,
        token.due,
        arrived=barrier.resolved,
        expected=barrier.expected,
        open=missing,
    )


def _group(waiting: Sequence[Wait]) -> list[Wait]:
    """Items of one split often wait for the same thing at the same node."""
    counted: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in waiting:
        counted.setdefault((wait.kind, wait.node, wait.sentence), []).append(wait)
    grouped: list[Wait] = []
    for same in counted.values():
        grouped += timers_apart(same) if same[0].kind == "timer" else [_together(same)]
    return grouped


def timers_apart(timers: Sequence[Wait]) -> list[Wait]:
    """Timers that fire at different times, soonest first; those of the same second are one. Only the first few are told
    one by one."""
    by_second: dict[float, list[Wait]] = {}
    for wait in sorted(timers, key=_when):
        by_second.setdefault(floor(wait.due) if wait.due is not None else inf, []).append(wait)
    apart = [_together(same) for same in by_second.values()]
    if len(apart) <= TIMERS_TOLD + 1:
        return apart
    rest = apart[TIMERS_TOLD:]
    where = f" at node '{rest[0].node}'" if rest[0].node else ""
    further = Wait(
        "timer",
        rest[0].node,
        "",
        f"further timers{where}, the last of them",
        rest[-1].due,
        count=sum(wait.count for wait in rest),
    )
    return [*apart[:TIMERS_TOLD], further]


def _when(wait: Wait) -> float:
    return wait.due if wait.due is not None else inf


def _together(same: Sequence[Wait]) -> Wait:
    dues = [wait.due for wait in same if wait.due is not None]
    return replace(
        same[0],
        scope=same[0].scope if len(same) == 1 else "",
        due=min(dues) if dues else None,
        count=sum(wait.count for wait in same),
    )


def never_silent(inspection: Inspection, found: Sequence[Wait]) -> list[Wait]:
    """Whoever asks why an execution has not ended gets an answer, also where none of its rows gives one."""
    if found or inspection.execution.state in ENDED:
        return list(found)
    return [Wait("stuck", "", "", _unexplained(inspection))]


def _unexplained(inspection: Inspection) -> str:
    if inspection.execution.kind in SCRIPTED:
        return (
            "nothing of it is queued, running or timed: it waits for an execution that it started, or nothing brings "
            "it on any more (`dalsegno doctor` tells)"
        )
    return diagnose(inspection) or "it has just moved on; ask again"


def diagnose(inspection: Inspection) -> str | None:
    """None if something can still move the execution, else a sentence that says what is missing."""
    if inspection.execution.state in ENDED or inspection.execution.state in ("PAUSED", "PENDING"):
        return None
    if any(_can_move(token) for token in inspection.tokens):
        return None
    parked = sorted({token.node for token in inspection.tokens if token.live})
    if not parked:
        return "it has no live token and did not end"
    return f"every live token is parked with nothing to wake it (at {', '.join(parked)})"


def _can_move(token: TokenView) -> bool:
    return token.state in ("ready", "leased") or token.due is not None or token.awaits is not None
