"""Names that change their address between the check and the connection, with real servers on two loopback addresses.

127.0.0.1 stands for a permitted address, 127.0.0.2 for an inner one that must never be reached.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import TCPConnector, web
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer, unused_port

from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import EgressPolicy
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import run_node

GOOD, INNER = "127.0.0.1", "127.0.0.2"


class Turncoat(AbstractResolver):
    """Gives its answers one after the other; the last one for good."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in answer
        ]

    async def close(self) -> None: ...


class Place:
    """A server that counts what reaches it."""

    def __init__(self) -> None:
        self.visits = 0
        self.app = web.Application()
        self.app.router.add_get("/", self._answer)
        self.app.router.add_get("/redirect", self._redirect)

    async def _answer(self, _request: web.Request) -> web.Response:
        self.visits += 1
        return web.json_response({"visits": self.visits})

    async def _redirect(self, request: web.Request) -> web.Response:
        self.visits += 1
        return web.Response(status=302, headers={"Location": request.query["to"]})


@pytest.fixture
async def places() -> AsyncIterator[tuple[Place, Place, int]]:
    """The permitted and the inner one, on the same port."""
    good, inner = Place(), Place()
    async with TestServer(good.app, host=GOOD) as first:
        assert first.port is not None
        async with TestServer(inner.app, host=INNER, port=first.port):
            yield good, inner, first.port


def clients_with(resolver: AbstractResolver, allow: str = f"{GOOD}/32") -> HttpClients:
    return HttpClients(EgressPolicy.blocking(allow), resolver=resolver)


async def get(clients: HttpClients, url: str, **parameters: Any) -> Any:
    services = {"http": HttpService(make=lambda: clients)}
    return await run_node("http", {"url": url, "timeout": 10, **parameters}, services=services)


async def refused(clients: HttpClients, url: str, **parameters: Any) -> str:
    with pytest.raises(NodeError) as caught:
        await get(clients, url, **parameters)
    return caught.value.failure.code


async def test_a_name_is_asked_once_and_its_answer_is_where_the_connection_goes(
    places: tuple[Place, Place, int],
) -> None:
    good, inner, port = places
    resolver = Turncoat([GOOD], [INNER])
    clients = clients_with(resolver)
    assert (await get(clients, f"http://fickle.example:{port}/"))["status"] == 200
    assert (resolver.asked, good.visits, inner.visits) == (1, 1, 0)
    await clients.close()


async def test_a_later_answer_is_judged_again(places: tuple[Place, Place, int]) -> None:
    good, inner, port = places
    clients = clients_with(Turncoat([GOOD], [INNER]))
    url = f"http://fickle.example:{port}/"
    await get(clients, url)
    connector = clients.session().connector
    assert isinstance(connector, TCPConnector)
    connector.clear_dns_cache()
    await get(clients, url)  # over the connection that is open: to the address that was judged
    await connector.close()
    await clients.close()
    assert await refused(clients, url) == "HTTP_EGRESS_BLOCKED"
    assert (good.visits, inner.visits) == (2, 0)
    await clients.close()


async def test_a_redirect_to_the_same_name_is_judged_again(places: tuple[Place, Place, int]) -> None:
    good, inner, port = places
    inner_port = unused_port()
    async with TestServer(inner.app, host=INNER, port=inner_port):
        clients = clients_with(Turncoat([GOOD], [INNER]))
        target = f"http://fickle.example:{inner_port}/"
        code = await refused(clients, f"http://fickle.example:{port}/redirect", query={"to": target})
        assert (code, good.visits, inner.visits) == ("HTTP_EGRESS_BLOCKED", 1, 0)
        await clients.close()


async def test_when_the_permitted_address_does_not_answer_the_other_is_not_tried(
    places: tuple[Place, Place, int],
) -> None:
    _, inner, _ = places
    port = unused_port()
    async with TestServer(inner.app, host=INNER, port=port):
        clients = clients_with(Turncoat([GOOD, INNER]))
        assert await refused(clients, f"http://mixed.example:{port}/") == "HTTP_CONNECTION_REFUSED"
        assert inner.visits == 0
        await clients.close()


@pytest.mark.parametrize("allow", ["", "10.0.0.0/8", "other.example", "*.fickle.example"])
async def test_what_is_not_listed_is_not_reached_by_any_name(
    places: tuple[Place, Place, int], allow: str
) -> None:
    good, inner, port = places
    for address in (GOOD, INNER):
        clients = clients_with(Turncoat([address]), allow)
        for host in ("fickle.example", address, "127.1", "2130706433", f"[::ffff:{address}]"):
            assert await refused(clients, f"http://{host}:{port}/") == "HTTP_EGRESS_BLOCKED", host
        await clients.close()
    assert (good.visits, inner.visits) == (0, 0)


async def test_a_listed_name_may_lead_inside(places: tuple[Place, Place, int]) -> None:
    _, inner, port = places
    clients = clients_with(Turncoat([INNER]), "*.corp.example")
    assert (await get(clients, f"http://db.corp.example:{port}/"))["status"] == 200
    assert await refused(clients, f"http://db.corp.example.evil.example:{port}/") == "HTTP_EGRESS_BLOCKED"
    assert inner.visits == 1
    await clients.close()
