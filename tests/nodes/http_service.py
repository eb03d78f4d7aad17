"""A real HTTP service on loopback that the http node's tests talk to."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

from aiohttp import web


async def echo(request: web.Request) -> web.Response:
    """What arrived, as JSON."""
    return web.json_response(
        {
            "method": request.method,
            "path": request.path,
            "query": [[name, value] for name, value in request.query.items()],
            "headers": dict(request.headers),
            "body": (await request.read()).decode(),
        }
    )


async def status(request: web.Request) -> web.Response:
    """Any status, with the headers that the query asks for."""
    return web.Response(
        status=int(request.match_info["code"]), text="the reason", headers=dict(request.query)
    )


async def redirect(request: web.Request) -> web.Response:
    """A redirect to wherever the query says."""
    location = request.query["to"]
    return web.Response(status=int(request.match_info["code"]), headers={"Location": location})


async def loop(_request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "/loop"})


async def slow(request: web.Request) -> web.StreamResponse:
    """Starts to answer and never ends."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"wait for it")
    await asyncio.sleep(60)
    return response


async def stream(request: web.Request) -> web.StreamResponse:
    """As many bytes as asked for, without telling beforehand."""
    response = web.StreamResponse()
    await response.prepare(request)
    try:
        for _ in range(int(request.query["kilobytes"])):
            await response.write(b"x" * 1024)
    except ConnectionError:
        pass  # the client had enough
    return response


async def raw(request: web.Request) -> web.Response:
    """The body in the query, under the content type in the query."""
    headers = {"Content-Type": request.query["type"]} if "type" in request.query else {}
    return web.Response(body=request.query["body"].encode("latin-1"), headers=headers)


async def bomb(_request: web.Request) -> web.Response:
    """Ten megabytes packed into ten kilobytes."""
    body = gzip.compress(b"0" * 10_000_000)
    return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "text/plain"})


async def packed(_request: web.Request) -> web.Response:
    body = gzip.compress(json.dumps({"packed": True}).encode())
    return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})


async def broken(request: web.Request) -> web.StreamResponse:
    """Promises more than it sends, then hangs up."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"half")
    assert request.transport is not None
    request.transport.close()
    return response


async def repeated(_request: web.Request) -> web.Response:
    response = web.Response(text="ok")
    response.headers.add("X-Many", "1")
    response.headers.add("X-Many", "2")
    response.headers.add("Set-Cookie", "a=1")
    response.headers.add("Set-Cookie", "b=2")
    return response


PAGES: list[list[int]] = [[1, 2], [3, 4], [5]]


async def pages(request: web.Request) -> web.Response:
    """Three pages; linked by body and Link header, or counted by ``page``."""
    number = int(request.query.get("page", 1))
    items = PAGES[number - 1] if number <= len(PAGES) else []
    key = request.headers.get("Idempotency-Key")
    body: dict[str, Any] = {"items": items, "next": None, "key": key}
    headers = {}
    if number < len(PAGES):
        body["next"] = f"/pages?page={number + 1}"
        headers["Link"] = f'</pages?page=1>; rel="first", </pages?page={number + 1}>; rel="next"'
    return web.json_response(body, headers=headers)


def service() -> web.Application:
    app = web.Application(client_max_size=50 * 1024 * 1024)
    app.router.add_route("*", "/echo", echo)
    app.router.add_route("*", "/status/{code}", status)
    app.router.add_route("*", "/redirect/{code}", redirect)
    app.router.add_get("/loop", loop)
    app.router.add_get("/slow", slow)
    app.router.add_get("/stream", stream)
    app.router.add_get("/raw", raw)
    app.router.add_get("/bomb", bomb)
    app.router.add_get("/packed", packed)
    app.router.add_get("/broken", broken)
    app.router.add_get("/repeated", repeated)
    app.router.add_route("*", "/pages", pages)
    return app
