"""Lines of tokens with a limit key, the slots they use, and the operators' rules."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from dalsegno.adapters.limit_lines import COUNTED
from dalsegno.core.settlement import TokenRow, Workspace, claimable
from dalsegno.core.settlement.claims import SUSPECT_LOSSES, Place, Suspicion
from dalsegno.core.settlement.limits import NthStart, bound_of, limit_view, room
from dalsegno.model.execution import ENDED
from dalsegno.model.limits import UNBOUNDED, Allowance, LimitView, Rate

Entry = tuple[int, float, int, str, str]
"""A place, the execution and the token: valid only while the token is ready. A heap compares
entries at every claim, so they are plain tuples that are read by position.
"""


class QueueRows(Workspace, Protocol):
    """The rows of a store, with its heaps of ready tokens and its limits."""

    ready: dict[str, list[Entry]]
    limits: MemoryLimitRows


class MemoryLine:
    __slots__ = ("innocent", "key", "opens_at", "queue", "suspect", "turn")

    def __init__(self, queue: str, key: str, turn: tuple[float, int, str, str]) -> None:
        self.queue = queue
        self.key = key
        self.turn = turn
        self.innocent: list[Entry] = []
        self.suspect: list[Entry] = []
        self.opens_at: float | None = None
        """When its rate allows the next start, as of the last claim."""

    def head(self, rows: QueueRows, *, suspects: bool = True) -> TokenRow | None:
        heaps = (self.innocent, self.suspect) if suspects else (self.innocent,)
        heads = [(heap[0], heap) for heap in heaps if _first(heap, rows) is not None]
        return _first(min(heads, key=lambda head: head[0])[1], rows) if heads else None

    def place(self, token: TokenRow) -> Place:
        entry = (self.suspect if token.losses >= SUSPECT_LOSSES else self.innocent)[0]
        return entry[:3]

    def pop(self, token: TokenRow) -> None:
        heappop(self.suspect if token.losses >= SUSPECT_LOSSES else self.innocent)

    def tokens(self, rows: QueueRows) -> Iterator[TokenRow]:
        for entry in (*self.innocent, *self.suspect):
            token = _token(entry, rows)
            if token is not None:
                yield token


def _token(entry: Entry, rows: QueueRows) -> TokenRow | None:
    token = rows.token(entry[3], entry[4])
    return token if token is not None and token.state == "ready" and token.ready_at == entry[1] else None


def _first(heap: list[Entry], rows: QueueRows) -> TokenRow | None:
    """Return the token at the head, after removing those that are no longer ready or may not run."""
    while heap:
        token = _token(heap[0], rows)
        if token is not None and claimable(token, rows):
            return token
        heappop(heap)
    return None


class MemoryLimitRows:
    """``slots`` is an index with lazy deletion: a token counts while it is leased and its execution has not ended."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], MemoryLine] = {}
        self.slots: dict[str, list[TokenRow]] = {}
        self.holders: dict[str, set[str]] = {}
        """Executions that hold a slot themselves, by key."""
        self.rules: dict[str, Allowance] = {}
        self.starts: dict[str, deque[float]] = {}
        self.tell: Callable[[float], None] = lambda at: None
        """Called by a claim when a line that a rate stopped continues."""
        self._turns = count()

    def line_up(self, token: TokenRow, place: Place) -> None:
        key = token.limit_key or ""
        line = self.lines.get((token.queue, key))
        if line is None:
            turn = (token.ready_at, next(self._turns), token.queue, key)
            line = self.lines[token.queue, key] = MemoryLine(token.queue, key, turn)
        heap = line.suspect if token.losses >= SUSPECT_LOSSES else line.innocent
        heappush(heap, (*place, token.execution, token.id))

    def of(self, queues: Iterable[str]) -> list[MemoryLine]:
        wanted = frozenset(queues)
        return [line for line in self.lines.values() if line.queue in wanted]

    def served(self, line: MemoryLine, now: float) -> None:
        if line.innocent or line.suspect:
            line.turn = (now, next(self._turns), line.queue, line.key)
        else:
            del self.lines[line.queue, line.key]

    # -- slots ------------------------------------------------------------------------------------------------

    def in_use(self, key: str, rows: QueueRows) -> int:
        tokens = [
            row for row in self.slots.get(key, ()) if row.state == "leased" and _runs(row.execution, rows)
        ]
        holders = {execution for execution in self.holders.get(key, ()) if _runs(execution, rows)}
        _keep(self.slots, key, tokens)
        _keep(self.holders, key, holders)
        return len(tokens) + len(holders)

    def take(self, token: TokenRow, bound: Allowance, now: float) -> None:
        """Count the leased token as a slot of its key, and as one of its starts."""
        key = token.limit_key or ""
        token.state = "leased"
        known = self.slots.setdefault(key, [])
        if not any(row is token for row in known):
            known.append(token)
        if bound.rate is not None:
            self._note_start(key, bound.rate, now)

    def _note_start(self, key: str, rate: Rate, now: float) -> None:
        starts = self.starts.setdefault(key, deque())
        starts.append(now)
        while len(starts) > rate.starts:
            starts.popleft()

    def nth_start(self, key: str) -> NthStart:
        starts = self.starts.get(key, ())
        return lambda n: starts[-n] if len(starts) >= n else None

    def held_by(self, execution: str) -> set[str]:
        by_tokens = {
            key
            for key, rows in self.slots.items()
            if any(row.execution == execution and row.state == "leased" for row in rows)
        }
        return by_tokens | {key for key, holders in self.holders.items() if execution in holders}

    # -- looking ----------------------------------------------------------------------------------------------

    def view(self, key: str, own: str | None, rows: QueueRows, now: float) -> LimitView:
        rule = self.rules.get(key, UNBOUNDED)
        waiting = sum(1 for line in self.lines.values() if line.key == key for _ in line.tokens(rows))
        in_use = self.in_use(key, rows)
        return limit_view(key, own, rule, in_use, min(waiting, COUNTED), self.nth_start(key), now)

    def keys(self, rows: QueueRows) -> list[str]:
        lined_up = {line.key for line in self.lines.values() if line.head(rows) is not None}
        used = {key for key in {*self.slots, *self.holders} if self.in_use(key, rows)}
        return sorted({*self.rules, *lined_up, *used})


def _runs(execution: str, rows: QueueRows) -> bool:
    row = rows.execution(execution)
    return row is not None and row.state not in ENDED


def _keep(index: dict[str, list[TokenRow]] | dict[str, set[str]], key: str, found: object) -> None:
    if found:
        index[key] = found  # type: ignore[assignment]
    else:
        index.pop(key, None)


class LimitQueueCursor:
    """A line as one claim sees it: see ``core.settlement.claims.Line``."""

    def __init__(self, line: MemoryLine, rows: QueueRows, now: float, suspicion: Suspicion) -> None:
        self.line = line
        self.rows = rows
        self.now = now
        self.suspicion = suspicion
        line.opens_at = None

    @property
    def turn(self) -> tuple[float, int, str, str]:
        return self.line.turn

    def place(self) -> Place | None:
        token = self.line.head(self.rows, suspects=self.suspicion.allowed)
        if token is None:
            return None
        found = room(
            self._bound(token), self._limits.in_use(self.line.key, self.rows), self._nth_start(), self.now
        )
        self.line.opens_at = found.opens_at
        return self.line.place(token) if found.free else None

    def take(self) -> TokenRow:
        token = self.line.head(self.rows, suspects=self.suspicion.allowed)
        if token is None:
            raise LookupError(f"nothing is in line for '{self.line.key}'")
        self.line.pop(token)
        if token.losses >= SUSPECT_LOSSES:
            self.suspicion.allowed = False
        self._limits.take(token, self._bound(token), self.now)
        self._limits.served(self.line, self.now)
        return token

    @property
    def _limits(self) -> MemoryLimitRows:
        return self.rows.limits

    def _bound(self, token: TokenRow) -> Allowance:
        return bound_of(token.allowance, self._limits.rules.get(self.line.key, UNBOUNDED))

    def _nth_start(self) -> NthStart:
        return self._limits.nth_start(self.line.key)


def may_claim(rows: QueueRows, now: float) -> bool:
    """Return True if a claim for all queues would find something that limits leave room for."""
    return any(_first(heap, rows) is not None for heap in rows.ready.values()) or any(
        line.place() is not None for line in _seen_now(rows, now)
    )


def next_opening(rows: QueueRows, now: float) -> float | None:
    """Return when the first of the lines that only a rate stops continues."""
    stopped = [line.line for line in _seen_now(rows, now) if line.place() is None]
    return min((line.opens_at for line in stopped if line.opens_at is not None), default=None)


def _seen_now(rows: QueueRows, now: float) -> list[LimitQueueCursor]:
    lines = rows.limits.lines.values()
    return [LimitQueueCursor(line, rows, now, Suspicion(allowed=True)) for line in lines]


class PlainTokens:
    """Ready tokens without a key, taken from the heads of their queues; those not chosen are put back."""

    def __init__(self, rows: QueueRows, queues: Sequence[str], suspicion: Suspicion) -> None:
        self._rows = rows
        self._queues = queues
        self._suspicion = suspicion
        self._taken: list[tuple[str, Entry]] = []

    def first(self, limit: int) -> list[tuple[Place, TokenRow]]:
        found: list[tuple[Place, TokenRow]] = []
        seen: set[tuple[str, str]] = set()
        while len(found) < limit and (queue := self._best_queue()) is not None:
            entry = heappop(self._rows.ready[queue])
            token = self._rows.token(entry[3], entry[4])
            if token is None or token.state != "ready" or not claimable(token, self._rows):
                continue
            if entry[3:] in seen:  # it was ready before, and an old entry of it is left
                continue
            seen.add(entry[3:])
            self._taken.append((queue, entry))
            if token.losses >= SUSPECT_LOSSES:
                if not self._suspicion.allowed:
                    continue
                self._suspicion.allowed = False
            found.append((entry[:3], token))
        return found

    def put_back(self) -> None:
        """Put back those that are still ready, once the chosen ones are leased."""
        for queue, entry in self._taken:
            token = self._rows.token(entry[3], entry[4])
            if token is not None and token.state == "ready":
                heappush(self._rows.ready[queue], entry)

    def _best_queue(self) -> str | None:
        ready = self._rows.ready
        heads = [(ready[queue][0], queue) for queue in self._queues if ready.get(queue)]
        return min(heads)[1] if heads else None
