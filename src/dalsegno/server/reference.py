"""``/docs``: Swagger UI on the document of this API. All its files are part of the package."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, get_args

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from dalsegno.model.execution import ExecutionState
from dalsegno.server import examples
from dalsegno.server.problems import Problem
from dalsegno.server.schemas.definitions import DefinitionSource, GraphDocument
from dalsegno.server.sessions import COOKIE

OPENAPI = "/v1/openapi.json"
FOLDER = Path(__file__).parent / "static"
SCRIPT = "text/javascript; charset=utf-8"
STYLE = "text/css; charset=utf-8"
FILES = {
    "/docs": ("reference.html", "text/html; charset=utf-8"),
    "/docs/reference.js": ("reference.js", SCRIPT),
    "/docs/reference.css": ("reference.css", STYLE),
    "/docs/swagger-ui-bundle.js": ("swagger/swagger-ui-bundle.js", SCRIPT),
    "/docs/swagger-ui.css": ("swagger/swagger-ui.css", STYLE),
    "/docs/favicon-32x32.png": ("swagger/favicon-32x32.png", "image/png"),
}
"""By fixed names: no part of a path ever becomes the name of a file. `scripts/vendor_swagger.py` renews those of
Swagger UI."""


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
UNSEEN: tuple[type[BaseModel], ...] = (Problem, DefinitionSource, GraphDocument)
"""Models of bodies that the framework does not read or write itself."""


def install(application: FastAPI, described: Callable[[], dict[str, Any]]) -> None:
    """``described`` renders the document of all routes."""
    _describe_access(application, described)
    application.add_api_route(OPENAPI, _Document(application).reply, include_in_schema=False)
    application.add_api_route("/", _to_the_reference, include_in_schema=False)
    for path, (name, media) in FILES.items():
        application.add_api_route(path, _served(_File(FOLDER / name, media)), include_in_schema=False)


def _describe_access(application: FastAPI, described: Callable[[], dict[str, Any]]) -> None:
    """What the framework cannot know: access, which the guard checks before it, errors, and bodies that are read apart.
    Each answer gets an example."""

    @cache
    def with_access() -> dict[str, Any]:
        document = described()
        components = document.setdefault("components", {})
        components.setdefault("schemas", {}).update(_unseen_schemas())
        _name_states(document)
        _summarize(document)
        examples.complete(document)
        components["securitySchemes"] = SCHEMES
        document["security"] = EITHER
        return document

    application.openapi = with_access  # type: ignore[method-assign]


def _unseen_schemas() -> dict[str, Any]:
    _, found = models_json_schema(
        [(model, "validation") for model in UNSEEN], ref_template="#/components/schemas/{model}"
    )
    return dict(found["$defs"])


def _summarize(document: dict[str, Any]) -> None:
    """By the operation's name: "Start execution". The framework takes the name of a function, which is for us."""
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["summary"] = operation["operationId"].replace("_", " ").capitalize()


def _name_states(document: dict[str, Any]) -> None:
    """One schema for the states of executions, wherever they stand: else each place is a type of its own in generated
    clients."""
    _refer_to(document, list(get_args(ExecutionState)), {"$ref": "#/components/schemas/ExecutionState"})
    named = {"type": "string", "enum": list(get_args(ExecutionState)), "title": "ExecutionState"}
    document["components"]["schemas"]["ExecutionState"] = named


def _refer_to(below: Any, values: list[str], reference: dict[str, str]) -> None:
    if isinstance(below, dict):
        if below.get("enum") == values:
            kept = {key: below[key] for key in ("default", "description") if key in below}
            below.clear()
            below.update(reference | kept)
        for each in below.values():
            _refer_to(each, values, reference)
    elif isinstance(below, list):
        for each in below:
            _refer_to(each, values, reference)


class _Document:
    """The OpenAPI document as JSON: made once, in a thread, when it is first asked for."""

    def __init__(self, application: FastAPI) -> None:
        self._application = application
        self._made: asyncio.Task[bytes] | None = None

    async def reply(self) -> Response:
        if self._made is None or self._made.get_loop() is not asyncio.get_running_loop():
            self._made = asyncio.create_task(asyncio.to_thread(self._render))
        return Response(await asyncio.shield(self._made), media_type="application/json")

    def _render(self) -> bytes:
        return msgspec.json.encode(self._application.openapi())


class _File:
    """Read and packed once, when it is first asked for: everybody may ask, and it is large."""

    def __init__(self, path: Path, media: str) -> None:
        self.path = path
        self.media = media

    @cached_property
    def content(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 6, mtime=0)

    @cached_property
    def tag(self) -> str:
        return f'"{blake2b(self.content, digest_size=12).hexdigest()}"'


async def _to_the_reference() -> RedirectResponse:
    """Whoever opens a server in a browser wants to know what it can do."""
    return RedirectResponse("/docs")


def _served(file: _File) -> Callable[[Request], Awaitable[Response]]:
    async def page(request: Request) -> Response:
        headers = {"Cache-Control": "no-cache", "ETag": file.tag, "Vary": "Accept-Encoding"}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.content, headers=headers, media_type=file.media)
        headers["Content-Encoding"] = "gzip"
        return Response(file.packed, headers=headers, media_type=file.media)

    return page
