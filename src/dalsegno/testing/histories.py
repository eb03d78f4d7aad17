"""Checks of histories: every event is one fact, and every fact has one event, even if messages were delivered twice.

* The checks are pure: they get the data read from a store and return each inconsistency as a message.
* Missing input is not checked: without ``rows`` the tokens and signals, without ``others`` the children, without
  ``asked`` the answers to callers.
* ``RULES`` has one rule for each kind of event; ``ORDER`` applies to all kinds together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.model.event import Event, EventKind
from dalsegno.model.execution import ENDED, SCRIPTED, ExecutionState, ExecutionView
from dalsegno.model.ids import task_execution_id
from dalsegno.model.machine import request_in
from dalsegno.model.token import TokenKind, TokenState

ENDINGS: dict[EventKind, ExecutionState] = {
    "ExecutionCompleted": "COMPLETED",
    "ExecutionFailed": "FAILED",
    "ExecutionCancelled": "CANCELLED",
}
AFTER_THE_END: frozenset[EventKind] = frozenset(("NodeCancelled", "TaskCancelled"))
"""Events that the sweep of an ended execution records."""
NODE_RUNS: tuple[EventKind, ...] = ("NodeCompleted", "NodeFailed")
TASK_RUNS: tuple[EventKind, ...] = ("TaskCompleted", "TaskFailed")
TOKEN_ENDS: tuple[EventKind, ...] = (
    *NODE_RUNS,
    *TASK_RUNS,
    "TimerFired",
    "NodeCancelled",
    "TaskCancelled",
    "TaskHandedOver",
)
"""A token has exactly one of these: it ran, was dropped, or moved to another execution."""
RETRIES: tuple[EventKind, ...] = ("NodeRetrying", "TaskRetrying")
NOT_STORABLE = b'"NOT_STORABLE"'
"""In the error of a script that ended because the store could not hold the result of a task."""


class TokenFact(Struct, frozen=True):
    """A token as stored."""

    id: str
    kind: TokenKind
    node: str
    scope: str
    state: TokenState
    live: bool = True
    attempt: int = 1


class SignalFact(Struct, frozen=True):
    """A signal as stored; ``number`` is the number of its event."""

    id: str
    name: str
    number: int


class Rows(Struct, frozen=True):
    """The rows of an execution other than its own row, as of its last event."""

    tokens: tuple[TokenFact, ...] = ()
    """Consumed tokens may or may not be included."""
    signals: tuple[SignalFact, ...] = ()
    turns: int | None = None
    """Script: the version of its machine, which every turn increments."""


class Asked(Struct, frozen=True):
    """The requests of callers that were confirmed to them. None: not counted."""

    signals: tuple[str, ...] = ()
    """Ids; a signal sent several times is listed once."""
    pauses: int | None = None
    resumes: int | None = None


class History(Struct, frozen=True):
    """The data read of one execution. The row was read before the events."""

    execution: ExecutionView
    events: Sequence[Event]
    rows: Rows | None = None
    asked: Asked = Asked()
    others: Mapping[str, ExecutionView] | None = None
    """All executions of the store by id."""
    settled: bool = False
    """True if no message is outstanding: every child is started, every ending delivered."""


class _EventData(Struct, frozen=True):
    """The fields of an event's data that the rules read."""

    attempt: int = 1
    started_at: float | None = None
    error: dict[str, Any] | None = None
    signal: Any = None
    """The name of an awaited signal. Timer: True if it limits a wait for one."""
    execution: str | None = None
    detached: bool = False
    tags: dict[str, str | None] | None = None
    before: int | None = msgspec.field(default=None, name="from")
    to: int | None = None
    """Versions."""
    id: str | None = None
    decision: str = ""
    """The id of a person's decision."""


_decode = msgspec.json.Decoder(_EventData).decode
_NOTHING = _EventData()

Rule = Callable[["_Found"], Iterable[str]]


class _Found:
    """The events, indexed for the rules."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.execution = history.execution
        self.events = history.events
        self.by_kind: dict[EventKind, list[Event]] = defaultdict(list)
        self.ends: dict[str, list[Event]] = defaultdict(list)
        """By token."""
        self.retries: dict[str, list[Event]] = defaultdict(list)
        for event in history.events:
            self.by_kind[event.kind].append(event)
            if event.token is not None and event.kind in TOKEN_ENDS:
                self.ends[event.token].append(event)
            elif event.token is not None and event.kind in RETRIES:
                self.retries[event.token].append(event)

    def of(self, *kinds: EventKind) -> list[Event]:
        return [event for kind in kinds for event in self.by_kind[kind]]

    def tokens(self, *kinds: TokenKind) -> list[TokenFact]:
        rows = self.history.rows
        return [token for token in rows.tokens if token.kind in kinds] if rows is not None else []


def _data_of(event: Event) -> _EventData:
    return _decode(event.data) if event.data is not None else _NOTHING


def problems(history: History) -> list[str]:
    """Return every inconsistency of one history; none if it is exact."""
    return _broken((*ORDER, *RULES.values()), history)


def order_problems(history: History) -> list[str]:
    """Like `problems`, without the rules of single kinds: for histories that no engine wrote."""
    return _broken(ORDER, history)


def _broken(rules: Iterable[Rule], history: History) -> list[str]:
    found = _Found(history)
    sentences = [sentence for rule in rules for sentence in rule(found)]
    return [f"execution {history.execution.id}: {sentence}" for sentence in dict.fromkeys(sentences)]


# -- all kinds together ---------------------------------------------------------------------------------------


def _numbers(found: _Found) -> Iterator[str]:
    numbers = [event.seq for event in found.events]
    if numbers != list(range(1, len(numbers) + 1)):
        place = next(index for index, number in enumerate(numbers) if number != index + 1)
        yield f"event {place + 1} has the number {numbers[place]}: the history has a gap or a number twice"
    if len(numbers) < found.execution.seq:
        yield f"its row counts {found.execution.seq} events, but its history has {len(numbers)}"
    foreign = {event.execution for event in found.events} - {found.execution.id}
    if foreign:
        yield f"its history has events of {', '.join(sorted(foreign))}"


def _times(found: _Found) -> Iterator[str]:
    for before, after in pairwise(found.events):
        if after.at < before.at:
            yield (
                f"event {after.seq} ({after.kind}) is dated {before.at - after.at:.6f} s before event {before.seq}"
                f" ({before.kind})"
            )


def _nothing_after_the_end(found: _Found) -> Iterator[str]:
    endings = found.of(*ENDINGS)
    if not endings:
        return
    first = min(event.seq for event in endings)
    for event in found.events:
        if event.seq > first and event.kind not in AFTER_THE_END and event.kind not in ENDINGS:
            yield f"event {event.seq} ({event.kind}) comes after the end"


def _one_ending(found: _Found) -> Iterator[str]:
    endings, state = found.of(*ENDINGS), found.execution.state
    if len(endings) > 1:
        yield f"it has {len(endings)} endings: {', '.join(event.kind for event in endings)}"
    if state in ENDED and not endings:
        yield f"it is {state}, but its history has no ending"


ORDER: tuple[Rule, ...] = (_numbers, _times, _nothing_after_the_end, _one_ending)


# -- the execution itself -------------------------------------------------------------------------------------


def _submitted(found: _Found) -> Iterator[str]:
    submitted = found.of("ExecutionSubmitted")
    if len(submitted) > 1:
        yield f"it was submitted {len(submitted)} times"
    if submitted and submitted[0].seq != 1:
        yield f"it was submitted by event {submitted[0].seq}, not by the first one"


def _started(found: _Found) -> Iterator[str]:
    started, submitted = found.of("ExecutionStarted"), found.of("ExecutionSubmitted")
    if len(started) > 1:
        yield f"it was started {len(started)} times"
    if started and not submitted and started[0].seq != 1:
        yield f"it was started by event {started[0].seq}, not by the first one"
    if not started and not submitted:
        yield "its history has neither a start nor a submission"
    if not started and found.execution.state not in (*ENDED, "PENDING"):
        yield f"it is {found.execution.state}, but was never started"
    if started and found.execution.state == "PENDING":
        yield "it is PENDING, but was started"


def _ended(kind: EventKind) -> Rule:
    def rule(found: _Found) -> Iterator[str]:
        if found.of(kind) and found.execution.state != ENDINGS[kind]:
            yield f"its history says {kind}, but it is {found.execution.state}"

    return rule


def _paused(found: _Found) -> Iterator[str]:
    """Pauses and resumes alternate."""
    turns = sorted(found.of("ExecutionPaused", "ExecutionResumed"), key=lambda event: event.seq)
    for before, after in pairwise(turns):
        if before.kind == after.kind:
            yield f"event {after.seq} ({after.kind}) repeats event {before.seq}"
    is_paused = bool(turns) and turns[-1].kind == "ExecutionPaused"
    if found.execution.state not in ENDED and is_paused != (found.execution.state == "PAUSED"):
        yield f"it is {found.execution.state}, but its last pause {'goes on' if is_paused else 'has ended'}"
    pauses, asked = len(found.of("ExecutionPaused")), found.history.asked.pauses
    if asked is not None and pauses > asked:
        yield f"it was paused {pauses} times, but only {asked} pauses were asked for"


def _resumed(found: _Found) -> Iterator[str]:
    paused, resumed = found.of("ExecutionPaused"), found.of("ExecutionResumed")
    if resumed and (not paused or resumed[0].seq < paused[0].seq):
        yield f"event {resumed[0].seq} resumes it, but nothing had paused it"
    asked = found.history.asked.resumes
    if asked is not None and len(resumed) > asked + len(found.of("CancelRequested")):
        yield f"it was resumed {len(resumed)} times, but only {asked} resumes were asked for"


def _cancel_requested(found: _Found) -> Iterator[str]:
    requests = found.of("CancelRequested")
    if len(requests) > 1:
        yield f"it was asked to end {len(requests)} times"
    if requests and found.execution.kind not in SCRIPTED:
        yield f"it was asked to end, but a {found.execution.kind} has no clean-up"
    if requests and found.execution.state == "COMPLETED":
        yield "it was asked to end, but COMPLETED"


def _tags_changed(found: _Found) -> Iterator[str]:
    """Each change has an effect, and the last one left the tags that the execution has."""
    known: dict[str, str | None] = {}
    for event in found.of("TagsChanged"):
        changed = _data_of(event).tags or {}
        if all(name in known and known[name] == value for name, value in changed.items()):
            yield f"event {event.seq} changes no tag"
        known |= changed
    stored = dict(found.execution.tags)
    for name, value in known.items():
        if stored.get(name) != value:
            yield f"its history leaves tag {name!r} as {value!r}, but it has {stored.get(name)!r}"


def _version_changed(found: _Found) -> Iterator[str]:
    """Each change begins where the one before ended, and the last one is the version that the execution has."""
    version: int | None = None
    for event in found.of("VersionChanged"):
        data = _data_of(event)
        if data.before == data.to or (version is not None and data.before != version):
            yield f"event {event.seq} changes version {data.before} to {data.to}, after version {version}"
        version = data.to
    if version is not None and version != found.execution.version:
        yield f"its history leaves it with version {version}, but it has version {found.execution.version}"


def _log_written(found: _Found) -> Iterator[str]:
    for event in found.of("LogWritten"):
        yield f"event {event.seq} is a log line, which belongs to no history"


# -- tokens: runs, attempts, waits ----------------------------------------------------------------------------


def _one_end(kind: EventKind) -> Rule:
    """A token ended by an event of this kind is ended by no other event."""

    def rule(found: _Found) -> Iterator[str]:
        for event in found.of(kind):
            if event.token is None:
                yield f"event {event.seq} ({kind}) names no token"
            elif len(found.ends[event.token]) > 1:
                kinds = ", ".join(each.kind for each in found.ends[event.token])
                yield f"token {event.token} ({event.node}) ended {len(found.ends[event.token])} times: {kinds}"

    return rule


def _all(*rules: Rule) -> Rule:
    return lambda found: (sentence for rule in rules for sentence in rule(found))


def _as_stored(kinds: tuple[TokenKind, ...], ended: tuple[EventKind, ...], dropped: EventKind | None) -> Rule:
    """Tokens of these kinds that were consumed or dropped, or are still to run, have the corresponding events."""

    def rule(found: _Found) -> Iterator[str]:
        for token in found.tokens(*kinds):
            seen = [event.kind for event in found.ends[token.id]]
            if token.state == "consumed":
                if not any(kind in ended for kind in seen) and not _ended_unnoticed(found, token):
                    yield f"token {token.id} ({token.kind} {token.node}) was consumed, but no event says so"
            elif token.state == "cancelled":
                if dropped is not None and _is_noted(token) and seen != [dropped]:
                    yield f"token {token.id} ({token.kind} {token.node}) was dropped, but has the events {seen}"
            elif seen:
                yield f"token {token.id} ({token.kind} {token.node}) is {token.state}, but has the events {seen}"

    return rule


def _is_noted(token: TokenFact) -> bool:
    return token.live or token.kind == "task"


def _ended_unnoticed(found: _Found, token: TokenFact) -> bool:
    """Return True for tokens whose step is not a run, and those whose step ended the execution.

    The step is not a run for the join of a skipped node, and for a split that itself waited for its items.
    """
    if token.kind == "join":
        return any(
            (event.node, event.scope) == (token.node, token.scope)
            for event in found.of("NodeSkipped", *NODE_RUNS)
        )
    return token.kind == "task" and NOT_STORABLE in (found.execution.error or b"")


def _begun(kind: EventKind) -> Rule:
    """A run is shown as started once, and before its attempt is over."""

    def rule(found: _Found) -> Iterator[str]:
        shown: Counter[tuple[str | None, int, float | None]] = Counter()
        for event in found.of(kind):
            data = _data_of(event)
            shown[event.token, data.attempt, data.started_at] += 1
            over = [each for each in found.ends[event.token or ""] if each.seq < event.seq]
            over += [
                each
                for each in found.retries[event.token or ""]
                if each.seq < event.seq and _data_of(each).attempt >= data.attempt
            ]
            if over:
                yield (
                    f"event {event.seq} shows attempt {data.attempt} of token {event.token} ({event.node}) as started"
                    f" after event {over[0].seq} ({over[0].kind}) said that it is over"
                )
        for (token, attempt, _), count in shown.items():
            if count > 1:
                yield f"one run of attempt {attempt} of token {token} is shown as started {count} times"

    return rule


def _requeued(kind: EventKind) -> Rule:
    """A person's decision is applied once, and not after the end of the run."""

    def rule(found: _Found) -> Iterator[str]:
        seen: dict[str, int] = {}
        for event in found.of(kind):
            over = [each for each in found.ends[event.token or ""] if each.seq < event.seq]
            if over:
                yield (
                    f"event {event.seq} offers token {event.token} ({event.node}) again after event {over[0].seq}"
                    f" ({over[0].kind}) said that it is over"
                )
            decision = _data_of(event).decision
            if decision in seen:
                yield f"event {event.seq} ({kind}) repeats event {seen[decision]}"
            seen[decision] = event.seq

    return rule


def _retried(kind: EventKind, ended: tuple[EventKind, ...], token_kinds: tuple[TokenKind, ...]) -> Rule:
    """Attempts are counted from 1 without a gap, and the one that ends the token is the next."""

    def rule(found: _Found) -> Iterator[str]:
        tokens = dict.fromkeys(event.token for event in found.of(kind, *ended) if event.token is not None)
        reached = {
            token: _data_of(event).attempt
            for token in tokens
            for event in found.ends[token]
            if event.kind in ended
        }
        reached |= {row.id: row.attempt for row in found.tokens(*token_kinds)}
        for token in dict.fromkeys((*tokens, *reached)):
            attempts = [_data_of(event).attempt for event in found.retries[token] if event.kind == kind]
            first = _first_attempt(found, attempts, reached.get(token))
            if attempts != list(range(first, first + len(attempts))):
                yield f"token {token} is tried again after the attempts {attempts}"
            elif token in reached and reached[token] != first + len(attempts):
                yield f"token {token} is at attempt {reached[token]}, but was tried again after the attempts {attempts}"

    return rule


def _first_attempt(found: _Found, attempts: Sequence[int], reached: int | None) -> int:
    """Return the first attempt of this history.

    For a task that was handed over, earlier ones are in its script's history.
    """
    if found.execution.relation != "task":
        return 1
    return attempts[0] if attempts else reached or 1


def _waiting(found: _Found) -> Iterator[str]:
    """An attempt begins to wait once; it continues to wait after an arrival of no use.

    A barrier reports each arrival once: a join before the node runs, a split's items afterwards.
    """
    begun: Counter[tuple[str, int]] = Counter()
    arrivals: Counter[tuple[str, str, int, bool]] = Counter()
    first_runs: dict[tuple[str, str], int] = {}
    for event in found.of(*NODE_RUNS):
        place = event.node, event.scope
        first_runs[place] = min(event.seq, first_runs.get(place, event.seq))
    for event in found.of("NodeWaiting"):
        data = _data_of(event)
        if event.token is None:
            ran = first_runs.get((event.node, event.scope), event.seq) < event.seq
            arrivals[event.node, event.scope, event.arrived or 0, ran] += 1
            if event.arrived is None or event.expected is None or not 0 < event.arrived <= event.expected:
                yield f"event {event.seq} tells of {event.arrived} arrivals of {event.expected} at {event.node}"
        elif data.error is None:
            begun[event.token, data.attempt] += 1
    for (token, attempt), count in begun.items():
        if count > 1:
            yield f"attempt {attempt} of token {token} began to wait {count} times"
    visits = Counter((event.node, event.scope) for event in found.of(*NODE_RUNS, "NodeCancelled"))
    for (node, scope, arrived, _), count in arrivals.items():
        if count > max(visits[node, scope], 1):
            yield f"arrival {arrived} at {node} in scope '{scope}' is told {count} times"


def _skipped(found: _Found) -> Iterator[str]:
    """A node is skipped once in a scope, and not where it ran."""
    ran = {(event.node, event.scope) for event in found.of(*NODE_RUNS)}
    for (node, scope), count in Counter((e.node, e.scope) for e in found.of("NodeSkipped")).items():
        if count > 1:
            yield f"node {node} was skipped {count} times in scope '{scope}'"
        if (node, scope) in ran:
            yield f"node {node} was skipped and ran in scope '{scope}'"


def _dropped_arrivals(found: _Found) -> Iterator[str]:
    for (token, node), count in Counter((e.token, e.node) for e in found.of("ArrivalDropped")).items():
        if token is None:
            yield f"an arrival at {node} was dropped, but its event does not say whose"
        elif count > 1:
            yield f"the arrival of token {token} at {node} was dropped {count} times"


# -- scripts --------------------------------------------------------------------------------------------------


def _suspended(found: _Found) -> Iterator[str]:
    suspended = found.of("Suspended")
    if suspended and found.execution.kind not in SCRIPTED:
        yield f"it is a {found.execution.kind}, but its history says Suspended"
    turns = found.history.rows.turns if found.history.rows is not None else None
    if turns is not None and len(suspended) > turns:
        yield f"it was suspended {len(suspended)} times in {turns} turns"


def _handed_over(found: _Found) -> Iterator[str]:
    others = found.history.others
    named: set[str] = set()
    for event in found.of("TaskHandedOver"):
        name = task_execution_id(event.token or "")
        named.add(name)
        if _data_of(event).execution != name:
            yield f"event {event.seq} hands task {event.token} over to {_data_of(event).execution}, not to {name}"
        if others is not None and name not in others:
            yield f"event {event.seq} hands task {event.token} over, but there is no execution {name}"
    for other in _offspring(found, "task"):
        if other.id not in named:
            yield f"execution {other.id} is a task of it, but no event hands it over"


# -- other executions -----------------------------------------------------------------------------------------


def _offspring(found: _Found, relation: str) -> list[ExecutionView]:
    others = found.history.others or {}
    return [
        each for each in others.values() if each.parent == found.execution.id and each.relation == relation
    ]


def _child_started(found: _Found) -> Iterator[str]:
    started = Counter(_data_of(event).execution for event in found.of("ChildStarted"))
    for child, count in started.items():
        if child is None:
            yield "a ChildStarted event names no execution"
        elif count > 1:
            yield f"child {child} was started {count} times"
    others = found.history.others
    if others is None:
        return
    for child in started:
        other = others.get(child or "")
        if other is not None and other.parent != found.execution.id and not _is_taken_over(found, other):
            yield f"child {child} was started, but is one of {other.parent}"
        elif other is None and found.history.settled and not _may_be_missing(found, child, others):
            yield f"child {child} was started, but there is no such execution"
    for other in (*_offspring(found, "child"), *_offspring(found, "started")):
        if other.id not in started:
            yield f"execution {other.id} is a child of it, but no event says that it was started"


def _is_taken_over(found: _Found, other: ExecutionView) -> bool:
    """Return True for a task that an execution handed over, of which this one is a retry, perhaps by way of others."""
    others, view = found.history.others or {}, found.execution
    for _ in range(len(others)):
        if other.relation != "task" or view.relation not in ("retry", "child") or view.parent is None:
            return False
        if view.parent == other.parent:
            return True
        view = others.get(view.parent, view)
    return False


def _may_be_missing(found: _Found, child: str | None, others: Mapping[str, ExecutionView]) -> bool:
    """Return True if a child may be missing.

    It could not be started, which its ending reports, or it was not started because an ancestor had failed or was
    cancelled.
    """
    if any(_data_of(event).execution == child for event in found.of("ChildEnded")):
        return True
    above: ExecutionView | None = found.execution
    while above is not None:
        if above.state in ("FAILED", "CANCELLED"):
            return True
        above = others.get(above.parent or "")
    return False


def _child_ended(found: _Found) -> Iterator[str]:
    started = {_data_of(event).execution: event.seq for event in reversed(found.of("ChildStarted"))}
    ended: dict[str | None, list[Event]] = defaultdict(list)
    for event in found.of("ChildEnded"):
        ended[_data_of(event).execution].append(event)
    for child, events in ended.items():
        if len(events) > 1:
            yield f"child {child} ended {len(events)} times"
        if child not in started and not _data_of(events[0]).detached:
            yield f"child {child} ended, but no event says that it was started"
        elif started.get(child, 0) > events[0].seq:
            yield f"child {child} ended before it was started"
        yield from _ended_as(found, child, events[0])
    yield from _endings_missing(found, ended)


def _ended_as(found: _Found, child: str | None, event: Event) -> Iterator[str]:
    other = (found.history.others or {}).get(child or "")
    if other is None:
        return
    if other.state not in ENDED:
        yield f"event {event.seq} says that child {child} has ended, but it is {other.state}"
    elif (_data_of(event).error is None) != (other.state == "COMPLETED"):
        outcome = "without an error" if _data_of(event).error is None else "with an error"
        yield f"event {event.seq} says that child {child} ended {outcome}, but it is {other.state}"


def _endings_missing(found: _Found, ended: Mapping[str | None, Sequence[Event]]) -> Iterator[str]:
    """A completed node has seen the end of the child it waited for; a continuing execution receives every ending."""
    waited: dict[str, str | None] = {}
    for event in found.of("ChildStarted"):
        if event.token is not None and not _data_of(event).detached:
            waited[event.token] = _data_of(event).execution
    for token, child in waited.items():
        done = [event for event in found.ends[token] if event.kind == "NodeCompleted"]
        if done and not any(event.seq < done[0].seq for event in ended.get(child, ())):
            yield f"token {token} ({done[0].node}) completed, but no event before says that child {child} has ended"
    if found.execution.state in ENDED or not found.history.settled:
        return
    for other in _offspring(found, "child"):
        if other.state in ENDED and other.id not in ended:
            yield f"child {other.id} is {other.state}, but no event says that it has ended"


def _signals(found: _Found) -> Iterator[str]:
    received = found.of("SignalReceived")
    ids = Counter(name for event in received if (name := _data_of(event).id) is not None)
    for name, count in ids.items():
        if count > 1:
            yield f"signal {name!r} was received {count} times"
    for name in found.history.asked.signals:
        if name not in ids:
            yield f"signal {name!r} was accepted, but no event says that it was received"
    yield from _stored_signals(found, {event.seq: event for event in received})
    yield from _consumed_signals(found, Counter(event.node for event in received))


def _stored_signals(found: _Found, received: Mapping[int, Event]) -> Iterator[str]:
    rows = found.history.rows
    if rows is None:
        return
    requests = {event.seq: event for event in found.of("RequestReceived")}
    for signal in rows.signals:
        name = request_in(signal.name)
        event = (received if name is None else requests).get(signal.number)
        if event is None or event.node != (signal.name if name is None else name):
            yield f"signal {signal.id!r} ({signal.name}) is stored, but event {signal.number} does not say so"
    for number, count in Counter(signal.number for signal in rows.signals).items():
        if count > 1:
            yield f"{count} signals are stored for event {number}"


def _consumed_signals(found: _Found, received: Mapping[str, int]) -> Iterator[str]:
    """Each node or question that waited for a signal and continued took one signal."""
    waited = {
        event.token: name for event in found.of("NodeWaiting") if (name := _data_of(event).signal) is not None
    }
    done = Counter(
        name
        for token, name in waited.items()
        if any(event.kind in ("NodeCompleted", "TaskCompleted") for event in found.ends[token or ""])
    )
    for name, count in done.items():
        if count > received.get(name, 0):
            yield f"{count} waits for signal '{name}' went on, but {received.get(name, 0)} were received"


def _requests(found: _Found, kind: EventKind = "RequestReceived", done: str = "received") -> Iterator[str]:
    for name, count in Counter(_data_of(event).id for event in found.of(kind)).items():
        if count > 1:
            yield f"request {name!r} was {done} {count} times"


def _answers(found: _Found) -> Iterator[str]:
    received = {_data_of(event).id: event.seq for event in found.of("RequestReceived")}
    for event in found.of("RequestAnswered"):
        if received.get(name := _data_of(event).id, event.seq) >= event.seq:
            yield f"request {name!r} was answered, but no event before says that it was received"
    yield from _requests(found, "RequestAnswered", "answered")


RULES: dict[EventKind, Rule] = {
    "ExecutionSubmitted": _submitted,
    "ExecutionStarted": _started,
    "ExecutionPaused": _paused,
    "ExecutionResumed": _resumed,
    "ExecutionCompleted": _ended("ExecutionCompleted"),
    "ExecutionFailed": _ended("ExecutionFailed"),
    "ExecutionCancelled": _ended("ExecutionCancelled"),
    "NodeStarted": _begun("NodeStarted"),
    "NodeCompleted": _all(
        _one_end("NodeCompleted"), _as_stored(("node", "join"), NODE_RUNS, "NodeCancelled")
    ),
    "NodeFailed": _one_end("NodeFailed"),
    "NodeRetrying": _retried("NodeRetrying", NODE_RUNS, ("node",)),
    "NodeRequeued": _requeued("NodeRequeued"),
    "NodeWaiting": _waiting,
    "NodeSkipped": _skipped,
    "NodeCancelled": _one_end("NodeCancelled"),
    "ArrivalDropped": _dropped_arrivals,
    "Suspended": _suspended,
    "TaskStarted": _begun("TaskStarted"),
    "TaskCompleted": _all(_one_end("TaskCompleted"), _as_stored(("task",), TASK_RUNS, "TaskCancelled")),
    "TaskFailed": _one_end("TaskFailed"),
    "TaskRetrying": _retried("TaskRetrying", TASK_RUNS, ("task",)),
    "TaskRequeued": _requeued("TaskRequeued"),
    "TaskCancelled": _one_end("TaskCancelled"),
    "TaskHandedOver": _all(_one_end("TaskHandedOver"), _handed_over),
    "TimerFired": _all(_one_end("TimerFired"), _as_stored(("timer",), ("TimerFired",), None)),
    "SignalReceived": _signals,
    "RequestReceived": _requests,
    "RequestAnswered": _answers,
    "ChildStarted": _child_started,
    "ChildEnded": _child_ended,
    "TagsChanged": _tags_changed,
    "VersionChanged": _version_changed,
    "CancelRequested": _cancel_requested,
    "LogWritten": _log_written,
}
"""The rules of each kind of event."""
