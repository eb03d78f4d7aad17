"""``/docs``: the reference of this API as a page that lets one try calls. All its files come from this server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import Response

from dalsegno.server.sessions import COOKIE

FOLDER = Path(__file__).parent / "static"
FILES = {
    "/docs": ("reference.html", "text/html; charset=utf-8"),
    "/docs/reference.js": ("reference.js", "text/javascript; charset=utf-8"),
    "/docs/reference.css": ("reference.css", "text/css; charset=utf-8"),
}
"""By fixed names: no part of a path ever becomes the name of a file."""


SCHEMES = {
    "key": {"type": "http", "scheme": "bearer", "description": "An API key, `ds_…`."},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "As `POST /v1/session` sets it.",
    },
}
EITHER: list[dict[str, list[str]]] = [{"key": []}, {"session": []}, {}]
"""Or nothing at all, on a server without keys."""


def install(application: FastAPI) -> None:
    _describe_access(application)
    for path, (name, media) in FILES.items():
        content = (FOLDER / name).read_bytes()
        application.add_api_route(path, _served(content, media), include_in_schema=False)


def _describe_access(application: FastAPI) -> None:
    """The guard stands before the framework, which therefore cannot know of it."""
    plain = application.openapi

    def with_access() -> dict[str, Any]:
        document = plain()
        document.setdefault("components", {})["securitySchemes"] = SCHEMES
        document["security"] = EITHER
        return document

    application.openapi = with_access  # type: ignore[method-assign]


def _served(content: bytes, media: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, media_type=media, headers={"Cache-Control": "no-cache"})

    return page
