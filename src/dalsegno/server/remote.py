"""The orchestrator of a server's remote workers, and how a call that waits learns that nobody listens any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request

from dalsegno.engine.remote import Claimant, Orchestrator, RemoteSettings
from dalsegno.server.access import caller_of
from dalsegno.server.office import Office


def orchestrator_of(office: Office) -> Orchestrator:
    """Made when the first remote worker calls."""
    if office.orchestrator is None:
        settings = office.settings
        office.orchestrator = Orchestrator(
            office.engine,
            RemoteSettings(settings.task_lease, min(settings.task_lease, settings.task_confirm)),
        )
    return office.orchestrator


async def stop_remote(office: Office) -> None:
    if office.orchestrator is not None:
        await office.orchestrator.stop()
        office.orchestrator = None


def claimant_of(request: Request) -> Claimant:
    """The key behind a remote worker's call, and the queues that it is for."""
    caller = caller_of(request)
    is_operator = caller.key is None or "admin" in caller.scopes
    return Claimant(caller.key or "", caller.name, caller.queues, is_operator)


def hung_up(office: Office, request: Request) -> Callable[[], Awaitable[bool]]:
    """True once the caller is gone or the server stops."""

    async def gone() -> bool:
        return office.closing.is_set() or await request.is_disconnected()

    return gone
