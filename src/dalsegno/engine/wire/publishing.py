"""Statuses and completions of graphs, published from the history.

- A durable mark per execution says how far the broker has confirmed. What is not confirmed is published again from
  there, with the same ids, by whichever process claims the mark next.
- One process publishes an execution at a time, so its messages leave in the order of its history.
- A process that runs all steps alone claims what it starts in the commit of the start, keeps what it has claimed, and
  publishes each of its commits at once, before what the commit makes ready is announced. Everything else is published
  in rounds, from the stored history.
- The completion leaves once every earlier status is confirmed. What the ending called off is in the history only after
  the sweep, which is asked for at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from msgspec import Raw

from dalsegno.core.graph.step_input import BLOB, OUTPUT, Body, reference
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
from dalsegno.engine.wire.followed import Followed, Sent
from dalsegno.errors import DalSegnoError, OperatorError
from dalsegno.model.definition import is_adopted_name
from dalsegno.model.effect import CreateExecution
from dalsegno.model.event import Event
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import traceparent
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.messages import Claims, News, OutgoingMessage, Publications, Publisher

logger = logging.getLogger("dalsegno.wire")

SCAN_EVERY = 5.0
"""Seconds between two looks for executions that a crash left, or another process changed."""
AGAIN_AFTER = 5.0
"""Seconds after which what the broker did not confirm is published again."""
HELD_PAUSE, LONGEST_PAUSE = 0.02, 0.3
"""Seconds after which an execution that another process publishes is tried again, doubled each time."""
CLAIM_SECONDS = 10.0
"""Time after which another process may publish an execution that this one has claimed."""
GATHER = 0.03
"""Seconds for which changes gather after a round. One that comes while nothing was published leaves at once."""
SPACED, LONGEST_SPACE = 2.0, 0.25
"""Time between two rounds of an execution that has not ended: so many times what the last round took, and at most so
many seconds. Under load a round then carries several steps of each execution.
"""
LOOK_EVERY = 0.25
"""Seconds between two looks at the executions that a process has kept: others may have changed them, too."""
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
    is_unswept: bool = False
    """The ending may have called off what the history does not tell yet."""
    is_gone: bool = False
    """The execution is not stored, or is no graph: nothing will be published."""

    @property
    def is_confirmed(self) -> bool:
        return self.confirmed == len(self.messages)


class Publishing:
    """A role of the engine. ``committed`` is called with every commit of this process, and ``notice`` with every
    execution that has new events besides.
    """

    def __init__(
        self,
        stored: StoredExecutions,
        publisher: Publisher,
        publications: Publications,
        owner: str,
        works_alone: Callable[[], Awaitable[bool]],
    ) -> None:
        self.stored = stored
        self.publisher = publisher
        self.publications = publications
        self.owner = owner
        self.outage = Outage()
        self.works_alone = works_alone
        """Returns whether this process runs the steps of all executions."""
        self._due: dict[str, float] = {}
        """Executions with work to do, and when."""
        self._followed: OrderedDict[str, Followed] = OrderedDict()
        self._kept: dict[str, Followed] = {}
        """Those that are claimed, and whose commits are published at once."""
        self._may_keep = False
        self._in_round: frozenset[str] = frozenset()
        self._held: dict[str, float] = {}
        """Executions that another process publishes, and how long the last pause was."""
        self._space = 0.0
        """Seconds between two rounds of an execution."""
        self._wake = asyncio.Event()
        self._next_scan = self._next_look = 0.0
        self._cursor = ""
        publisher.on_ready(self._ready_again)

    @property
    def ledger(self) -> Ledger:
        return self.stored.stack.ledger

    @property
    def waiting(self) -> int:
        """Number of executions that this process has something to publish of."""
        return len(self._due)

    def notice(self, execution: str, *, has_ended: bool = True) -> None:
        """Note that the execution has new events. While the broker is away, the next look finds what is not noted.

        ``has_ended``: it may have; its messages need not wait for further ones.
        """
        if execution in self._held:
            self._due.setdefault(execution, 0.0)
        elif len(self._due) < MOST_NOTED or execution in self._due:
            followed = self._followed.get(execution) if not has_ended else None
            at = followed.round_at + self._space if followed is not None else 0.0
            self._due[execution] = min(self._due.get(execution, inf), at)
        self._wake.set()

    def publisher_of(self, created: CreateExecution) -> tuple[str | None, float | None]:
        """Return this process and a time if it publishes an execution from its start: no claim is needed then."""
        if not self._may_keep or created.pending or len(self._kept) >= KEPT or not self.publisher.ready():
            return None, None
        if self.stored.definitions.known(created.execution.definition) is None:
            return None, None
        return self.owner, created.execution.created_at + CLAIM_SECONDS

    def committed(self, transition: Transition, applied: Applied) -> None:
        """Publish what a commit of this process has changed: at once, or with the next round."""
        first = transition.effects[0] if transition.effects else None
        if type(first) is CreateExecution and first.execution.publisher == self.owner:
            self._keep_from_its_start(first.execution)
        followed = self._kept.get(transition.execution)
        if followed is not None:
            try:
                if self._publish_at_once(followed, applied.events(transition.execution)):
                    return
            except Exception:
                logger.exception("cannot make the statuses of execution %s", transition.execution)
                self._forget(transition.execution)
        if has_news(transition, applied):
            self.notice(transition.execution, has_ended=applied.ended is not None)

    def _keep_from_its_start(self, new: NewExecution) -> None:
        program = self.stored.definitions.known(new.definition)
        if program is None or new.published_until is None or len(self._kept) >= KEPT:
            return
        statuses = Statuses(program.plan)
        names = names_of(statuses, new.id, workflow_id(new.workflow, new.tags))
        followed = self._remember(new.id, statuses, names, new.priority)
        left = new.published_until - self.ledger.now()
        self._keep(followed, asyncio.get_running_loop().time() + left - CLAIM_SECONDS)

    def _publish_at_once(self, followed: Followed, events: Sequence[Event]) -> bool:
        """Publish the events of a commit; return False if there is more to do."""
        now = asyncio.get_running_loop().time()
        is_free = followed.execution not in self._in_round and now < followed.claimed_until
        if not is_free or not followed.goes_on_with(events) or not self.publisher.ready():
            return False
        followed.changed_at = now
        followed.add(events)
        if not followed.may_be_sent():
            return False
        if followed.unsent:
            sent = followed.send()
            messages = [_status_message(followed, status, status.output) for status in sent.statuses]
            self.publisher.publish(messages, partial(self._answered, followed, sent))
        return followed.statuses.ending is None  # a round publishes the completion once these are confirmed

    def _answered(self, followed: Followed, sent: Sent, confirmed: int) -> None:
        execution = followed.execution
        if not followed.answered(sent, confirmed):
            followed.claimed_until = 0.0
            self._due[execution] = asyncio.get_running_loop().time() + AGAIN_AFTER
        if not followed.on_their_way and execution in self._due:
            self._wake.set()

    def _forget(self, execution: str) -> None:
        self._followed.pop(execution, None)
        self._kept.pop(execution, None)

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
                await self._give_up([name for name in self._kept if self._is_settled(name)])
                await self._sleep(SCAN_EVERY)
                continue
            if clock() >= self._next_scan:
                self._may_keep = await self.works_alone()
                await self._scan()
                self._next_scan = clock() + SCAN_EVERY
            if clock() >= self._next_look:
                await self._look_at_kept()
                self._next_look = clock() + LOOK_EVERY
            now = clock()
            due = [
                execution for execution, at in self._due.items() if at <= now and self._is_settled(execution)
            ]
            if due:
                await self._round(due[:AT_ONCE])
                if len(due) < AT_ONCE:
                    await asyncio.sleep(GATHER)
                continue
            at = min([at for execution, at in self._due.items() if self._is_settled(execution)], default=inf)
            at = min(at, self._next_scan, self._next_look if self._kept else inf)
            await self._sleep(max(at - clock(), 0.0))

    async def drain(self, seconds: float) -> None:
        """Publish what is known here, for so many seconds at most; the rest is published by other processes."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while (self._due or self._in_round) and self.publisher.ready() and clock() < until:  # noqa: ASYNC110 - limited in time
            await asyncio.sleep(HELD_PAUSE)
        self._may_keep = False
        while any(each.on_their_way for each in self._kept.values()) and clock() < until:  # noqa: ASYNC110 - the same
            await asyncio.sleep(HELD_PAUSE)
        try:
            await self._give_up(list(self._kept))
        except OperatorError as error:
            logger.debug("what is not given up expires: %s", error)

    def _is_settled(self, execution: str) -> bool:
        """Return True if the broker has answered everything that was published of an execution."""
        followed = self._kept.get(execution)
        return followed is None or not followed.on_their_way

    async def _look_at_kept(self) -> None:
        """Note what others have changed, and let others publish what does not change any more: how far it is
        published is stored with that.
        """
        now = asyncio.get_running_loop().time()
        settled = {name: followed for name, followed in self._kept.items() if not followed.on_their_way}
        over = [name for name, each in settled.items() if not self._may_keep or now >= each.claimed_until]
        await self._give_up(over)
        quiet = [
            name
            for name, each in settled.items()
            if name in self._kept and name not in self._due and each.changed_at <= now - LOOK_EVERY
        ]
        last = await self.publications.last_events(quiet) if quiet else {}
        for name in quiet:
            if name in self._kept and last.get(name) != self._kept[name].statuses.seq:
                self._due.setdefault(name, 0.0)

    async def _give_up(self, executions: Sequence[str]) -> None:
        marks = {execution: self._kept.pop(execution).confirmed for execution in executions}
        if marks:
            await self.publications.confirm(self.owner, marks)

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _scan(self) -> None:
        """Find executions with events unknown to this process. The next look continues where this one stopped."""
        looked = 0
        while looked < LOOKED_AT and len(self._due) < MOST_NOTED:
            found = await self.publications.unfinished(self._cursor, PAGE)
            for execution in found.executions:
                if execution not in self._kept:  # those are looked at more often
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
        self._in_round = frozenset(executions)
        try:
            await self._publish_claimed(executions)
        except BaseException:
            for execution in executions:
                self._kept.pop(execution, None)
                self._postpone(execution, HELD_PAUSE)
            raise
        finally:
            self._in_round = frozenset()

    async def _publish_claimed(self, executions: Sequence[str]) -> None:
        since = asyncio.get_running_loop().time()
        claims = await self._claim(executions)
        for execution in claims.held:
            pause = self._held[execution] = min(2 * self._held.get(execution, HELD_PAUSE / 2), LONGEST_PAUSE)
            self._postpone(execution, pause)
        for execution in executions:
            if execution not in claims.held:
                self._held.pop(execution, None)
            if execution not in claims.marks and execution not in claims.held:
                self._forget(execution)
        if not claims.marks:
            return
        known = {name: self._followed.get(name) for name in claims.marks}
        after = {name: found.statuses.seq if found is not None else 0 for name, found in known.items()}
        news = await self.publications.news(after, PAGE)
        made = [await self._parcel(name, mark, news.get(name)) for name, mark in claims.marks.items()]
        if any(parcel.is_unswept for parcel in made):
            await self.ledger.sweep()  # it records what the endings called off
        confirmed = await self._publish([message for parcel in made for message in parcel.messages])
        for parcel in made:
            parcel.confirmed = min(len(parcel.messages), confirmed)
            confirmed -= parcel.confirmed
        ending = [parcel for parcel in made if parcel.is_confirmed and parcel.completion is not None]
        ended = await self._publish([parcel.completion for parcel in ending if parcel.completion is not None])
        await self._confirm(made, {parcel.execution for parcel in ending[:ended]}, since)
        self._note_round(made, since)

    def _note_round(self, parcels: Sequence[Parcel], since: float) -> None:
        now = asyncio.get_running_loop().time()
        self._space = min(SPACED * (now - since), LONGEST_SPACE)
        for parcel in parcels:
            if parcel.followed is not None:
                parcel.followed.round_at = now

    async def _claim(self, executions: Sequence[str]) -> Claims:
        """Claim those that this process has not kept."""
        now = asyncio.get_running_loop().time()
        kept = {
            execution: self._kept[execution]
            for execution in executions
            if execution in self._kept and now < self._kept[execution].claimed_until
        }
        others = [execution for execution in executions if execution not in kept]
        claims = Claims({}, set())
        if others:
            claims = await self.publications.claim(self.owner, others, CLAIM_SECONDS)
        for execution in others:
            self._kept.pop(execution, None)
        claims.marks |= {execution: followed.confirmed for execution, followed in kept.items()}
        return claims

    async def _publish(self, messages: Sequence[OutgoingMessage]) -> int:
        if not messages:
            return 0
        confirmed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.publisher.publish(
            messages, lambda count: None if confirmed.done() else confirmed.set_result(count)
        )
        return await confirmed

    async def _confirm(self, parcels: Sequence[Parcel], ended: set[str], since: float) -> None:
        """Keep what can be published at once from now on. Of the others move the marks behind what the broker has
        confirmed, and note what is to be done again.
        """
        marks: dict[str, int] = {}
        for parcel in parcels:
            execution = parcel.execution
            if parcel.is_gone:
                ended.add(execution)
            if execution in ended:
                self._forget(execution)
                continue
            followed = parcel.followed
            if followed is not None:
                followed.drop(parcel.statuses, parcel.confirmed)
                if not parcel.is_confirmed or parcel.completion is not None:
                    self._postpone(execution, AGAIN_AFTER)
                elif parcel.again is not None:
                    self._postpone(execution, parcel.again)
                elif self._keep(followed, since):
                    continue
            self._kept.pop(execution, None)
            marks[execution] = followed.confirmed if followed is not None else 0
        if marks or ended:
            await self.publications.confirm(self.owner, marks, ended)

    def _keep(self, followed: Followed, since: float) -> bool:
        """Keep an execution that was claimed at ``since`` or before; return False if that is not possible."""
        if followed.execution not in self._kept:
            if not self._may_keep or len(self._kept) >= KEPT or followed.statuses.ending is not None:
                return False
            followed.claimed_until = since + CLAIM_SECONDS / 2
            followed.changed_at = asyncio.get_running_loop().time()
            self._kept[followed.execution] = followed
        return True

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
            self._forget(execution)
            self._postpone(execution, AGAIN_AFTER)
        return parcel

    def _postpone(self, execution: str, seconds: float) -> None:
        self._due.setdefault(execution, asyncio.get_running_loop().time() + seconds)

    async def _fill(self, parcel: Parcel, mark: int, news: News) -> None:
        followed = await self._follow(parcel.execution, mark, news)
        followed.add(news.events)
        parcel.statuses = followed.unsent[:MOST_MESSAGES]
        parcel.messages = [await self._message(followed, status) for status in parcel.statuses]
        if len(news.events) >= PAGE or len(followed.unsent) > MOST_MESSAGES:
            parcel.again = 0.0
        elif news.is_told:
            completion = followed.statuses.completion()
            if completion is not None:
                parcel.completion = await self._completion_message(followed, completion, news)
        elif followed.statuses.ending is not None:
            parcel.is_unswept = True
            parcel.again = HELD_PAUSE
        parcel.followed = followed

    async def _follow(self, execution: str, mark: int, news: News) -> Followed:
        """Return the folded history. What another process has published of it meanwhile is passed over."""
        known = self._followed.get(execution)
        if known is None:
            program = await self.stored.definitions.by_hash(news.definition)
            statuses = Statuses(program.plan)
            names = names_of(statuses, execution, workflow_id(news.workflow, news.tags))
            known = self._remember(execution, statuses, names, news.priority)
        self._followed.move_to_end(execution)
        known.continue_from(mark)
        return known

    def _remember(self, execution: str, statuses: Statuses, names: Names, priority: int) -> Followed:
        priority = max(0, min(priority, HIGHEST_PRIORITY))
        followed = Followed(execution, statuses, names, priority, traceparent(execution))
        self._followed[execution] = followed
        while len(self._followed) > KEPT:
            self._kept.pop(self._followed.popitem(last=False)[0], None)
        return followed

    # -- messages ---------------------------------------------------------------------------------------------

    async def _message(self, followed: Followed, status: Status) -> OutgoingMessage:
        output = status.output
        if status.output_ref is not None:
            output = await self._value(followed, status.output_ref)
        return _status_message(followed, status, output)

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
            "completion", completion.id(execution), body, followed.priority, followed.traceparent
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


def _status_message(followed: Followed, status: Status, output: Raw | None) -> OutgoingMessage:
    body = status_body(followed.names, followed.statuses, status, output)
    return OutgoingMessage(
        "status", status.id(followed.execution), body, followed.priority, followed.traceparent
    )


def workflow_id(workflow: str, tags: Sequence[tuple[str, str]]) -> str:
    """Return the workflow id in the messages of an execution that no message has started: a rerun keeps the tags."""
    return dict(tags).get(WORKFLOW_ID, workflow) if is_adopted_name(workflow) else workflow
