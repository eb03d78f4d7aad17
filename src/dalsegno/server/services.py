"""The services that routes use: the application, its engine's client, and the authentication of callers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.sessions import RemoteSettings
from dalsegno.engine.subprocesses.job_pool import Lane, OffloadLimits
from dalsegno.server.auth.audit import Audit
from dalsegno.server.auth.authentication import Authenticator
from dalsegno.server.auth.quotas import KeyUsage
from dalsegno.server.background_tasks import BackgroundTasks
from dalsegno.server.http.rate_limits import AddressRate, DeliveryLimits
from dalsegno.server.operations.metrics import Meter
from dalsegno.server.settings import ServerSettings
from dalsegno.server.streams.execution_feed import Broadcast
from dalsegno.server.streams.state_changes import Changes

WAITING = OffloadLimits(wait_seconds=10.0, queue=100)
"""Limits of the queue for large values: seconds that a call waits, and waiting calls per key."""
SHARE = 0.75
"""Share of the bytes of large values that one key may use."""


@dataclass(slots=True)
class ServerServices:
    """The services of one server. Created once, available at ``request.app.state.services``."""

    app: App
    settings: ServerSettings
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is asked to stop: all calls that wait for events (event streams, long polls) end."""

    authenticator: Authenticator = field(init=False)
    audit: Audit = field(init=False)
    public_rate: AddressRate = field(init=False)
    usage: KeyUsage = field(init=False)
    """The use of quotas by keys, and all open streams."""
    large_values: Lane = field(init=False)
    """Bytes of large values in calls in progress; see `server.http.replies`."""
    meter: Meter = field(default_factory=Meter)
    background_tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    delivery_limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    orchestrator: Orchestrator | None = None
    """The orchestrator of remote workers; see `remote_workers`."""

    broadcast: Broadcast | None = None
    changes: Changes | None = None
    """The state changes of event streams; see `server.streams.state_changes`."""

    def __post_init__(self) -> None:
        self.authenticator = Authenticator(self.app, self.settings)
        self.audit = Audit(self.app)
        self.public_rate = AddressRate(self.settings.public_rate)
        most = self.settings.large_bytes
        self.large_values = Lane(most, WAITING, int(most * SHARE))
        self.usage = KeyUsage(self.authenticator.quotas_of, self.settings.streams)

    @property
    def client(self) -> Client:
        return self.app.client

    @property
    def engine(self) -> Engine:
        return self.app.engine

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
