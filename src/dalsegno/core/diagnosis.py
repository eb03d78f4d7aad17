"""Diagnosis of an execution from its rows: what it waits for, and the remedy (the answer of ``why``).

The engine computes it once. Command line, API and client only display its fields.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from dalsegno.core.graph.external_waits import awaited_child, awaiting_in, signal_of
from dalsegno.core.graph.step_input import Awaiting
from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionState, ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.limits import LimitView, show_rate
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
    "limit",
    "trigger",
    "stuck",
    "trouble",
]


Subject = Literal[
    "",
    "execution",
    "program",
    "node",
    "task",
    "timer",
    "signal",
    "request",
    "approval",
    "child",
    "schedule",
    "limit",
]
"""The kind of object that ``node`` of a `Wait` names. ``limit``: a time limit around an await."""

WHEN_RESUMED = "it continues when the execution is resumed"
"""The end of a sentence about something that only a pause holds back."""

MOST_TIMERS = 5
"""Timers of one kind that are listed one by one; the rest are counted."""


class Wait(Struct, frozen=True):
    """One reason why an execution has not ended yet."""

    kind: WaitKind
    node: str
    """Name of the node, task, signal or workflow that waits."""
    scope: str
    sentence: str
    due: float | None = None
    queue: str | None = None
    arrived: int | None = None
    expected: int | None = None
    count: int = 1
    open: tuple[str, ...] = ()
    """For a barrier: the branches that have not arrived, each by the node or item it comes from; the first few
    only.
    """
    execution: str | None = None
    """For a reason that comes from a child: the child's execution id."""
    is_remote: bool = False
    """For something queued: its queue is served by remote programs and not by this engine's workers. For
    something lost: a remote program ran it.
    """
    tasks: tuple[str, ...] = ()
    """The remote tasks declared for that queue."""
    claims: tuple[str, ...] = ()
    """The remote programs that claim that queue now."""
    claimed_by: str | None = None
    claimed_at: float | None = None
    """When which program last claimed the queue; None if no claim is known."""
    subject: Subject = ""
    since: float | None = None
    """Start of the wait; None if the store does not record it."""
    served: bool | None = None
    """For something queued: a living worker or remote program takes tasks of its queue."""
    lost: bool = False
    """The worker that ran it is dead."""
    line: int | None = None
    """For a script or Python workflow: the line of the await."""
    text: str = ""
    """Source text of that line."""
    hint: str = ""
    """The remedy, for people. Commands are in backticks."""
    commands: tuple[str, ...] = ()
    """The commands in the hint, without the options that select the store or the server."""

    def at_its_line(self) -> str:
        """Return the sentence, prefixed with its place in the program."""
        if self.line is None:
            return self.sentence
        place = f"line {self.line} ({self.text})" if self.text else f"line {self.line}"
        return f"{place}: {self.sentence}"


class Explanation(Struct, frozen=True):
    """The reasons why an execution has not ended: the answer of ``why``."""

    execution: str
    state: ExecutionState
    waits: tuple[Wait, ...]
    now: float
    """The store's time."""


def command(*words: str) -> str:
    return shlex.join(("dalsegno", *words))


class HeldBack(Struct, frozen=True):
    """Why a limit holds a token back.

    ``reason`` follows the name of what waits; ``due`` is when the rate allows its start.
    """

    reason: str
    due: float | None = None


def held_back(token: TokenView, limits: Iterable[LimitView]) -> HeldBack | None:
    """Return why its limit does not let a ready token start; None if only a worker is missing."""
    if token.state != "ready" or token.limit_key is None:
        return None
    own_key = (token.limit_key, token.allowance)
    view = next((each for each in limits if (each.key, each.allowance) == own_key), None)
    if view is None:
        return None
    most, rate = view.bound.concurrency, view.bound.rate
    if most is not None and view.in_use >= most:
        return HeldBack(f"waits for a free slot of limit '{view.key}' ({view.in_use} of {most} in use)")
    if rate is not None and view.opens_at is not None:
        return HeldBack(f"waits for its turn at limit '{view.key}' (rate {show_rate(rate)})", view.opens_at)
    return None


def child_wait(wait: Wait, child: ExecutionView) -> Wait:
    """Return a child's reason as it is shown for the parent."""
    sentence = f"execution {child.id} of '{child.workflow}': {wait.sentence}"
    return replace(wait, sentence=sentence, execution=child.id)


class Lost(Struct, frozen=True):
    """A dead worker that still holds tokens."""

    sentence: str
    due: float | None = None
    """When its leases expire."""
    heard: float | None = None
    """Time of its last heartbeat."""
    is_remote: bool = False


def waits(
    inspection: Inspection,
    open_slots: Mapping[str, tuple[str, ...]] | None = None,
    lost: Mapping[str, Lost] | None = None,
) -> list[Wait]:
    """Return everything a live execution waits for; equal reasons of many items are counted, not listed.

    ``open_slots`` names what has not arrived, by barrier; ``lost`` the dead owners of leases.
    """
    if inspection.execution.state in ENDED:
        return []
    if inspection.execution.state == "PENDING":
        return [_pending_wait(inspection, lost or {})]
    barriers = {barrier.id: barrier for barrier in inspection.barriers}
    found = [
        _at_limit(token, inspection)
        or _lost_worker_wait(token, lost or {})
        or _wait(inspection.execution.id, token, _barrier_of(token, barriers), open_slots or {})
        for token in inspection.tokens
    ]
    return [*paused(inspection.execution), *group(found)]


def paused(execution: ExecutionView) -> list[Wait]:
    if execution.state != "PAUSED":
        return []
    sentence = "the execution is paused; resume it to continue"
    return [Wait("paused", "", "", sentence, subject="execution", since=execution.paused_at)]


def _pending_wait(inspection: Inspection, lost: Mapping[str, Lost]) -> Wait:
    wait = _start_wait(inspection, lost)
    since = wait.since if wait.since is not None else inspection.execution.created_at
    return replace(wait, subject="execution", since=since)


def _start_wait(inspection: Inspection, lost: Mapping[str, Lost]) -> Wait:
    start = next((token for token in inspection.tokens if token.kind == "start"), None)
    if start is None:
        begin = command("trigger", inspection.execution.id)
        sentence = "it was submitted and waits to be triggered"
        return Wait("trigger", "", "", sentence, hint=f"begin it with `{begin}`", commands=(begin,))
    held = held_back(start, inspection.limits)
    if held is not None:
        return Wait("limit", "", "", f"the execution {held.reason}", held.due, since=start.ready_at)
    match start.state:
        case "leased" if (gone := lost.get(start.owner or "")) is not None:
            return lost_worker_wait(gone, "a worker was about to begin it")
        case "leased":
            return Wait("running", "", "", "a worker is about to begin it")
        case "ready":
            return in_queue(Wait("queued", "", "", "", subject="execution"), start)
        case _:
            return Wait("timer", "", "", "it starts when it is due, or when it is triggered", start.due)


def needing(wait: Wait) -> str:
    """Return the beginning of the sentence about something in a queue."""
    return "it is due; it" if wait.subject == "execution" else f"{wait.subject} '{wait.node}'"


def in_queue(wait: Wait, token: TokenView) -> Wait:
    """Complete the reason of a ready token, which waits for a worker of its queue."""
    sentence = f"{needing(wait)} waits for a worker that serves queue '{token.queue}'"
    return replace(wait, sentence=sentence, queue=token.queue, since=token.ready_at)


def lost_worker_wait(lost: Lost, was: str, node: str = "", scope: str = "", subject: Subject = "") -> Wait:
    """Return the reason for a token whose worker died."""
    sentence = f"{was}; {lost.sentence}"
    return Wait(
        "lost",
        node,
        scope,
        sentence,
        lost.due,
        is_remote=lost.is_remote,
        subject=subject,
        since=lost.heard,
        lost=True,
    )


def _noun(token: TokenView) -> Literal["task", "node"]:
    return "task" if token.kind == "task" else "node"


def _at_limit(token: TokenView, inspection: Inspection) -> Wait | None:
    held = held_back(token, inspection.limits)
    if held is None:
        return None
    what = _noun(token)
    sentence = f"{what} '{token.node}' {held.reason}"
    return Wait("limit", token.node, token.scope, sentence, held.due, subject=what, since=token.ready_at)


def _lost_worker_wait(token: TokenView, lost: Mapping[str, Lost]) -> Wait | None:
    owner = lost.get(token.owner or "") if token.state == "leased" else None
    if owner is None:
        return None
    what = _noun(token)
    was = f"{what} '{token.node}' was running (attempt {token.attempt})"
    return lost_worker_wait(owner, was, token.node, token.scope, what)


def _barrier_of(token: TokenView, barriers: dict[str, BarrierView]) -> BarrierView | None:
    if token.kind != "join":
        return None
    same = [each for each in barriers.values() if each.node == token.node and each.scope == token.scope]
    return next((each for each in same if each.state == "waiting"), same[0] if same else None)


def _wait(
    execution: str,
    token: TokenView,
    barrier: BarrierView | None,
    open_slots: Mapping[str, tuple[str, ...]],
) -> Wait:
    node, scope = token.node, token.scope
    if token.kind == "deadline":
        sentence = "ends FAILED when its own timeout passes"
        return Wait("deadline", node, scope, sentence, token.due, subject="execution")
    if token.kind == "schedule" and token.state == "parked":
        sentence = "the schedule starts its workflow when it is next due"
        return Wait("timer", "", scope, sentence, token.due, subject="schedule")
    if token.awaits is not None and token.state == "parked":
        return _external_wait(execution, token)
    what = _noun(token)
    if barrier is not None and token.state == "parked":
        return _at_barrier(token, barrier, open_slots.get(barrier.id, ()))
    return replace(_own_wait(token, what), subject=what)


def _own_wait(token: TokenView, what: Subject) -> Wait:
    """Return the reason for a token that waits for a worker or for a time."""
    node, scope, name = token.node, token.scope, f"{what} '{token.node}'"
    match token.state:
        case "leased":
            return Wait("running", node, scope, f"{name} is running (attempt {token.attempt})")
        case "held":
            sentence = f"{_why_held(token, name)}; {WHEN_RESUMED}"
            return Wait("queued", node, scope, sentence, since=token.ready_at)
        case "ready":
            return in_queue(Wait("queued", node, scope, "", subject=what), token)
    if token.kind == "advance":
        return Wait("items", node, scope, f"split '{node}' opens more items when its window has room")
    if token.attempt > 1:
        return Wait("retry", node, scope, f"{name} is tried again (attempt {token.attempt})", token.due)
    return Wait("timer", node, scope, f"{name} sleeps until it is due", token.due)


def _why_held(token: TokenView, name: str) -> str:
    """Return what made a token ready during the pause. Which worker serves its queue matters only after the pause."""
    match token.reason:
        case "arrival":
            return f"what {name} waited for has arrived"
        case "timer":
            return f"{name} is due"
        case _:
            return f"{name} is ready"


def _external_wait(execution: str, token: TokenView) -> Wait:
    awaiting = awaiting_in(token) or Awaiting(token.awaits or "", 0.0)
    child, signal = awaited_child(awaiting), signal_of(awaiting) or ""
    name, scope, since = f"{_noun(token)} '{token.node}'", token.scope, awaiting.since or None
    if child is not None:
        sentence = f"{name} waits for execution {child} to end"
        return Wait("child", token.node, scope, sentence, token.due, subject="node", since=since)
    if awaiting.question is not None:
        what, how, hint = "a decision, by the signal", command("approve", execution, token.node), "decide it"
    else:
        what, how, hint = "the signal", command("signal", execution, signal), "send it"
    hint = f"{hint} with `{how}`" + (" or reject" if awaiting.question is not None else "")
    sentence = f"{name} waits for {what} '{signal}'"
    return Wait(
        "signal",
        token.node,
        scope,
        sentence,
        token.due,
        subject="node",
        since=since,
        hint=hint,
        commands=(how,),
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
        subject="node",
    )


def group(waiting: Sequence[Wait]) -> list[Wait]:
    """Merge equal reasons: items of one split often wait for the same thing at the same node."""
    counted: dict[tuple[str, str, str], list[Wait]] = {}
    for wait in waiting:
        counted.setdefault((wait.kind, wait.node, wait.sentence), []).append(wait)
    grouped: list[Wait] = []
    for same in counted.values():
        grouped += _by_due_time(same) if same[0].kind == "timer" else [_merged(same)]
    return grouped


def _by_due_time(timers: Sequence[Wait]) -> list[Wait]:
    """Return timers that fire at different times, soonest first; those of the same second are one.

    Only the first few are listed one by one.
    """
    by_second: dict[float, list[Wait]] = {}
    for wait in sorted(timers, key=_when):
        by_second.setdefault(floor(wait.due) if wait.due is not None else inf, []).append(wait)
    timers_found = [_merged(same) for same in by_second.values()]
    if len(timers_found) <= MOST_TIMERS + 1:
        return timers_found
    rest = timers_found[MOST_TIMERS:]
    where = f" at node '{rest[0].node}'" if rest[0].node else ""
    further = replace(
        rest[0],
        scope="",
        sentence=f"further timers{where}, the last of them",
        due=rest[-1].due,
        count=sum(wait.count for wait in rest),
    )
    return [*timers_found[:MOST_TIMERS], further]


def _when(wait: Wait) -> float:
    return wait.due if wait.due is not None else inf


def _merged(same: Sequence[Wait]) -> Wait:
    dues = [wait.due for wait in same if wait.due is not None]
    starts = [wait.since for wait in same if wait.since is not None]
    return replace(
        same[0],
        scope=same[0].scope if len(same) == 1 else "",
        due=min(dues) if dues else None,
        since=min(starts) if starts else None,
        count=sum(wait.count for wait in same),
    )


def with_fallback(inspection: Inspection, found: Sequence[Wait]) -> list[Wait]:
    """Add a general reason where the rows give none, so that ``why`` always has an answer."""
    if found or inspection.execution.state in ENDED:
        return list(found)
    return [Wait("stuck", "", "", _unexplained(inspection), subject="execution")]


def _unexplained(inspection: Inspection) -> str:
    if inspection.execution.kind in SCRIPTED:
        return (
            "it has no token that is queued, running or timed: it waits for an execution that it started, or nothing "
            "can continue it (see `dalsegno doctor`)"
        )
    return diagnose(inspection) or "it has just continued; ask again"


def diagnose(inspection: Inspection) -> str | None:
    """Return None if something can still move the execution, else a sentence that says what is missing."""
    if inspection.execution.state in ENDED or inspection.execution.state in ("PAUSED", "PENDING"):
        return None
    if any(_can_move(token) for token in inspection.tokens):
        return None
    parked = sorted({token.node for token in inspection.tokens if token.live})
    if not parked:
        return "it has no live token and has not ended"
    return f"every live token is parked with nothing to wake it (at {', '.join(parked)})"


def _can_move(token: TokenView) -> bool:
    return token.state in ("ready", "leased") or token.due is not None or token.awaits is not None
