"""What every route works with: the application, its engine's client, and who is asking."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.engine.offload import Lane, OffloadLimits
from dalsegno.engine.remote import Orchestrator
from dalsegno.server.audit import Audit
from dalsegno.server.broadcast import Broadcast
from dalsegno.server.changes import Changes
from dalsegno.server.doorman import Doorman
from dalsegno.server.errands import Errands
from dalsegno.server.failures import AddressRate
from dalsegno.server.key_usage import KeyUsage
from dalsegno.server.meter import Meter
from dalsegno.server.reception import Reception
from dalsegno.server.settings import ServerSettings

WAITING = OffloadLimits(wait_seconds=10.0, queue=100)
"""How long a call waits for its turn with large values, and how many calls of one key."""
SHARE = 0.75
"""Of the bytes of large values, for one key."""


@dataclass(slots=True)
class Office:
    """One server's belongings. Made once, found at ``request.app.state.office``."""

    app: App
    settings: ServerSettings
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is asked to stop: whatever waits for something to happen (event streams, long polls) ends."""

    doorman: Doorman = field(init=False)
    audit: Audit = field(init=False)
    public_rate: AddressRate = field(init=False)
    usage: KeyUsage = field(init=False)
    """What keys use of their quotas, and all open streams."""
    large_values: Lane = field(init=False)
    """Bytes of large values in calls that are being served; see `server.large_values`."""
    meter: Meter = field(default_factory=Meter)
    errands: Errands = field(default_factory=Errands)
    reception: Reception = field(default_factory=Reception)
    orchestrator: Orchestrator | None = None
    """Of remote workers; see `server.remote`."""

    broadcast: Broadcast | None = None
    changes: Changes | None = None
    """Of event streams; see `server.stream`."""

    def __post_init__(self) -> None:
        self.doorman = Doorman(self.app, self.settings)
        self.audit = Audit(self.app)
        self.public_rate = AddressRate(self.settings.public_rate)
        most = self.settings.large_bytes
        self.large_values = Lane(most, WAITING, int(most * SHARE))
        self.usage = KeyUsage(self.doorman.quotas_of, self.settings.streams)

    @property
    def client(self) -> Client:
        return self.app.client

    @property
    def engine(self) -> Engine:
        return self.app.engine


async def office_of(request: Request) -> Office:
    """Async, as every dependency here: the framework calls plain functions in a thread each."""
    office: Office = request.app.state.office
    return office


TheOffice = Annotated[Office, Depends(office_of)]
