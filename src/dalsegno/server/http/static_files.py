"""Files that the server sends to browsers: those of the web UI, and those of the API reference.

Files have fixed paths: no part of a request's path ever becomes the name of a file. The web UI is built into the
package (`make web`); its pages are one file, which reads the path itself. The names of its other files contain a hash
of their content, so browsers keep them.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from dalsegno.server.http.request import UI_FILES, UI_PAGES

FOLDER = Path(__file__).parents[1] / "static" / "web"
PAGE = "index.html"
PAGES = ("/", *UI_PAGES, "/executions/{rest:path}", "/workflows/{rest:path}")
SCRIPT = "text/javascript; charset=utf-8"
STYLE = "text/css; charset=utf-8"
HTML = "text/html; charset=utf-8"
MEDIA = {".js": SCRIPT, ".css": STYLE, ".svg": "image/svg+xml", ".html": HTML}
ASSETS = "/assets/"
KEPT = "public, max-age=31536000, immutable"
CHECKED = "no-cache"
POLICY = (
    "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Of the UI's page: nothing is loaded from other hosts, and only files of this server are executed."""
NOT_BUILT = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>Dal Segno</title>
<h1>Dal Segno</h1>
<p>The server runs. Its web UI is not built: an editable install leaves it out. In the checkout, run
<code>make web</code> and start the server again.</p>
<p><a href="/docs">API reference</a></p></html>
"""


class StaticFile:
    """A file that is read and compressed once, on the first request: it is public, and may be large."""

    def __init__(self, path: Path, media: str, caching: str = CHECKED, policy: str | None = None) -> None:
        self.path = path
        self.media = media
        self.headers = {"Cache-Control": caching, "Vary": "Accept-Encoding"}
        if policy is not None:
            self.headers["Content-Security-Policy"] = policy

    @cached_property
    def content(self) -> bytes:
        return self.path.read_bytes()

    @cached_property
    def packed(self) -> bytes:
        return gzip.compress(self.content, 6, mtime=0)

    @cached_property
    def tag(self) -> str:
        return f'"{blake2b(self.content, digest_size=12).hexdigest()}"'

    def load(self) -> None:
        """Read and compress the file. A large one takes tens of milliseconds, so not in the event loop."""
        _ = self.tag, self.packed


def served(file: StaticFile) -> Callable[[Request], Awaitable[Response]]:
    """Return the route that sends a file."""

    async def page(request: Request) -> Response:
        await asyncio.to_thread(file.load)
        headers = {**file.headers, "ETag": file.tag}
        if file.tag in request.headers.get("if-none-match", ""):
            return Response(None, 304, headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.content, headers=headers, media_type=file.media)
        headers["Content-Encoding"] = "gzip"
        return Response(file.packed, headers=headers, media_type=file.media)

    return page


def install(application: FastAPI, folder: Path = FOLDER) -> None:
    """Install the web UI of ``folder``; if it is not built, a page that says how to build it."""
    if not (folder / PAGE).is_file():
        for path in PAGES:
            application.add_api_route(path, _not_built, include_in_schema=False)
        return
    page = served(StaticFile(folder / PAGE, HTML, policy=POLICY))
    for path in PAGES:
        application.add_api_route(path, page, include_in_schema=False)
    for path in UI_FILES:
        file = folder / path.removeprefix("/")
        application.add_api_route(path, served(StaticFile(file, MEDIA[file.suffix])), include_in_schema=False)
    for file in sorted((folder / ASSETS.strip("/")).iterdir()):
        if file.suffix in MEDIA:
            route = served(StaticFile(file, MEDIA[file.suffix], KEPT))
            application.add_api_route(ASSETS + file.name, route, include_in_schema=False)


async def _not_built() -> Response:
    return HTMLResponse(NOT_BUILT)
