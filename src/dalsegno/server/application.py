"""The FastAPI application: routes, error handlers, and the engine, which starts and stops with the server.

While it runs, the server also writes the audit log and the last uses of keys, removes expired records, counts
metrics, and runs the orchestrator of remote workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from dalsegno.app import App
from dalsegno.engine.process import HTTP_NODE, warm_up
from dalsegno.engine.subprocesses.job_pool import OffloadLimits
from dalsegno.errors import OperatorError, StoreLost
from dalsegno.server.alerts import alerting
from dalsegno.server.http import openapi as reference
from dalsegno.server.http import problems, static_files
from dalsegno.server.http.deadlines import Deadlines, will_make
from dalsegno.server.http.guard import Guard
from dalsegno.server.http.request import PREFIX, redact_access_log
from dalsegno.server.http.responses import HeadAsGet
from dalsegno.server.http.routing import EncodedSlashes, Table, TableRoutes
from dalsegno.server.operations import metrics, store_probe
from dalsegno.server.operations.metrics import Counted
from dalsegno.server.routes.admin import (
    alerts_router,
    audit_router,
    credentials_router,
    keys_router,
    session_router,
)
from dalsegno.server.routes.approvals import router as approvals
from dalsegno.server.routes.definitions import definition_approvals_router, protected_names_router
from dalsegno.server.routes.definitions import router as definitions
from dalsegno.server.routes.executions import bulk_router, executions_router, waiting_router
from dalsegno.server.routes.inspection import router as inspection
from dalsegno.server.routes.operations import (
    dead_router,
    errors_router,
    health_router,
    limits_router,
    metrics_router,
    queues_router,
    workers_router,
)
from dalsegno.server.routes.published import router as published
from dalsegno.server.routes.requests import requests_router
from dalsegno.server.routes.schedules import router as schedules
from dalsegno.server.routes.streams import router as stream
from dalsegno.server.routes.submissions import router as submissions
from dalsegno.server.routes.tasks import manual_tasks_router, tasks_router
from dalsegno.server.routes.turns import router as turns
from dalsegno.server.routes.webhooks import hooks_router, webhooks_router
from dalsegno.server.services import ServerServices
from dalsegno.server.settings import ServerSettings
from dalsegno.version import __version__

logger = logging.getLogger("dalsegno.server")

WRITE_EVERY = 0.25
SWEEP_EVERY = 3600.0
RETRY_SECONDS = 5.0


@asynccontextmanager
async def running_tasks(services: ServerServices) -> AsyncIterator[None]:
    """Run the background work around request handling: the keys are loaded before the first request, the audit log
    is written after the last one."""
    await services.authenticator.keys()
    over = asyncio.Event()
    task = asyncio.create_task(_serve(services, over), name="dalsegno-duty")
    try:
        yield
    finally:
        over.set()  # not cancelled: a batch in progress is written completely
        await services.authenticator.close()
        await store_probe.end_look(services.client.stack)
        await metrics.end_look(services.client.stack)
        await task
        await services.audit.close()


async def _serve(services: ServerServices, over: asyncio.Event) -> None:
    swept: float | None = None
    while not over.is_set():
        try:
            await _write(services)
            if swept is None or time.monotonic() - swept >= SWEEP_EVERY:
                await _sweep(services)
                swept = time.monotonic()
            pause = WRITE_EVERY
        except StoreLost:
            return  # the process is stopping
        except OperatorError as error:
            logger.warning("the audit log is delayed: %s", error)
            pause = RETRY_SECONDS
        except Exception:  # a bug here must not stop the audit log permanently
            logger.exception("the audit log is delayed")
            pause = RETRY_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await over.wait()


async def _write(services: ServerServices) -> None:
    await services.audit.flush()
    if services.settings.audit_rows is not None:
        await services.audit.trim_to(services.settings.audit_rows)
    await services.authenticator.write_uses()


async def _sweep(services: ServerServices) -> None:
    await services.authenticator.sessions.sweep()
    if services.settings.audit_seconds is not None:
        await services.audit.trim(services.settings.audit_seconds)


@asynccontextmanager
async def operated(services: ServerServices) -> AsyncIterator[None]:
    services.meter.watch(services.engine)
    try:
        yield
    finally:
        await services.stop_remote()


DESCRIPTION = """\
Durable workflows over HTTP: deploy graphs and scripts, start them, watch them live, and operate them.

Errors are problem documents (RFC 9457) with a stable code; `/v1/errors/{code}` explains cause and cure.
"""

LOADED_LATER = (HTTP_NODE, "anyio._backends._asyncio", "encodings.utf_8_sig", "encodings.idna", "gzip")
"""Modules that a node, the framework or the standard library would otherwise import on first use."""
ROUTERS = (
    definitions,
    stream,
    published,
    bulk_router,
    executions_router,
    submissions,
    inspection,
    turns,
    waiting_router,
    requests_router,
    keys_router,
    session_router,
    audit_router,
    tasks_router,
    manual_tasks_router,
    credentials_router,
    definition_approvals_router,
    protected_names_router,
    workers_router,
    queues_router,
    limits_router,
    dead_router,
    schedules,
    webhooks_router,
    hooks_router,
    approvals,
    alerts_router,
    health_router,
    errors_router,
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
    """The roles that run in this process in addition to the server."""

    worker: bool = True
    scheduler: bool = True


def create_application(
    app: App, settings: ServerSettings | None = None, roles: Roles | None = None
) -> FastAPI:
    """Return an ASGI application around ``app``. Its engine starts and stops with the server."""
    settings, roles = settings or ServerSettings(), roles or Roles()
    services, table = ServerServices(app, settings), _table()
    redact_access_log()

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        async with app.running(worker=roles.worker, scheduler=roles.scheduler):
            services.use(app.engine)
            application.state.services = services
            services.client.offload.configure(checks_of(settings))
            services.client.launcher.announce = will_make
            warm_up(app.registry, LOADED_LATER)
            async with (
                running_tasks(services),
                operated(services),
                alerting(services),
                services.background_tasks,
            ):
                yield

    application = FastAPI(
        **ABOUT,
        lifespan=lifespan,
        openapi_url=None,  # see `reference`: the framework would render it in the event loop, on every request
        docs_url=None,  # the framework's page loads scripts from other hosts
        redoc_url=None,
    )
    application.add_middleware(EncodedSlashes)
    application.add_middleware(HeadAsGet)
    application.add_middleware(GZipMiddleware, minimum_size=1000)
    application.add_middleware(Deadlines, services=services)
    application.add_middleware(Guard, services=services, table=table)
    application.add_middleware(Counted, meter=services.meter)
    reference.install(application, _described)
    static_files.install(application)
    problems.install(application)
    application.router.routes.append(TableRoutes(table))
    application.include_router(metrics_router)
    return application


@cache
def _table() -> Table:
    """Return the table of all routes, which is the same for every application of a process."""
    return Table(ROUTERS, PREFIX)


def _described() -> dict[str, Any]:
    """Return the OpenAPI document of all routes, as the framework renders it."""
    application = FastAPI(**ABOUT, openapi_url=None)
    for router in ROUTERS:
        application.include_router(router, prefix=PREFIX)
    application.include_router(metrics_router)
    return application.openapi()
