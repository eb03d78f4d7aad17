"""What makes a server operable, from its start to its end: its meter, and the orchestrator of remote workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dalsegno.server.office import Office
from dalsegno.server.remote import stop_remote


@asynccontextmanager
async def operated(office: Office) -> AsyncIterator[None]:
    office.meter.watch(office.engine)
    try:
        yield
    finally:
        await stop_remote(office)
