"""The FastAPI application: routes, errors, and the engine that lives as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from dalsegno.app import App
from dalsegno.server import problems
from dalsegno.server.office import Office
from dalsegno.server.routes.definitions import router as definitions
from dalsegno.server.routes.executions import router as executions
from dalsegno.server.settings import ServerSettings
from dalsegno.version import __version__

DESCRIPTION = """\
Durable workflows over HTTP: deploy graphs and scripts, start them, watch them live, and operate them.

Errors are problem documents (RFC 9457) with a stable code; `/v1/errors/{code}` tells cause and cure.
"""

ROUTERS = (definitions, executions)


@dataclass(frozen=True, slots=True)
class Roles:
    """What runs in this process beside the server itself."""

    worker: bool = True
    scheduler: bool = True


def create_application(
    app: App, settings: ServerSettings | None = None, roles: Roles | None = None
) -> FastAPI:
    """An ASGI application around ``app``. Its engine starts and stops with the server."""
    settings, roles = settings or ServerSettings(), roles or Roles()
    office = Office(app, settings)

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        async with app.running(worker=roles.worker, scheduler=roles.scheduler):
            application.state.office = office
            yield

    application = FastAPI(
        title="Dal Segno",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=problems.REFUSALS,
        openapi_url="/v1/openapi.json",
        docs_url="/docs",
        redoc_url=None,
    )
    application.add_middleware(GZipMiddleware, minimum_size=1000)
    problems.install(application)
    for router in ROUTERS:
        application.include_router(router, prefix="/v1")
    return application
