"""The services that routes use: the application, its engine's client, and the authentication of callers.

Among them are the background tasks of a server: each is referenced, its failure is logged, and it ends before the
store closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, Self, TypeVar

from fastapi import Depends, Request

from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.sessions import RemoteSettings
from dalsegno.engine.subprocesses.job_pool import Lane, OffloadLimits
from dalsegno.errors import Unavailable
from dalsegno.server.auth.audit import Audit
from dalsegno.server.auth.authentication import Authenticator
from dalsegno.server.auth.quotas import KeyUsage
from dalsegno.server.http.rate_limits import AddressRate, DeliveryLimits
from dalsegno.server.operations.metrics import Meter
from dalsegno.server.settings import ServerSettings
from dalsegno.server.streams.execution_feed import Broadcast
from dalsegno.server.streams.state_changes import Changes

T = TypeVar("T")

logger = logging.getLogger("dalsegno.server")

END_SECONDS = 1.0
"""Seconds that remaining tasks have to finish when a server stops, and then again to end after cancellation."""


class BackgroundTasks:
    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[Any]] = set()
        """Strong references: the event loop itself keeps only weak ones."""
        self.left = 0
        """Number of abandoned tasks that are still running."""

    def begin(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task. ``name`` identifies it in the log."""
        task = asyncio.create_task(work, name=name)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    def leave(self, task: asyncio.Task[None], *, continues: bool) -> None:
        """Abandon a task. If it continues and fails, the failure is logged."""
        self.left += 1
        task.add_done_callback(self._over)
        task.add_done_callback(_log_end if continues else _take_note)
        if not continues:
            task.cancel()

    def _over(self, _task: asyncio.Task[None]) -> None:
        self.left -= 1

    async def within(self, seconds: float, reading: Coroutine[Any, Any, T]) -> T:
        """Return the result of ``reading``, or raise Unavailable after ``seconds``. The read is then cancelled,
        without waiting until the driver has handled the cancellation."""
        task = self.begin(reading, "dalsegno-reading")
        task.add_done_callback(_take_note)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            task.cancel()
        if not task.done():
            raise no_answer_within(seconds)
        return task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all tasks within a time limit: an unavailable store does not prevent a server from stopping."""
        if self._under_way:
            late = (await asyncio.wait(self._under_way, timeout=END_SECONDS))[1]
            for task in late:
                if not task.cancelling():  # a second cancellation would interrupt the driver's clean-up
                    task.cancel()
            if late:
                await asyncio.wait(late, timeout=END_SECONDS)


def no_answer_within(seconds: float) -> Unavailable:
    return Unavailable(f"the store did not answer within {seconds:g} s; nothing was done")


def _log_end(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        logger.warning(
            "%s was abandoned because the server is stopping; its outcome is unknown", task.get_name()
        )
    elif (error := task.exception()) is not None:
        logger.error("%s failed after its caller had disconnected", task.get_name(), exc_info=error)


def _take_note(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


# -- services ------------------------------------------------------------------------------------------------


WAITING = OffloadLimits(wait_seconds=10.0, queue=100)
"""Limits of the queue for large values: seconds that a call waits, and waiting calls per key."""
SHARE = 0.75
"""Share of the bytes of large values that one key may use."""


@dataclass(slots=True)
class ServerServices:
    """The services of one server, available at ``request.app.state.services``. Created once; usable after ``use``."""

    app: App
    settings: ServerSettings
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is asked to stop: all calls that wait for events (event streams, long polls) end."""

    engine: Engine = field(init=False)
    client: Client = field(init=False)
    authenticator: Authenticator = field(init=False)
    audit: Audit = field(default_factory=Audit)
    public_rate: AddressRate = field(init=False)
    usage: KeyUsage = field(init=False)
    """The use of quotas by keys, and all open streams."""
    large_values: Lane = field(init=False)
    """Bytes of large values in calls in progress; see `server.http.responses`."""
    meter: Meter = field(default_factory=Meter)
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    delivery_limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    orchestrator: Orchestrator | None = None
    """The orchestrator of remote workers; see `remote_workers`."""

    broadcast: Broadcast | None = None
    changes: Changes | None = None
    """The state changes of event streams; see `server.streams.state_changes`."""

    def __post_init__(self) -> None:
        self.authenticator = Authenticator(self.settings)
        self.public_rate = AddressRate(self.settings.public_rate)
        most = self.settings.large_bytes
        self.large_values = Lane(most, WAITING, int(most * SHARE))
        self.usage = KeyUsage(self.authenticator.quotas_of, self.settings.streams)

    def use(self, engine: Engine) -> None:
        """Serve the store of this engine, which is open."""
        self.engine, self.client = engine, engine.client
        self.authenticator.use(engine.stack)
        self.audit.use(engine.stack)

    def remote_workers(self) -> Orchestrator:
        """Return the orchestrator; it is created on the first call of a remote worker."""
        if self.orchestrator is None:
            lease = self.settings.task_lease
            self.orchestrator = Orchestrator(
                self.engine, RemoteSettings(lease, min(lease, self.settings.task_confirm))
            )
        return self.orchestrator

    async def stop_remote(self) -> None:
        if self.orchestrator is not None:
            await self.orchestrator.stop()
            self.orchestrator = None


async def services_of(request: Request) -> ServerServices:
    """Return the services. Async like every dependency here: the framework runs each plain function in a thread."""
    services: ServerServices = request.app.state.services
    return services


Services = Annotated[ServerServices, Depends(services_of)]
