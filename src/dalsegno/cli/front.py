"""What answers at a server's port from its first moment: that it waits for its store, and then the application.

Whoever restarts servers asks whether they live. One that merely waits must say yes, or it is never there when the store
comes. So one server serves the socket from the beginning, and only what stands behind it changes: no connection is lost
when the application takes over.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dalsegno.cli.patience import Awaited
from dalsegno.server.cors import allowance
from dalsegno.server.head import HeadAsGet
from dalsegno.server.headers import dressed
from dalsegno.server.problems import problem_of
from dalsegno.server.route import PREFIX
from dalsegno.server.settings import ServerSettings
from dalsegno.server.visit import Visit

LIVE = f"{PREFIX}/health/live"
HELD = 2.0
"""Seconds from the start in which nobody is sent away yet: where the store is there, it is open before."""


class Front:
    """The ASGI application of the process."""

    def __init__(self, settings: ServerSettings, awaited: Awaited) -> None:
        self.awaited = awaited
        self._settings = settings
        self._held_until = asyncio.get_running_loop().time() + HELD
        self._application: ASGIApp | None = None
        self._waiting = HeadAsGet(self._answer)

    def hand_over_to(self, application: ASGIApp) -> None:
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
        visit = Visit(scope)
        reply = self._reply(visit)
        if visit.has_body:
            reply.headers["Connection"] = "close"  # what is left of the body is nobody's to read
        await reply(scope, receive, dressed(send, visit, allowance(visit, self._settings.origins)))

    def _reply(self, visit: Visit) -> Response:
        if visit.path == LIVE and visit.is_safe:
            return JSONResponse({"status": "ok"})
        return problem_of(self.awaited.refusal())
