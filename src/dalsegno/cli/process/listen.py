"""The server process: its socket, its start before the store is available, its announcement and its graceful stop.

A supervisor asks whether a server is alive. One that waits for its store must say yes, or it is restarted before the
store comes. So one HTTP server serves the socket from the beginning and only the application behind it changes: no
connection is lost when the application takes over.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import uvicorn
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dalsegno.adapters.urls import shown_url
from dalsegno.app import App
from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import emit, span
from dalsegno.cli.process.serve import (
    egress_text,
    log_lines,
    log_registered,
    log_servers,
    warn_of_lacking_versions,
)
from dalsegno.cli.process.startup import NEVER_OPENED, Awaited, running_when_open
from dalsegno.cli.run.session import Stopping, stop_signals
from dalsegno.engine.process import tune_memory
from dalsegno.server import ServerSettings as ServerServerSettings
from dalsegno.server.application import Roles, create_application
from dalsegno.server.auth.authentication import check_listening
from dalsegno.server.http.connections import http_protocol
from dalsegno.server.http.guard import allowance
from dalsegno.server.http.problems import problem_of
from dalsegno.server.http.request import PREFIX, GuardedRequest
from dalsegno.server.http.responses import HeadAsGet, with_default_headers
from dalsegno.server.settings import ServerSettings
from dalsegno.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

LIVE = f"{PREFIX}/health/live"
HELD = 2.0
"""Seconds from the start in which requests are held, not refused: if the store is available, it opens within them."""


class StartupApp:
    """The ASGI application of the process: reports that it waits for its store, then delegates to the application."""

    def __init__(self, settings: ServerSettings, awaited: Awaited) -> None:
        self.awaited = awaited
        self._settings = settings
        self._held_until = asyncio.get_running_loop().time() + HELD
        self._application: ASGIApp | None = None
        self._waiting = HeadAsGet(self._answer)

    def forward_to(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._application is None and scope["path"] != LIVE:
            await self._first_try()
        await (self._application or self._waiting)(scope, receive, send)

    async def _first_try(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._held_until):
                await self.awaited.tried.wait()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit = GuardedRequest(scope)
        reply = self._reply(visit)
        if visit.has_body:
            reply.headers["Connection"] = "close"  # the rest of the body is not read
        await reply(
            scope, receive, with_default_headers(send, visit, allowance(visit, self._settings.origins))
        )

    def _reply(self, visit: GuardedRequest) -> Response:
        if visit.path == LIVE and visit.is_safe:
            return JSONResponse({"status": "ok"})
        return problem_of(self.awaited.refusal())


BACKLOG = 2048

say = logging.getLogger("dalsegno.cli").info


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of one server process."""

    app: App
    settings: ServerServerSettings
    roles: Roles
    quiet: bool = False
    as_json: bool = False


class QuietServer(uvicorn.Server):
    """A uvicorn server that handles no signals: the first one drains, the second one ends the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def with_streams(settings: ServerServerSettings, streams: int | None) -> ServerServerSettings:
    return settings if streams is None else replace(settings, streams=streams)


CHECKS = {
    "processes": (int, 1),
    "seconds": (float, 0.1),
    "memory": (int, 128 * 1024 * 1024),
    "queue": (int, 1),
}
"""Limits of the checks in separate processes: type and minimum of each."""


def with_checks(settings: ServerServerSettings, given: Sequence[str]) -> ServerServerSettings:
    """Parse ``processes=4``, ``seconds=30``, ``memory=2147483648``, ``queue=32``."""
    for text in given:
        name, _, number = text.partition("=")
        if name not in CHECKS:
            raise Refusal(f"--check {text}: there is no such limit", f"Bounds: {', '.join(CHECKS)}.")
        kind, least = CHECKS[name]
        try:
            value = kind(number)
        except ValueError:
            raise Refusal(f"--check {text}: that is not a number", f"Write it like {name}={least}.") from None
        if not least <= value < float("inf"):
            raise Refusal(f"--check {text}: that is too little", f"The least is {name}={least}.")
        settings = replace(settings, **{f"check_{name}": value})
    return settings


async def listen(plan: Plan) -> None:
    """Serve until SIGINT or SIGTERM; then running requests and steps are finished or released."""
    log_lines(quiet=plan.quiet)
    tune_memory()
    with bound(plan.settings.host, plan.settings.port) as listener, stop_signals() as stopping:
        settings = replace(plan.settings, port=listener.getsockname()[1])
        front = StartupApp(settings, Awaited())
        server = QuietServer(_config(front, settings, plan.app.settings.grace))
        serving = asyncio.ensure_future(server.serve([listener]))
        await _first_of(server.ready, serving)
        try:
            if not serving.done():
                await _serve(plan, settings, front, stopping, server, serving)
        finally:
            await _end(server, serving)


async def _serve(
    plan: Plan,
    settings: ServerServerSettings,
    front: StartupApp,
    stopping: Stopping,
    server: QuietServer,
    serving: asyncio.Future[None],
) -> None:
    """Wait for the store, serve, and stop after the last reply."""
    block = partial(_open, plan, settings, front)
    async with running_when_open(plan.app, block, stopping, front.awaited) as opened:
        if opened is None:
            say(NEVER_OPENED)
            return
        _announce(plan, settings, opened.warning)
        if plan.roles.worker:
            await warn_of_lacking_versions(plan.app)
        plan.app.engine.when_lost(stopping.lose)
        await _first_of(stopping.event, serving)
        say("stopping: requests and steps that run may finish within %s", span(plan.app.settings.grace))
        opened.application.state.services.closing.set()
        await _end(server, serving)  # before the resources of the requests are closed
    stopping.raise_loss()
    say("stopped")


async def _end(server: QuietServer, serving: asyncio.Future[None]) -> None:
    """Stop accepting requests and wait until running ones are answered."""
    server.should_exit = True
    await serving


@dataclass(frozen=True, slots=True)
class Opened:
    application: FastAPI
    warning: str | None
    """A warning to print if every local user has access."""


@contextlib.asynccontextmanager
async def _open(plan: Plan, settings: ServerServerSettings, front: StartupApp) -> AsyncIterator[Opened]:
    """Create the application on an open store. Inside the block its engine runs and requests reach it."""
    stack = plan.app.client.stack
    warning = await check_listening(stack.records, stack.clock, settings)
    application = create_application(plan.app, settings, plan.roles)
    async with application.router.lifespan_context(application):
        tune_memory()  # routes and grammars are permanent, too
        front.forward_to(application)
        yield Opened(application, warning)


async def _first_of(event: asyncio.Event, serving: asyncio.Future[None]) -> None:
    """Wait for the event, or for the end of a server that failed."""
    happened = asyncio.ensure_future(event.wait())
    await asyncio.wait((happened, serving), return_when="FIRST_COMPLETED")
    happened.cancel()


def _config(front: StartupApp, settings: ServerServerSettings, grace: float) -> uvicorn.Config:
    return uvicorn.Config(
        front,
        loop="none",  # the engine's loop is running already
        http=http_protocol(settings),
        ws="none",
        lifespan="off",  # the application starts later than the server: `_open`
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("Server", f"dalsegno/{__version__}")],
        timeout_graceful_shutdown=max(round(grace), 1),
    )


# -- the socket -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def bound(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a listening socket. A port that cannot be bound raises Refusal."""
    listener = _bind(host, port)
    try:
        yield listener
    finally:
        listener.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise _refused(host, port, error) from None


_HOST_HINT = "Write --host 127.0.0.1 for this machine alone, or --host 0.0.0.0 for all its addresses."


def _refused(host: str, port: int, error: OSError) -> Refusal:
    if error.errno == errno.EADDRINUSE:
        return Refusal(
            f"port {port} of {host} is in use: another program listens there, perhaps another Dal Segno server",
            f"Choose another one with --port {port + 1}; --port 0 takes any that is free.",
        )
    if (
        error.errno == errno.EADDRNOTAVAIL or (error.errno or 0) < 0
    ):  # a name that does not resolve has an errno below 0
        return Refusal(f"{host} is not an address of this machine", _HOST_HINT)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Refusal(
            f"port {port} may not be used by this user", "Ports from 1024 on are free for every user."
        )
    return Refusal(f"cannot listen on {host} port {port}: {error.strerror or error}")


# -- announcing -----------------------------------------------------------------------------------------------


def url_of(settings: ServerServerSettings) -> str:
    """Return the URL of the server on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)  # noqa: S104 - only compared
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{settings.port}"


def _listening_at(settings: ServerServerSettings) -> str:
    if settings.host.strip("[]") in ("0.0.0.0", "::"):  # noqa: S104 - only compared
        return f"all addresses of this machine ({settings.host}), port {settings.port}; from here at {url_of(settings)}"
    return url_of(settings)


def _announce(plan: Plan, settings: ServerServerSettings, warning: str | None) -> None:
    url = url_of(settings)
    runs = ["server"]
    runs += [f"worker of {', '.join(plan.app.settings.queues)}"] if plan.roles.worker else []
    runs += ["scheduler"] if plan.roles.scheduler else []
    say("Dal Segno %s listens at %s", __version__, _listening_at(settings))
    say("reference of the API: %s/docs", url)
    say("store: %s", shown_url(plan.app.url))
    log_servers(plan.app)
    say("in this process: %s", ", ".join(runs))
    log_registered(plan.app)
    say(egress_text(plan.app.egress))
    say(warning or "callers need a key: `dalsegno keys ls` lists them")
    if plan.as_json:
        emit(
            {
                "url": url,
                "docs": f"{url}/docs",
                "store": shown_url(plan.app.url),
                "runs": runs,
                "open": warning is not None,
            }
        )
