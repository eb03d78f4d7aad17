"""The FastAPI application: routes, errors, and the engine that lives as long as the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from dalsegno.app import App
from dalsegno.engine.offload import OffloadLimits
from dalsegno.engine.warm_up import HTTP_NODE, warm_up
from dalsegno.server import problems, reference
from dalsegno.server.access_log import redact_access_log
from dalsegno.server.alerting import alerting
from dalsegno.server.deadlines import Deadlines, will_make
from dalsegno.server.duty import on_duty
from dalsegno.server.guard import Guard
from dalsegno.server.head import HeadAsGet
from dalsegno.server.metrics import Counted
from dalsegno.server.office import Office
from dalsegno.server.operation import operated
from dalsegno.server.route import PREFIX
from dalsegno.server.routes.alerts import router as alerts
from dalsegno.server.routes.approvals import router as approvals
from dalsegno.server.routes.audit import router as audit
from dalsegno.server.routes.bulk import router as bulk
from dalsegno.server.routes.credentials import router as credentials
from dalsegno.server.routes.dead import router as dead
from dalsegno.server.routes.definition_approvals import router as definition_approvals
from dalsegno.server.routes.definitions import router as definitions
from dalsegno.server.routes.errors import router as errors
from dalsegno.server.routes.executions import router as executions
from dalsegno.server.routes.health import router as health
from dalsegno.server.routes.hooks import router as hooks
from dalsegno.server.routes.inspection import router as inspection
from dalsegno.server.routes.keys import router as keys
from dalsegno.server.routes.limits import router as limits
from dalsegno.server.routes.metrics import router as metrics
from dalsegno.server.routes.protected_names import router as protected_names
from dalsegno.server.routes.queues import router as queues
from dalsegno.server.routes.schedules import router as schedules
from dalsegno.server.routes.session import router as session
from dalsegno.server.routes.stream import router as stream
from dalsegno.server.routes.submissions import router as submissions
from dalsegno.server.routes.tasks import router as tasks
from dalsegno.server.routes.waiting import router as waiting
from dalsegno.server.routes.webhooks import router as webhooks
from dalsegno.server.routes.workers import router as workers
from dalsegno.server.settings import ServerSettings
from dalsegno.server.slashes import EncodedSlashes
from dalsegno.server.table import Table, TableRoutes
from dalsegno.version import __version__

DESCRIPTION = """\
Durable workflows over HTTP: deploy graphs and scripts, start them, watch them live, and operate them.

Errors are problem documents (RFC 9457) with a stable code; `/v1/errors/{code}` tells cause and cure.
"""

LOADED_LATER = (HTTP_NODE, "anyio._backends._asyncio", "encodings.utf_8_sig", "encodings.idna", "gzip")
"""Imported by a node, the framework and the standard library when they are first needed."""
ROUTERS = (
    definitions,
    stream,
    bulk,
    executions,
    submissions,
    inspection,
    waiting,
    keys,
    session,
    audit,
    tasks,
    credentials,
    definition_approvals,
    protected_names,
    workers,
    queues,
    limits,
    dead,
    schedules,
    webhooks,
    hooks,
    approvals,
    alerts,
    health,
    errors,
)


ABOUT: dict[str, Any] = {
    "title": "Dal Segno",
    "version": __version__,
    "description": DESCRIPTION,
    "responses": problems.REFUSALS,
}


def checks_of(settings: ServerSettings) -> OffloadLimits:
    return OffloadLimits(
        processes=settings.check_processes,
        seconds=settings.check_seconds,
        memory_bytes=settings.check_memory,
        queue=settings.check_queue,
    )


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
    office, table = Office(app, settings), Table(ROUTERS, PREFIX)
    redact_access_log()

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        async with app.running(worker=roles.worker, scheduler=roles.scheduler):
            application.state.office = office
            app.client.offload.configure(checks_of(settings))
            app.client.launcher.announce = will_make
            warm_up(app.registry, LOADED_LATER)
            async with on_duty(office), operated(office), alerting(office), office.errands:
                yield

    application = FastAPI(
        **ABOUT,
        lifespan=lifespan,
        openapi_url=None,  # see `reference`: the framework renders it in the event loop, with every request
        docs_url=None,  # the framework's page loads scripts from elsewhere
        redoc_url=None,
    )
    application.add_middleware(EncodedSlashes)
    application.add_middleware(HeadAsGet)
    application.add_middleware(GZipMiddleware, minimum_size=1000)
    application.add_middleware(Deadlines, office=office)
    application.add_middleware(Guard, office=office, table=table)
    application.add_middleware(Counted, meter=office.meter)
    reference.install(application, _described)
    problems.install(application)
    application.router.routes.append(TableRoutes(table))
    application.include_router(metrics)
    return application


def _described() -> dict[str, Any]:
    """The document of all routes, as the framework renders it."""
    application = FastAPI(**ABOUT, openapi_url=None)
    for router in ROUTERS:
        application.include_router(router, prefix=PREFIX)
    application.include_router(metrics)
    return application.openapi()
