"""Delivery of failure alerts, apart from request handling: no request or step waits for it.

Each alert has one state record, changed by compare-and-set: the time up to which failures were searched, the
failures still to be reported, and the lease of the process that works on it. One process at a time works on an
alert; after a crash another process takes over when the lease expires.
A failure is added to the record once and removed when the receiver has accepted its message. If a process dies
between the two, another one sends the same message again, with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dalsegno.admin.alerts import STATE, Alert, AlertRecords, Failed, Message, failed_of, send, test_message
from dalsegno.errors import DalSegnoError, OperatorError, StoreLost
from dalsegno.model.execution import ExecutionKind, ExecutionView
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.server.services import ServerServices

logger = logging.getLogger("dalsegno.alerts")

LOOK_EVERY = 2.0
WITHOUT_ALERTS = 10
"""Factor by which the polling interval is longer while no alert exists. The first alert reports failures from its
creation on."""
GRACE = 2.0
OVERLAP = 30.0
"""Seconds by which the end of an execution may become visible later than its timestamp: clocks differ, and commits
take time."""
LEASE = 120.0
REMEMBER_EVERY = 300.0
"""Seconds after which the search position is saved even though nothing was found."""
LISTED = 50
PAGE = 200
BACK_OFF = (5.0, 30.0, 120.0, 600.0, 3600.0)
KINDS: tuple[ExecutionKind, ...] = ("graph", "script", "python", "task", "schedule")
PARENT_RELATIONS = ("child", "task")
"""Relations of executions whose failure is that of their parent, or is handled by it."""


class State(Struct, frozen=True):
    looked: float
    seen: tuple[str, ...] = ()
    """Executions that ended so recently that the next search finds them again."""
    waiting: tuple[Failed, ...] = ()
    count: int = 0
    """Number of waiting failures; only some of them are listed."""
    batch: Message | None = None
    """The message being sent, until the receiver accepts it."""
    told_at: float = 0.0
    tries: int = 0
    next_try: float = 0.0
    leased_until: float = 0.0
    error: str | None = None


@asynccontextmanager
async def alerting(services: ServerServices) -> AsyncIterator[None]:
    over = asyncio.Event()
    task = asyncio.create_task(_serve(Alerting(services), over), name="dalsegno-alerts")
    try:
        yield
    finally:
        over.set()
        _, unfinished = await asyncio.wait((task,), timeout=GRACE)
        if unfinished:  # the receiver does not answer; the next process sends the message again
            task.cancel()
            await asyncio.wait((task,))


async def _serve(alerting: Alerting, over: asyncio.Event) -> None:
    while not over.is_set():
        pause = LOOK_EVERY
        try:
            pause = LOOK_EVERY if await alerting.round() else WITHOUT_ALERTS * LOOK_EVERY
        except StoreLost:
            return  # the process is stopping
        except OperatorError as error:
            logger.warning("alerts are delayed: %s", error)
        except Exception:  # a bug here must not stop all alerts permanently
            logger.exception("alerts are delayed")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await over.wait()


class Alerting:
    def __init__(self, services: ServerServices) -> None:
        self.services = services
        self.records = services.client.stack.records
        self.clock = services.client.stack.clock
        self.alert_records = AlertRecords(self.records, services.engine.vault)

    async def round(self) -> bool:
        """Process every alert once. Return whether there are any alerts."""
        after = ""
        while page := await self.alert_records.page(after, PAGE):
            for alert in page:
                if alert.enabled:
                    await self._handle(alert)
            after = page[-1].id
        return bool(after)

    async def _handle(self, alert: Alert) -> None:
        """Search and deliver for one alert. Writes only if something changed, which is rare."""
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
        # Save the state before sending: the message is then delivered even after a crash, and only by this process
        # meanwhile.
        saved_version = await self._save(alert.id, replace(found, leased_until=now + LEASE), version)
        if saved_version is not None:
            await self._save(alert.id, await self._delivered(alert, found, batch), saved_version)

    async def _save(self, id: str, state: State, version: int) -> int | None:
        record = await self.records.put(STATE, id, msgspec.json.encode(state), version)
        return record.version if record is not None else None

    # -- finding failures -------------------------------------------------------------------------------------

    async def _looked(self, alert: Alert, state: State, now: float) -> State:
        found = await self._failed(alert, max(alert.created_at, state.looked - OVERLAP))
        known = frozenset(state.seen)
        new = [view for view in found if view.id not in known and view.relation not in PARENT_RELATIONS]
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
        while page := await self.services.client.executions(where, found[-1].id if found else None, PAGE):
            found += page
        return sorted(found, key=lambda view: (view.ended_at or 0.0, view.id))

    def _base(self) -> str:
        settings = self.services.settings
        named = next((name for name in settings.names if name != "*"), None)
        return f"https://{named}" if named is not None else f"http://{settings.host}:{settings.port}"

    # -- delivery ---------------------------------------------------------------------------------------------

    async def _delivered(self, alert: Alert, state: State, batch: Message) -> State:
        try:
            await self.send(alert, batch)
        except DalSegnoError as error:
            pause = BACK_OFF[min(state.tries, len(BACK_OFF) - 1)]
            logger.warning("alert '%s' was not delivered (%s); next try in %.0f s", alert.id, error, pause)
            later = self.clock.now() + pause
            return replace(state, tries=state.tries + 1, next_try=later, error=str(error))
        return replace(state, batch=None, told_at=self.clock.now(), tries=0, next_try=0.0, error=None)

    async def send(self, alert: Alert, message: Message) -> None:
        """Send a message. Raises NotDelivered, or the vault's error."""
        await send(self.alert_records, alert, message, self.services.app.egress, self.clock.now())

    async def test(self, alert: Alert) -> None:
        """Send a test message now, regardless of waiting failures."""
        await self.send(alert, test_message(alert, self._base()))


def _packed(alert: Alert, state: State, now: float) -> State:
    """Batch the waiting failures into one message if the previous message was accepted long enough ago."""
    if state.batch is not None or not state.count or now < state.told_at + alert.every:
        return state
    text = f"{alert.id}\0{state.waiting[0].execution}\0{now}"
    named = hashlib.sha256(text.encode()).hexdigest()[:32]
    return replace(state, batch=Message(named, alert.id, state.count, state.waiting), waiting=(), count=0)
