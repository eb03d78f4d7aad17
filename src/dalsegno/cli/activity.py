"""What live tokens are doing, counted by the node or task they belong to, and the words for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dalsegno.core.await_outside import CHILD, awaiting_in
from dalsegno.core.settlement.signals import SIGNAL
from dalsegno.engine.processes import dead_among
from dalsegno.model.token import TokenKind, TokenView

NODES: tuple[TokenKind, ...] = ("node", "join")
TASKS: tuple[TokenKind, ...] = ("task",)


@dataclass(slots=True)
class Activity:
    """What the live tokens of one node or task are doing."""

    running: int = 0
    gone: int = 0
    """Was running in a process of this machine that has died."""
    queued: int = 0
    sleeping: int = 0
    due: float | None = None
    retrying: int = 0
    """The attempt that is due next, if a failed run is to be tried again."""
    awaits: str = ""
    """What it waits for from outside, in a word."""
    signal: str = ""
    """The name of the signal that it waits for."""
    asks: bool = False
    """Whether people are to decide something."""
    attempt: int = 1
    """The highest attempt that is running."""
    queue: str = ""

    def is_all_queued(self) -> bool:
        return bool(self.queued) and not (self.running or self.gone or self.sleeping)


def activities(tokens: Iterable[TokenView], kinds: Collection[TokenKind] = NODES) -> dict[str, Activity]:
    found: dict[str, Activity] = {}
    tokens = tuple(tokens)
    gone = gone_tokens(tokens)
    for token in tokens:
        if token.kind not in kinds:
            continue
        activity = found.setdefault(token.node, Activity(queue=token.queue))
        if token.id in gone:
            activity.gone += 1
        elif token.state == "leased":
            activity.running += 1
            activity.attempt = max(token.attempt, activity.attempt)
        elif token.state in ("ready", "held"):
            activity.queued += 1
        elif token.state == "parked":
            _add_parked(activity, token)
    return found


def gone_tokens(tokens: Iterable[TokenView]) -> set[str]:
    """Tokens that were running in a process of this machine that has died."""
    owners = {token.id: token.owner for token in tokens if token.state == "leased" and token.owner}
    dead = set(dead_among(sorted(set(owners.values())))) if owners else set()
    return {token for token, owner in owners.items() if owner in dead}


def _add_parked(activity: Activity, token: TokenView) -> None:
    activity.sleeping += 1
    if token.due is not None:
        activity.due = min(token.due, activity.due or token.due)
    if token.awaits is not None:
        activity.signal = signal_in(token.awaits)
        activity.asks = bool(activity.signal) and asks_people(token)
        activity.awaits = _awaits(activity, token.awaits)
    elif token.attempt > 1:
        activity.retrying = max(token.attempt, activity.retrying)


def _awaits(activity: Activity, awaits: str) -> str:
    if activity.asks:
        return "a decision"
    return f"signal {activity.signal}" if activity.signal else f"execution {awaits.removeprefix(CHILD)}"


def asks_people(token: TokenView) -> bool:
    """Of a parked token: whether it waits for a decision."""
    awaiting = awaiting_in(token) if token.data else None
    return awaiting is not None and awaiting.question is not None


def signal_in(awaits: str | None) -> str:
    """The name of the signal that a parked token waits for, if it waits for one."""
    return awaits.removeprefix(SIGNAL) if awaits is not None and awaits.startswith(SIGNAL) else ""


def busy_words(activity: Activity, *, paused: bool) -> list[str]:
    """What runs and what waits for a worker; nothing is said twice."""
    words = []
    if activity.running:
        words.append(f"{activity.running:,} running" if activity.running > 1 else "running")
    if activity.gone:
        words.append(f"{activity.gone:,} lost" if activity.gone > 1 else "lost its process")
    if activity.queued:
        verb = "held" if paused else "queued"
        words.append(f"{activity.queued:,} {verb}" if activity.queued > 1 else verb)
    return words
