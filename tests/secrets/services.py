"""Real HTTP services on loopback that try to get at what they are sent, and remember it."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from aiohttp import web

SEEN = web.AppKey("seen", list[tuple[str, str, dict[str, str]]])


async def _remember(request: web.Request) -> None:
    request.app[SEEN].append((request.path, request.query_string, dict(request.headers)))


def _report(request: web.Request) -> str:
    return json.dumps(
        {"headers": dict(request.headers), "query": request.query_string, "url": str(request.url)}
    )


async def echo(request: web.Request) -> web.Response:
    """Everything back, as JSON, in the headers too."""
    await _remember(request)
    told = {"X-Echo": request.headers.get("Authorization", "-"), "X-Query": request.query_string or "-"}
    return web.Response(text=_report(request), content_type="application/json", headers=told)


async def binary(request: web.Request) -> web.Response:
    """Everything back as bytes, which the node keeps as base64."""
    return web.Response(body=b"\x00\x01" + _report(request).encode(), content_type="image/png")


async def encoded(request: web.Request) -> web.Response:
    return web.Response(text=base64.b64encode(_report(request).encode()).decode())


async def page(request: web.Request) -> web.Response:
    """An error page of a debugging server. The secret stands right where messages are cut."""
    padding = int(request.query.get("padding", 0))
    return web.Response(status=500, text="x" * padding + _report(request), content_type="text/plain")


async def refused(request: web.Request) -> web.Response:
    text = _report(request)
    return web.Response(status=401, text=text, content_type="application/json", reason="No Way")


async def redirect(request: web.Request) -> web.Response:
    await _remember(request)
    return web.Response(status=307, headers={"Location": request.query["to"]})


async def reflect(request: web.Request) -> web.Response:
    """A redirect elsewhere that carries in its address whatever was received."""
    await _remember(request)
    got = request.headers.get("Authorization", "") or request.query_string
    return web.Response(
        status=307, headers={"Location": f"{request.query['to']}?got={quote(got.split(' ')[-1], safe='')}"}
    )


async def pages(request: web.Request) -> web.Response:
    """Two pages; the address of the second says nothing of what authorises."""
    await _remember(request)
    number = int(request.query.get("page", 1))
    following = "/pages?page=2" if number == 1 else None
    return web.json_response({"items": [number], "next": following})


def service() -> web.Application:
    app = web.Application()
    app[SEEN] = []
    for path, handler in (
        ("/echo", echo), ("/binary", binary), ("/encoded", encoded), ("/page", page), ("/refused", refused),
        ("/redirect", redirect), ("/reflect", reflect), ("/pages", pages),
    ):  # fmt: skip
        app.router.add_route("*", path, handler)
    return app
