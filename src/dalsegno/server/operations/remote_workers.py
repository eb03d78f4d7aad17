"""The orchestrator of a server's remote workers, and disconnect detection for waiting calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request

from dalsegno.engine.remote.orchestrator import Orchestrator
from dalsegno.engine.remote.sessions import Claimant, RemoteSettings
from dalsegno.server.auth.access import caller_of
from dalsegno.server.services import ServerServices


def orchestrator_of(services: ServerServices) -> Orchestrator:
    """Return the orchestrator; it is created on the first call of a remote worker."""
    if services.orchestrator is None:
        settings = services.settings
        services.orchestrator = Orchestrator(
            services.engine,
            RemoteSettings(settings.task_lease, min(settings.task_lease, settings.task_confirm)),
        )
    return services.orchestrator


async def stop_remote(services: ServerServices) -> None:
    if services.orchestrator is not None:
        await services.orchestrator.stop()
        services.orchestrator = None


def claimant_of(request: Request) -> Claimant:
    """Return the key of a remote worker's call, with the queues it may serve."""
    caller = caller_of(request)
    is_operator = caller.key is None or "admin" in caller.scopes
    return Claimant(caller.key or "", caller.name, caller.queues, is_operator)


def client_gone(services: ServerServices, request: Request) -> Callable[[], Awaitable[bool]]:
    """Return a check that is true once the caller has disconnected or the server stops."""

    async def gone() -> bool:
        return services.closing.is_set() or await request.is_disconnected()

    return gone
