"""HEAD wherever GET is: the same status and headers, without the body."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Enough(Exception):
    """The headers are out: nobody waits for what the route would still send, a stream for hours."""


class HeadAsGet:
    """Routes see a GET. The audit, the guard and the log, which stand before, see what was asked."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            elif message.get("more_body", False):
                raise _Enough

        try:
            await self.app({**scope, "method": "GET"}, receive, without_body)
        except* _Enough:
            pass
