"""What operators allow one run of the http node, whatever its document asks for."""

from __future__ import annotations

import asyncio
import gc
import gzip
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.service import HttpLimits, HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import run_node
from tests.waiting import come_about

CENTURY = 100 * 365 * 24 * 3600
MEGABYTE = 1024 * 1024


async def fetch(clients: HttpClients, limits: HttpLimits, url: str, **parameters: Any) -> Any:
    service = HttpService(make=lambda: clients, limits=limits)
    return await run_node("http", {"url": url, **parameters}, services={"http": service})


async def failure_of(clients: HttpClients, limits: HttpLimits, url: str, **parameters: Any) -> Any:
    with pytest.raises(NodeError) as caught:
        await fetch(clients, limits, url, **parameters)
    return caught.value.failure


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"timeout": CENTURY}, ("timeout", "http_timeout", "300 s")),
        ({"max_response_bytes": 10**12}, ("max_response_bytes", "http_response_bytes", "67,108,864 bytes")),
    ],
)
async def test_a_document_that_asks_for_more_than_operators_allow_fails_before_anything_is_sent(
    server: TestServer, clients: HttpClients, parameters: dict[str, Any], named: tuple[str, ...]
) -> None:
    asked: list[str] = []

    async def note(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response()

    application = web.Application()
    application.router.add_get("/", note)
    async with TestServer(application) as counting:
        failure = await failure_of(clients, HttpLimits(), str(counting.make_url("/")), **parameters)
    assert failure.code == "HTTP_LIMIT"
    assert not failure.retryable
    assert all(word in failure.message for word in named), failure.message
    assert asked == []


async def test_defaults_of_the_node_give_way_to_smaller_limits(
    server: TestServer, clients: HttpClients
) -> None:
    limits = HttpLimits(timeout=0.2, response_bytes=100)
    late = await failure_of(clients, limits, str(server.make_url("/slow")))
    assert (late.code, late.details["timeout"]) == ("HTTP_TIMEOUT", 0.2)
    large = await failure_of(clients, limits, str(server.make_url("/stream?kilobytes=5000")))
    assert (large.code, large.details["max_response_bytes"]) == ("HTTP_RESPONSE_TOO_LARGE", 100)


async def test_the_limits_hold_over_all_pages_and_redirects(clients: HttpClients) -> None:
    pages = 0

    async def page(request: web.Request) -> web.Response:
        nonlocal pages
        pages += 1
        await asyncio.sleep(pause)  # each page is in time by itself
        number = int(request.query.get("page", "0")) + 1
        return web.json_response({"next": f"/hop?to={number}", "filler": "x" * 400})

    async def hop(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"/?page={request.query['to']}"})

    application = web.Application()
    application.router.add_get("/", page)
    application.router.add_get("/hop", hop)
    pagination = {"next_url_path": "body.next", "max_pages": 1000}
    async with TestServer(application) as endless:
        url = str(endless.make_url("/"))
        pause = 0.05
        late = await failure_of(clients, HttpLimits(timeout=0.3), url, pagination=pagination)
        assert pages > 1
        pause = 0.0
        large = await failure_of(clients, HttpLimits(response_bytes=1000), url, pagination=pagination)
    assert (late.code, large.code) == ("HTTP_TIMEOUT", "HTTP_RESPONSE_TOO_LARGE")


@pytest.mark.parametrize("is_packed", [False, True])
async def test_a_huge_or_packed_response_stops_at_the_limit_and_leaves_no_memory_behind(
    clients: HttpClients, is_packed: bool
) -> None:
    """Sixty megabytes, sent in pieces of unknown number or packed into sixty kilobytes."""
    piece = b"0" * MEGABYTE
    packed = gzip.compress(piece * 60) if is_packed else b""
    sent = 0

    async def huge(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        if is_packed:
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(60):
                await response.write(piece)
                sent += len(piece)
        except ConnectionError:
            pass  # the client had enough
        return response

    application = web.Application()
    application.router.add_get("/", huge)
    async with TestServer(application) as server:
        url = str(server.make_url("/"))
        gc.collect()
        tracemalloc.start()
        try:
            failure = await failure_of(
                clients, HttpLimits(response_bytes=4 * MEGABYTE), url, max_response_bytes=4 * MEGABYTE
            )
            gc.collect()
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert failure.code == "HTTP_RESPONSE_TOO_LARGE"
    assert kept < 3 * MEGABYTE, f"{kept:,} bytes are kept"
    assert sent < 30 * MEGABYTE, f"{sent:,} bytes were sent before the client stopped"
    assert peak < 30 * MEGABYTE, f"{peak:,} bytes at the peak"


async def test_a_run_that_is_cancelled_lets_go_of_what_it_has_read(clients: HttpClients) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(20):
            await response.write(b"0" * MEGABYTE)
        await asyncio.sleep(30)
        return response

    application = web.Application()
    application.router.add_get("/", endless)
    async with TestServer(application) as server:
        tracemalloc.start()
        try:
            run = asyncio.create_task(
                fetch(clients, HttpLimits(), str(server.make_url("/")), max_response_bytes=50 * MEGABYTE)
            )
            await come_about(lambda: tracemalloc.get_traced_memory()[0] >= 15 * MEGABYTE, "it reads")
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            del run

            def kept() -> int:
                gc.collect()
                return tracemalloc.get_traced_memory()[0]

            await come_about(lambda: kept() < 5 * MEGABYTE, "what it has read is freed")
        finally:
            tracemalloc.stop()
