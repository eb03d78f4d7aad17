"""Alerts go where the egress policy permits: judged is the host to which the client connects, however it is spelt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from dalsegno.admin.alerts import Failed, Message, Receiver, post
from dalsegno.errors import NotDelivered
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import EgressDenied, EgressPolicy

MESSAGE = Message("m1", "ops", 1, (Failed("e", "w", 1, "", "X", "no luck", "", ""),))


@pytest.fixture
async def listener() -> AsyncIterator[tuple[int, list[str]]]:
    """A port of the loopback address, and who connected to it."""
    met: list[str] = []

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append("somebody")
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], met


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "１２７.０.０.１",
        "127。0。0。1",
        "127｡0｡0｡1",
        "①②⑦.0.0.1",
        "127．0．0．1",
        "2130706433",
        "２１３０７０６４３３",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "127.0.0.1.",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::1%25lo]",
        "localhost",
        "ｌｏｃａｌｈｏｓｔ",
    ],
)
async def test_no_spelling_of_a_private_address_is_connected_to(
    listener: tuple[int, list[str]], host: str
) -> None:
    port, met = listener
    with pytest.raises(NotDelivered, match="are blocked"):
        await post(Receiver(f"http://{host}:{port}/"), MESSAGE, EgressPolicy.blocking(), 0.0)
    assert met == []


async def test_the_connector_judges_addresses_without_anybodys_help(listener: tuple[int, list[str]]) -> None:
    """Also in redirects, which the session follows by itself."""
    port, met = listener
    clients = HttpClients(EgressPolicy.blocking())
    try:
        for url in (
            f"http://127.0.0.1:{port}/",
            f"http://[::ffff:127.0.0.1]:{port}/",
            f"http://１２７.0.0.1:{port}/",
        ):
            with pytest.raises(EgressDenied):
                await clients.session().get(url)
    finally:
        await clients.close()
    assert met == []


async def test_a_name_that_resolves_to_a_private_address_is_not_connected_to(
    listener: tuple[int, list[str]],
) -> None:
    port, met = listener

    class Pointing(AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:  # type: ignore[override]
            found = {"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 0, "flags": 0}
            return [ResolveResult(**found)]  # type: ignore[typeddict-item]

        async def close(self) -> None:
            pass

    clients = HttpClients(EgressPolicy.blocking(), resolver=Pointing())
    try:
        with pytest.raises(EgressDenied):
            await clients.session().get(f"http://public.example:{port}/")
    finally:
        await clients.close()
    assert met == []


async def test_what_the_operator_allows_is_connected_to(listener: tuple[int, list[str]]) -> None:
    port, met = listener
    await post(Receiver(f"http://１２７.0.0.1:{port}/"), MESSAGE, EgressPolicy.blocking("127.0.0.0/8"), 0.0)
    await post(
        Receiver(f"http://ｌｏｃａｌｈｏｓｔ:{port}/"), MESSAGE, EgressPolicy.blocking("localhost"), 0.0
    )
    assert len(met) == 2
