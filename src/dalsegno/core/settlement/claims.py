"""Rules between commits: which ready token is next and whether it may be leased, what a due timer and a resume do.

Claim order: tokens without a limit key form one line per queue, tokens with one a line per key.

- Priorities come first.
- Between tokens with a key and tokens without, age decides.
- Among keys of the same priority the least recently served is next, so that a key with thousands of tokens
  alternates with one that has a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Generic, Literal, Protocol, TypeVar

from dalsegno.core.settlement.rows import ExecutionRow, TokenRow
from dalsegno.core.settlement.workspace import Workspace, cancelled_event, is_closed
from dalsegno.model.execution import ENDED
from dalsegno.model.token import WakeReason
from dalsegno.model.transition import ReadyToken

SUSPECT_LOSSES = 3
"""A token that was lost this often is leased alone, so that no other token is lost with it."""


def claimable(token: TokenRow, rows: Workspace) -> bool:
    """Return True if a ready token may be leased. If not, its state is changed so that claims no longer find it."""
    execution = rows.execution(token.execution)
    disposition = _disposition(token, execution, rows)
    if disposition == "run":
        return True
    if disposition == "hold":
        token.state = "held"
        rows.save_token(token)
    else:
        _drop(token, execution, rows, execution.touched_at if execution is not None else 0.0)
    return False


def _drop(token: TokenRow, execution: ExecutionRow | None, rows: Workspace, now: float) -> None:
    """Drop a token whose execution or scope has ended.

    The sweep records what an ended execution left, so there the token is only hidden. In an ended scope the drop
    is recorded here.
    """
    if execution is not None and execution.state in ENDED:
        token.state = "held"
    else:
        token.state = "cancelled"
        at = max(now, execution.touched_at) if execution is not None else now
        event = cancelled_event(token.kind, token.live, token.node, token.scope, token.id, at)
        if execution is not None and event is not None:
            execution.seq += 1
            execution.touched_at = at
            rows.add_event(execution.id, execution.seq, event, None, None)
            rows.save_execution(execution)
    rows.save_token(token)


def _disposition(
    token: TokenRow, execution: ExecutionRow | None, rows: Workspace
) -> Literal["run", "hold", "drop"]:
    if execution is None or execution.state in ENDED:
        return "drop"
    if token.scope and is_closed(rows, execution.id, token.scope):
        return "drop"
    return "hold" if execution.state == "PAUSED" else "run"


def wake_row(token: TokenRow, rows: Workspace, now: float) -> bool:
    """Wake a due parked token. Return True if it became ready (else it is held, or dropped with its execution)."""
    execution = rows.execution(token.execution)
    disposition = _disposition(token, execution, rows)
    if disposition == "drop":
        _drop(token, execution, rows, now)
        return False
    token.ready_at = now
    if disposition == "hold" and token.kind == "deadline":
        # The execution's own timeout does not count paused time: it keeps its due time until resume moves it.
        token.state = "held"
        rows.save_token(token)
        return False
    token.reason = "timer" if token.barrier is None else _reason_at(token.barrier, token, rows)
    token.awaits = None
    token.state = "held" if disposition == "hold" else "ready"
    rows.save_token(token)
    return token.state == "ready"


def _reason_at(barrier: str, token: TokenRow, rows: Workspace) -> WakeReason:
    """Return the barrier's timeout if it still waits.

    Otherwise the token was parked again after the barrier had woken it, and is woken for the same reason.
    """
    row = rows.barrier(token.execution, barrier)
    if row is None or row.state == "cancelled":
        return "timeout"
    if row.state == "waiting":
        row.state = "timeout"
        rows.save_barrier(row)
    return row.state


def resume_execution(execution: ExecutionRow, rows: Workspace, now: float) -> list[TokenRow]:
    """End a pause: held tokens become ready in due order, deadlines are moved by the length of the pause."""
    paused_for = max(now - execution.paused_at, 0.0) if execution.paused_at is not None else 0.0
    execution.state = "RUNNING"
    execution.paused_at = None
    changed = []
    for token in rows.unfinished_tokens(execution.id):
        if token.kind == "deadline" and token.due is not None and token.state in ("parked", "held"):
            token.due += paused_for
            token.state = "parked"
            changed.append(token)
        elif token.state == "held":
            token.state = "ready"
            changed.append(token)
    changed.sort(key=lambda token: (token.due if token.due is not None else token.ready_at, token.id))
    for order, token in enumerate(changed):
        if token.state == "ready":
            token.ready_at = now + order * 1e-6
        rows.save_token(token)
    return changed


def hold_deadline(token: TokenRow, rows: Workspace) -> None:
    """Hold a deadline that passed at the moment of a pause: no clock of a paused execution runs."""
    token.state = "held"
    token.owner = None
    rows.save_token(token)


def release_row(token: TokenRow, lost: bool, rows: Workspace, now: float) -> None:
    """End a lease without a commit: handed back, or lost with its worker."""
    token.state = "ready"
    token.owner = None
    token.ready_at = now
    if lost:
        token.losses += 1
    rows.save_token(token)
    if token.limit_key is not None:
        rows.free_slot(token.limit_key)


def drop_late(
    token: TokenRow, execution: ExecutionRow, rows: Workspace, now: float
) -> tuple[ReadyToken, ...]:
    """Drop a leased token whose commit came after the end of its scope or execution; return who may take its slot.

    Its run is over, so its slot must not stay taken until the execution ends. The ending may not have seen a lease
    that was given at the same moment, so the lines may not have been opened yet.
    """
    if token.limit_key is None:
        return ()
    token.owner = None
    _drop(token, execution, rows, now)
    return tuple(rows.free_slot(token.limit_key))


# -- claim order -----------------------------------------------------------------------------------------------


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Place = tuple[int, float, int]
"""A token's place in its line: its negated priority, when it became ready, and the order among equals."""


class Suspicion:
    """Allows a worker at most one token at a time that killed workers before."""

    __slots__ = ("allowed",)

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed


class Line(Protocol[T_co]):
    """The ready tokens of one key in one queue."""

    @property
    def turn(self) -> tuple[float, int, str, str]:
        """Return when it was last served; no two lines have the same value."""

    def place(self) -> Place | None:
        """Return the place of the next token; None if there is none, or its limit leaves no room."""

    def take(self) -> T_co:
        """Return the next token, which counts as leased from now on."""


Waiting = tuple[int, int, tuple[float, int, str, str], tuple[float, int], Line[T]]
"""Rank of its first token, how often it was served here, its turn, when its first token became ready, and the line."""


class Choice(Generic[T]):
    """Chooses among plain tokens, in their order, and lines."""

    def __init__(self, plain: Sequence[tuple[Place, T]], lines: Iterable[Line[T]]) -> None:
        self._plain = list(reversed(plain))
        self._lines: list[Waiting[T]] = []
        for line in lines:
            self._enter(line, 0, line.turn)

    def take(self, wanted: int) -> list[T]:
        chosen: list[T] = []
        while len(chosen) < wanted:
            self._pass_over_full()
            if not self._plain and not self._lines:
                break
            chosen.append(self._plain.pop()[1] if self._plain_is_next() else self._take_from_line())
        return chosen

    def _enter(self, line: Line[T], served: int, turn: tuple[float, int, str, str]) -> None:
        place = line.place()
        if place is not None:
            heappush(self._lines, (place[0], served, turn, place[1:], line))

    def _pass_over_full(self) -> None:
        """Drop lines without room: another line of the same key may have taken the last slot."""
        while self._lines and self._lines[0][4].place() is None:
            heappop(self._lines)

    def _plain_is_next(self) -> bool:
        if not self._plain or not self._lines:
            return bool(self._plain)
        priority, *since = self._plain[-1][0]
        highest = self._lines[0][0]
        if priority != highest:
            return priority < highest
        return tuple(since) <= min(first for rank, _, _, first, _ in self._lines if rank == highest)

    def _take_from_line(self) -> T:
        _, served, turn, _, line = heappop(self._lines)
        token = line.take()
        self._enter(line, served + 1, turn)
        return token
