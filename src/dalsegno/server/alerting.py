"""Tells of failed executions, beside everything else: nothing ever waits for it.

Each alert has one record of state, changed by compare-and-set: up to when failures were looked for, what is still to be
told, and who is at it. One process at a time works on an alert; one that dies is followed by another after its lease.
A failure becomes part of that record once, and leaves it when its message was taken. A process that dies between the
two lets another one send the very message again, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.errors import DalSegnoError, OperatorError, StoreLost
from dalsegno.model.execution import ExecutionKind, ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.server.alerts import STATE, Alert, AlertBook
from dalsegno.server.messages import Failed, Message, failed_of, mail, post
from dalsegno.server.office import Office

logger = logging.getLogger("dalsegno.alerts")

LOOK_EVERY = 2.0
WITHOUT_ALERTS = 10
"""Times longer between two looks while there is no alert. The first one is told of failures from its making on."""
GRACE = 2.0
OVERLAP = 30.0
"""How much later than its time an ending may become visible: clocks differ, and commits take a while."""
LEASE = 120.0
REMEMBER_EVERY = 300.0
"""Seconds after which it is written that nothing was found."""
LISTED = 50
PAGE = 200
BACK_OFF = (5.0, 30.0, 120.0, 600.0, 3600.0)
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task", "schedule")
PART_OF_ANOTHER = ("child", "task")
"""Relations of executions whose failure is the failure, or the business, of their parent."""


class State(Struct, frozen=True):
    looked: float
    seen: tuple[str, ...] = ()
    """Those that ended so lately that they will be found again."""
    waiting: tuple[Failed, ...] = ()
    count: int = 0
    """Of those that wait; only some are listed."""
    batch: Message | None = None
    """What is being sent, until it was taken."""
    told_at: float = 0.0
    tries: int = 0
    next_try: float = 0.0
    leased_until: float = 0.0
    error: str | None = None


@asynccontextmanager
async def alerting(office: Office) -> AsyncIterator[None]:
    over = asyncio.Event()
    task = asyncio.create_task(_serve(Alerting(office), over), name="dalsegno-alerts")
    try:
        yield
    finally:
        over.set()
        _, unfinished = await asyncio.wait((task,), timeout=GRACE)
        if unfinished:  # a receiver that does not answer; the message is sent again by whoever comes next
            task.cancel()
            await asyncio.wait((task,))


async def _serve(alerting: Alerting, over: asyncio.Event) -> None:
    while not over.is_set():
        pause = LOOK_EVERY
        try:
            pause = LOOK_EVERY if await alerting.round() else WITHOUT_ALERTS * LOOK_EVERY
        except StoreLost:
            return  # the process ends
        except OperatorError as error:
            logger.warning("alerts have to wait: %s", error)
        except Exception:  # a bug here must not end all alerts for good
            logger.exception("alerts have to wait")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await over.wait()


class Alerting:
    def __init__(self, office: Office) -> None:
        self.office = office
        self.records = office.client.stack.records
        self.clock = office.client.stack.clock
        self.book = AlertBook(self.records, office.engine.vault)

    async def round(self) -> bool:
        """Whether there are any alerts."""
        after = ""
        while page := await self.book.page(after, PAGE):
            for alert in page:
                if alert.enabled:
                    await self._tend(alert)
            after = page[-1].id
        return bool(after)

    async def _tend(self, alert: Alert) -> None:
        """Writes only where there is something to write: most rounds look and find nothing."""
        record = await self.records.get(STATE, alert.id)
        state, version = State(alert.created_at), 0
        if record is not None:
            state, version = msgspec.json.decode(record.data, type=State), record.version
        now = self.clock.now()
        if state.leased_until > now:
            return
        found = _packed(alert, await self._looked(alert, state, now), now)
        batch = found.batch if found.next_try <= now else None
        if batch is None:
            if found.count != state.count or now - state.looked > REMEMBER_EVERY:
                await self._save(alert.id, found, version)
            return
        # Written before it is told: so it is told whatever happens here, and by nobody else meanwhile.
        mine = await self._save(alert.id, replace(found, leased_until=now + LEASE), version)
        if mine is not None:
            await self._save(alert.id, await self._told(alert, found, batch), mine)

    async def _save(self, id: str, state: State, version: int) -> int | None:
        record = await self.records.put(STATE, id, msgspec.json.encode(state), version)
        return record.version if record is not None else None

    # -- looking ----------------------------------------------------------------------------------------------

    async def _looked(self, alert: Alert, state: State, now: float) -> State:
        found = await self._failed(alert, max(alert.created_at, state.looked - OVERLAP))
        known = frozenset(state.seen)
        new = [view for view in found if view.id not in known and view.relation not in PART_OF_ANOTHER]
        listed = [failed_of(view, self._base()) for view in new[: LISTED - len(state.waiting)]]
        return replace(
            state,
            looked=now,
            seen=tuple(view.id for view in found if (view.ended_at or now) >= now - OVERLAP),
            waiting=(*state.waiting, *listed),
            count=state.count + len(new),
            leased_until=0.0,
        )

    async def _failed(self, alert: Alert, since: float) -> list[ExecutionView]:
        where = ExecutionFilter(alert.workflow, ("FAILED",), kinds=KINDS, ended_since=since)
        found: list[ExecutionView] = []
        while page := await self.office.client.executions(where, found[-1].id if found else None, PAGE):
            found += page
        return sorted(found, key=lambda view: (view.ended_at or 0.0, view.id))

    def _base(self) -> str:
        settings = self.office.settings
        named = next((name for name in settings.names if name != "*"), None)
        return f"https://{named}" if named is not None else f"http://{settings.host}:{settings.port}"

    # -- telling ----------------------------------------------------------------------------------------------

    async def _told(self, alert: Alert, state: State, batch: Message) -> State:
        try:
            await self.send(alert, batch)
        except DalSegnoError as error:
            pause = BACK_OFF[min(state.tries, len(BACK_OFF) - 1)]
            logger.warning("alert '%s' was not delivered (%s); next try in %.0f s", alert.id, error, pause)
            later = self.clock.now() + pause
            return replace(state, tries=state.tries + 1, next_try=later, error=str(error))
        return replace(state, batch=None, told_at=self.clock.now(), tries=0, next_try=0.0, error=None)

    async def send(self, alert: Alert, message: Message) -> None:
        """Raises NotDelivered, or what the vault says."""
        if alert.mail:
            await mail(alert.mail, message)
        else:
            now = self.clock.now()
            await post(await self.book.receiver(alert, now), message, self.office.app.egress, now)

    async def test(self, alert: Alert) -> None:
        """A message like a real one, now, whatever waits."""
        view = Failed(
            "0" * 32, alert.workflow or "any", 1, "", "TEST", "This is a test.", "", f"{self._base()}/docs"
        )
        await self.send(alert, Message(f"test-{token_hex(8)}", alert.id, 1, (view,)))


def _packed(alert: Alert, state: State, now: float) -> State:
    """What waits becomes one message, once the last one was taken and is old enough."""
    if state.batch is not None or not state.count or now < state.told_at + alert.every:
        return state
    text = f"{alert.id}\0{state.waiting[0].execution}\0{now}"
    named = hashlib.sha256(text.encode()).hexdigest()[:32]
    return replace(state, batch=Message(named, alert.id, state.count, state.waiting), waiting=(), count=0)
