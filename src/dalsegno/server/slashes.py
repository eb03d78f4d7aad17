"""Names in paths that hold slashes: ``%2F`` belongs to a name, and ``/`` ends it.

Routes see a path that is decoded, where ``v%2Fversions%2F1``, a name, is the same as ``v/versions/1``, a version of
``v``. So a slash that was sent encoded is replaced there by a sign that no decoded path can hold, and put back when the
name is taken out of the path.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.server import paths

SLASH = "\udc2f"
"""Half a character: UTF-8 has none, so no request can bring it along."""

_ENCODED = re.compile("%2[fF]")


class EncodedSlashes:
    """Stands right before the routes. Everybody else, the log of the server among them, sees the path as it came."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        came = scope["path"]

        async def answered(message: Message) -> None:
            scope["path"] = came
            await send(message)

        scope["path"] = separated(scope)
        try:
            await self.app(scope, receive, answered)
        finally:
            scope["path"] = came


def separated(scope: Scope) -> str:
    """The path as routes are to see it."""
    path: str = scope["path"]
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw or not path.startswith(paths.NAMED_BELOW):
        return path
    return SLASH.join(unquote(part) for part in _ENCODED.split(raw.decode("latin-1")))


def joined(text: str) -> str:
    """A name, or a whole path to be shown, as it was meant."""
    return text.replace(SLASH, "/")
