"""Statuses and completions of graphs, published from the history.

- A durable mark per execution says how far the broker has confirmed. What is not confirmed is published again from
  there, with the same ids, by whichever process claims the mark next.
- One process publishes an execution at a time, so its messages leave in the order of its history.
- The completion leaves once every earlier status is confirmed. What the ending called off is in the history only after
  the sweep, which is asked for at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Raw

from dalsegno.core.graph.token_body import BLOB, OUTPUT, Body, reference
from dalsegno.core.trace_ids import traceparent
from dalsegno.core.wire.adoption import WORKFLOW_ID
from dalsegno.core.wire.statuses import (
    INLINE,
    Completion,
    Names,
    Status,
    Statuses,
    completion_body,
    is_told_at_the_end,
    names_of,
    status_body,
    value_reference,
)
from dalsegno.engine.committer import Outage
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.tracing import TRACEPARENT
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.definition import is_adopted_name
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.messages import News, OutgoingMessage, Publications, Publisher

logger = logging.getLogger("dalsegno.wire")

SCAN_EVERY = 5.0
"""Seconds between two looks for executions that a crash left, or another process changed."""
AGAIN_AFTER = 5.0
"""Seconds after which what the broker did not confirm is published again."""
HELD_PAUSE, LONGEST_PAUSE = 0.02, 0.3
"""Seconds after which an execution that another process publishes is tried again, doubled each time."""
CLAIM_SECONDS = 10.0
"""Time after which another process may publish an execution that this one has claimed."""
AT_ONCE = 200
"""Executions per round."""
MOST_MESSAGES = 1_000
"""Messages of one execution per round: a long history does not hold up the others."""
PAGE = 1_000
LOOKED_AT = 20_000
"""Marks that one look reads at most: its cost does not grow with the number of executions that only wait."""
MOST_NOTED = 100_000
"""Executions that are noted to be published."""
KEPT = 10_000
"""Executions whose folded history is kept in memory."""
HIGHEST_PRIORITY = 10


@dataclass(slots=True)
class Followed:
    """An execution whose statuses this process makes."""

    execution: str
    statuses: Statuses
    names: Names
    priority: int
    headers: Mapping[str, str]
    unsent: list[Status] = field(default_factory=list)
    """Made and not confirmed, in order."""
    sent: int = 0
    """Number of the last event of which every status is confirmed."""


@dataclass(slots=True)
class Parcel:
    """The messages of one execution in a round."""

    execution: str
    followed: Followed | None = None
    statuses: list[Status] = field(default_factory=list)
    messages: list[OutgoingMessage] = field(default_factory=list)
    completion: OutgoingMessage | None = None
    confirmed: int = 0
    """How many of the statuses, from the first on, the broker has confirmed."""
    again: float | None = None
    """Seconds after which there is more to do, although everything here is confirmed."""
    is_gone: bool = False
    """The execution is not stored, or is no graph: nothing will be published."""

    @property
    def is_confirmed(self) -> bool:
        return self.confirmed == len(self.messages)


class Publishing:
    """A role of the engine. ``notice`` is called with every execution that has new events."""

    def __init__(
        self, stored: StoredExecutions, publisher: Publisher, publications: Publications, owner: str
    ) -> None:
        self.stored = stored
        self.publisher = publisher
        self.publications = publications
        self.owner = owner
        self.outage = Outage()
        self.unconfirmed = 0
        """Messages published by this process that the broker has not confirmed yet."""
        self._due: dict[str, float] = {}
        """Executions with work to do, and when."""
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._held: dict[str, float] = {}
        """Executions that another process publishes, and how long the last pause was."""
        self._wake = asyncio.Event()
        self._is_busy = False
        self._next_scan = 0.0
        self._cursor = ""
        publisher.on_ready(self._ready_again)

    @property
    def ledger(self) -> Ledger:
        return self.stored.stack.ledger

    def notice(self, execution: str) -> None:
        """Note that the execution has new events. While the broker is away, the next look finds what is not noted."""
        if len(self._due) < MOST_NOTED or execution in self._due:
            self._due[execution] = 0.0
        self._wake.set()

    def _ready_again(self) -> None:
        """Publish at once what waits for the broker."""
        for execution in self._due:
            self._due[execution] = 0.0
        self._wake.set()

    async def run(self) -> None:
        self._next_scan = 0.0
        clock = asyncio.get_running_loop().time
        while True:
            if not self.publisher.ready():
                await self._sleep(SCAN_EVERY)
                continue
            if clock() >= self._next_scan:
                await self._scan()
                self._next_scan = clock() + SCAN_EVERY
            now = clock()
            due = [execution for execution, at in self._due.items() if at <= now][:AT_ONCE]
            if due:
                await self._round(due)
                continue
            at = min([self._next_scan, *self._due.values()])
            await self._sleep(max(at - clock(), 0.0))

    async def drain(self, seconds: float) -> None:
        """Publish what is known here, for so many seconds at most; the rest is published by other processes."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (self._due or self._is_busy) and self.publisher.ready() and clock() < until:  # noqa: ASYNC110 - limited in time
            await asyncio.sleep(HELD_PAUSE)

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _scan(self) -> None:
        """Find executions with events that nobody here was told of. The next look continues where this one stopped."""
        looked = 0
        while looked < LOOKED_AT and len(self._due) < MOST_NOTED:
            found = await self.publications.unfinished(self._cursor, PAGE)
            for execution in found.executions:
                self._due.setdefault(execution, 0.0)
            looked += PAGE
            self._cursor = found.after
            if not found.after:
                return

    # -- one round --------------------------------------------------------------------------------------------

    async def _round(self, executions: Sequence[str]) -> None:
        """Publish what is new in these executions, all with one claim and one confirmation."""
        for execution in executions:
            self._due.pop(execution, None)
        self._is_busy = True
        try:
            await self._publish_claimed(executions)
        except BaseException:
            for execution in executions:
                self._postpone(execution, HELD_PAUSE)
            raise
        finally:
            self._is_busy = False

    async def _publish_claimed(self, executions: Sequence[str]) -> None:
        claims = await self.publications.claim(self.owner, executions, CLAIM_SECONDS)
        for execution in claims.held:
            pause = self._held[execution] = min(2 * self._held.get(execution, HELD_PAUSE / 2), LONGEST_PAUSE)
            self._postpone(execution, pause)
        for execution in executions:
            if execution not in claims.held:
                self._held.pop(execution, None)
            if execution not in claims.marks and execution not in claims.held:
                self._followed.pop(execution, None)
        if not claims.marks:
            return
        known = {name: self._followed.get(name) for name in claims.marks}
        after = {name: found.statuses.seq if found is not None else 0 for name, found in known.items()}
        news = await self.publications.news(after, PAGE)
        made = await asyncio.gather(
            *(self._parcel(name, mark, news.get(name)) for name, mark in claims.marks.items())
        )
        confirmed = await self._publish([message for parcel in made for message in parcel.messages])
        for parcel in made:
            parcel.confirmed = min(len(parcel.messages), confirmed)
            confirmed -= parcel.confirmed
        ending = [parcel for parcel in made if parcel.is_confirmed and parcel.completion is not None]
        ended = await self._publish([parcel.completion for parcel in ending if parcel.completion is not None])
        await self._confirm(made, {parcel.execution for parcel in ending[:ended]})

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> int:
        if not messages:
            return 0
        self.unconfirmed = len(messages)
        confirmed = await self.publisher.publish(messages)
        self.unconfirmed = len(messages) - confirmed
        return confirmed

    async def _confirm(self, parcels: Sequence[Parcel], ended: set[str]) -> None:
        """Move the marks behind what the broker has confirmed, and note what is to be done again."""
        marks: dict[str, int] = {}
        for parcel in parcels:
            execution = parcel.execution
            if parcel.is_gone:
                ended.add(execution)
            if execution in ended:
                self._followed.pop(execution, None)
                continue
            marks[execution] = 0
            if parcel.followed is None:
                continue
            marks[execution] = _confirmed(parcel.followed, parcel.statuses, parcel.confirmed)
            if not parcel.is_confirmed or parcel.completion is not None:
                self._postpone(execution, AGAIN_AFTER)
            elif parcel.again is not None:
                self._postpone(execution, parcel.again)
        await self.publications.confirm(self.owner, marks, ended)

    async def _parcel(self, execution: str, mark: int, news: News | None) -> Parcel:
        parcel = Parcel(execution, is_gone=news is None or news.kind != "graph")
        if news is None or parcel.is_gone:
            return parcel
        try:
            await self._fill(parcel, mark, news)
        except OperatorError:
            raise
        except DalSegnoError:
            logger.exception("cannot make the statuses of execution %s", execution)
            self._followed.pop(execution, None)
            self._postpone(execution, AGAIN_AFTER)
        return parcel

    def _postpone(self, execution: str, seconds: float) -> None:
        self._due.setdefault(execution, asyncio.get_running_loop().time() + seconds)

    async def _fill(self, parcel: Parcel, mark: int, news: News) -> None:
        followed = await self._follow(parcel.execution, mark, news)
        for event in news.events:
            made = followed.statuses.add(event)
            if event.seq > followed.sent:
                followed.unsent += made
        followed.names = names_of(followed.statuses, parcel.execution, _workflow_id(news))
        parcel.statuses = followed.unsent[:MOST_MESSAGES]
        parcel.messages = [await self._message(followed, status) for status in parcel.statuses]
        if len(news.events) >= PAGE or len(followed.unsent) > MOST_MESSAGES:
            parcel.again = 0.0
        elif news.is_told:
            completion = followed.statuses.completion()
            if completion is not None:
                parcel.completion = await self._completion_message(followed, completion, news)
        elif followed.statuses.ending is not None:
            await self.ledger.sweep()  # it records what the ending called off
            parcel.again = HELD_PAUSE
        parcel.followed = followed

    async def _follow(self, execution: str, mark: int, news: News) -> Followed:
        """Return the folded history. What another process has published of it meanwhile is passed over."""
        known = self._followed.get(execution)
        if known is None:
            program = await self.stored.definitions.by_hash(news.definition)
            statuses = Statuses(program.plan)
            names = names_of(statuses, execution, news.workflow)
            priority = max(0, min(news.priority, HIGHEST_PRIORITY))
            known = Followed(execution, statuses, names, priority, _trace_of(execution))
            self._followed[execution] = known
            while len(self._followed) > KEPT:
                self._followed.popitem(last=False)
        self._followed.move_to_end(execution)
        known.sent = mark
        known.unsent = [status for status in known.unsent if status.number > mark]
        return known

    # -- messages ---------------------------------------------------------------------------------------------

    async def _message(self, followed: Followed, status: Status) -> OutgoingMessage:
        output = status.output
        if status.output_ref is not None:
            output = await self._value(followed, status.output_ref)
        body = status_body(followed.names, followed.statuses, status, output)
        return OutgoingMessage(
            "status", status.id(followed.execution), body, followed.priority, followed.headers
        )

    async def _completion_message(
        self, followed: Followed, completion: Completion, news: News
    ) -> OutgoingMessage:
        execution, statuses = followed.execution, followed.statuses
        context: dict[str, Raw] = {}
        keys = frozenset(statuses.keys)
        for key, read in (await self.stored.readers_of(execution, news.state, news.context)).items():
            if is_told_at_the_end(key, statuses.plan, keys):
                context[key] = self._inline(execution, f"{execution}/{key}", bytes(await read()))
        body = completion_body(followed.names, completion, context)
        return OutgoingMessage(
            "completion", completion.id(execution), body, followed.priority, followed.headers
        )

    async def _value(self, followed: Followed, ref: str) -> Raw:
        """Return a stored output, or a reference to it if it is large."""
        kind, _, name = ref.partition(":")
        entry = reference(BLOB if kind == "blob" else OUTPUT, name)
        raw = await self.stored.loader.raw(followed.execution, Body(), entry)
        return self._inline(followed.execution, name, bytes(raw))

    def _inline(self, execution: str, id: str, raw: bytes) -> Raw:
        return Raw(raw) if len(raw) <= INLINE else value_reference(id, f"/v1/executions/{execution}/results")


def has_news(transition: Transition, applied: Applied) -> bool:
    """Return True if a commit may have changed what is published of its execution. Commands from outside are few."""
    if transition.token is None or applied.ended is not None:
        return True
    return any(event.kind.startswith("Node") for event in transition.events)


def _confirmed(followed: Followed, statuses: Sequence[Status], count: int) -> int:
    """Drop what is confirmed; return the number of the last event of which every status is."""
    followed.unsent = followed.unsent[count:]
    if count == len(statuses):
        nothing_left = not followed.unsent
        followed.sent = followed.statuses.seq if nothing_left else _before(followed.unsent)
    else:
        followed.sent = max(followed.sent, _before(statuses[count:]))
    return followed.sent


def _trace_of(execution: str) -> Mapping[str, str]:
    """Return the headers that join readers' spans to the trace of the execution."""
    return {TRACEPARENT: traceparent(execution)}


def _workflow_id(news: News) -> str:
    """Return the name under which an execution is told that no message has started: a rerun keeps the tags."""
    return (
        dict(news.tags).get(WORKFLOW_ID, news.workflow) if is_adopted_name(news.workflow) else news.workflow
    )


def _before(statuses: Iterable[Status]) -> int:
    """Return the number of the event before the first of these statuses."""
    return next(iter(statuses)).number - 1
