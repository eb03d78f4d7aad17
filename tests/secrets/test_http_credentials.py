"""The http node with credentials: what it sends where, and what it refuses to send."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from dalsegno.errors import CredentialNotFound, CredentialRefused
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.node import HttpParameters
from dalsegno.nodes.http.request import build_request
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential
from tests.nodes.fakes import FakeContext, problems_of, run_node
from tests.secrets.services import SEEN, service

TOKEN = "t0ken-of-the-crm"


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    async with TestServer(service(), host="127.0.0.1") as running:
        yield running


@pytest.fixture
async def clients() -> AsyncIterator[HttpClients]:
    provider = HttpClients()
    yield provider
    await provider.close()


def seen(server: TestServer) -> list[tuple[str, str, dict[str, str]]]:
    app = server.app
    assert isinstance(app, web.Application)
    return app[SEEN]


def crm(
    type: str = "bearer", hosts: tuple[str, ...] = ("http://127.0.0.1:*",), sent_as: str = ""
) -> Credential:
    values = {
        "bearer": {"token": TOKEN},
        "basic": {"username": "annabel", "password": TOKEN},
        "header": {"value": TOKEN},
        "query": {"value": TOKEN},
        "custom": {"anything": TOKEN},
    }[type]
    return Credential("crm", type, values, hosts, sent_as)


async def fetch(clients: HttpClients, url: Any, known: Credential, **parameters: Any) -> Any:
    context = FakeContext(services={"http": HttpService(make=lambda: clients)}, credentials={"crm": known})
    return await run_node("http", {"url": str(url), "credential": "crm", **parameters}, context)


@pytest.mark.parametrize(
    ("credential", "header", "value"),
    [
        (crm(), "Authorization", f"Bearer {TOKEN}"),
        (crm("basic"), "Authorization", "Basic " + base64.b64encode(f"annabel:{TOKEN}".encode()).decode()),
        (crm("header", sent_as="X-Api-Key"), "X-Api-Key", TOKEN),
    ],
)
async def test_a_credential_is_sent_as_a_header(
    server: TestServer, clients: HttpClients, credential: Credential, header: str, value: str
) -> None:
    given = {"authorization": "mine", "x-api-key": "mine"} if header == "X-Api-Key" else {}
    await fetch(clients, server.make_url("/echo"), credential, headers=given)
    assert seen(server)[0][2][header] == value


async def test_a_credential_is_sent_in_the_address(server: TestServer, clients: HttpClients) -> None:
    url = server.make_url("/echo").with_query(a="1", api_key="guess")
    await fetch(clients, url, crm("query", sent_as="api_key"), query={"b": 2})
    assert seen(server)[0][1] == f"a=1&api_key={TOKEN}&b=2"


@pytest.mark.parametrize("hosts", [(), ("api.example.com",), ("http://127.0.0.1:1",), ("*.0.0.1.example",)])
async def test_a_host_that_is_not_listed_gets_nothing_at_all(
    server: TestServer, clients: HttpClients, hosts: tuple[str, ...]
) -> None:
    with pytest.raises(CredentialRefused, match=r"'crm' may not be sent to (http://)?127\.0\.0\.1"):
        await fetch(clients, server.make_url("/echo"), crm(hosts=hosts))
    assert seen(server) == []


async def test_a_listed_port_is_meant(server: TestServer, clients: HttpClients) -> None:
    await fetch(clients, server.make_url("/echo"), crm(hosts=(f"http://127.0.0.1:{server.port}",)))
    assert len(seen(server)) == 1


@pytest.mark.parametrize("entry", ["127.0.0.1", "127.0.0.1:{}", "*", "127.0.0.1:*"])
async def test_plain_http_needs_an_entry_that_allows_it(
    server: TestServer, clients: HttpClients, entry: str
) -> None:
    with pytest.raises(CredentialRefused) as caught:
        await fetch(clients, server.make_url("/echo"), crm(hosts=(entry.format(server.port),)))
    assert f"replace the entry by 'http://127.0.0.1:{server.port}'" in str(caught.value)
    assert seen(server) == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://127.0.0.1:{}/echo", "replace the entry by '127.0.0.1:{}'"),
        ("http://127.0.0.1:{}/echo", "replace the entry by 'http://127.0.0.1:{}'"),
    ],
)
async def test_an_entry_without_a_port_means_the_usual_one(
    server: TestServer, clients: HttpClients, url: str, said: str
) -> None:
    with pytest.raises(CredentialRefused) as caught:
        await fetch(clients, url.format(server.port), crm(hosts=("127.0.0.1",)))
    assert said.format(server.port) in str(caught.value)
    assert seen(server) == []


async def test_a_server_whose_certificate_is_not_checked_gets_nothing(clients: HttpClients) -> None:
    with pytest.raises(CredentialRefused, match="without a check of its certificate"):
        await fetch(clients, "https://127.0.0.1/", crm(hosts=("127.0.0.1",)), ignore_ssl=True)


@pytest.mark.parametrize(
    "name", ["Host", "hOST", "Transfer-Encoding", "Content-Length", "Proxy-Authorization"]
)
@pytest.mark.parametrize("attached", [True, False])
async def test_no_header_of_the_connection_goes_out(
    server: TestServer, clients: HttpClients, name: str, attached: bool
) -> None:
    """Behind one address there may be several services: the one that gets the token is the one that was checked."""
    context = FakeContext(
        {"$json": {"headers": {name: "internal.example"}}},
        services={"http": HttpService(make=lambda: clients)},
        credentials={"crm": crm()},
    )
    named = {"credential": "crm"} if attached else {}
    parameters = {"url": str(server.make_url("/echo")), "headers": "{{ $json.headers }}", **named}
    with pytest.raises(NodeError, match="belongs to the connection") as caught:
        await run_node("http", parameters, context)
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("INVALID_PARAMETERS", False)
    assert seen(server) == []


async def test_a_credential_stored_for_such_a_header_is_not_sent(
    server: TestServer, clients: HttpClients
) -> None:
    with pytest.raises(CredentialRefused, match="belongs to the connection"):
        await fetch(clients, server.make_url("/echo"), crm("header", sent_as="Host"))
    assert seen(server) == []


def test_a_step_to_https_on_the_same_host_keeps_it_only_where_an_entry_permits_that() -> None:
    for entry, is_kept in (("http://a.example", True), ("http://a.example:80", False)):
        first = build_request(HttpParameters(url="http://a.example/x"), "key", crm(hosts=(entry,)))
        second = first.moved_to("https://a.example/x")
        assert ("Authorization" in second.headers) is is_kept


@pytest.mark.parametrize(
    "url", ["http://evil.example@127.0.0.1:{}/echo", "http://127.0.0.1:{}/echo#@evil.example"]
)
async def test_the_host_that_is_judged_is_the_host_that_is_asked(
    server: TestServer, clients: HttpClients, url: str
) -> None:
    with pytest.raises(CredentialRefused):
        await fetch(clients, url.format(server.port), crm(hosts=("evil.example",)))
    assert seen(server) == []


@pytest.mark.parametrize(
    "credential",
    [
        crm(hosts=("http://*:*",)),
        crm("header", ("http://*:*",), "X-Odd"),
        crm("query", ("http://*:*",), "k"),
        crm("basic", ("http://*:*",)),
    ],
)
async def test_a_redirect_to_another_host_drops_it_even_if_that_is_listed(
    server: TestServer, clients: HttpClients, credential: Credential
) -> None:
    elsewhere = server.make_url("/echo").with_host("localhost").with_query(a="1")
    await fetch(clients, server.make_url("/redirect").with_query(to=str(elsewhere)), credential)
    first, second = seen(server)
    assert TOKEN in str(first) or "Basic " in str(first)
    assert (second[0], second[1]) == ("/echo", "a=1")
    assert not {"Authorization", "X-Odd"} & set(second[2])


async def test_it_does_not_come_back_after_a_detour(server: TestServer, clients: HttpClients) -> None:
    home = server.make_url("/echo")
    away = server.make_url("/redirect").with_host("localhost").with_query(to=str(home))
    await fetch(clients, server.make_url("/redirect").with_query(to=str(away)), crm(hosts=("http://*:*",)))
    assert [("Authorization" in headers) for _, _, headers in seen(server)] == [True, False, False]


async def test_a_redirect_on_the_same_host_keeps_it(server: TestServer, clients: HttpClients) -> None:
    await fetch(clients, server.make_url("/redirect").with_query(to="/echo"), crm())
    await fetch(clients, server.make_url("/redirect").with_query(to="/echo"), crm("query", sent_as="k"))
    assert seen(server)[1][2]["Authorization"] == f"Bearer {TOKEN}"
    assert seen(server)[3][1] == f"k={TOKEN}"


@pytest.mark.parametrize("credential", [crm(), crm("query", sent_as="k")])
async def test_a_redirect_that_carries_it_elsewhere_in_its_address_is_not_followed(
    server: TestServer, clients: HttpClients, credential: Credential
) -> None:
    elsewhere = str(server.make_url("/echo").with_host("localhost"))
    with pytest.raises(CredentialRefused, match="would carry a credential to localhost"):
        await fetch(clients, server.make_url("/reflect").with_query(to=elsewhere), credential)
    assert [path for path, _, _ in seen(server)] == ["/reflect"]


async def test_every_page_is_authorised(server: TestServer, clients: HttpClients) -> None:
    pagination = {"next_url_path": "body.next", "items_path": "body.items"}
    for credential in (crm(), crm("query", sent_as="k")):
        output = await fetch(clients, server.make_url("/pages"), credential, pagination=pagination)
        assert output["body"] == [1, 2]
    assert all(TOKEN in f"{query} {headers.get('Authorization')}" for _, query, headers in seen(server))


async def test_a_credential_of_another_type_cannot_be_sent(server: TestServer, clients: HttpClients) -> None:
    with pytest.raises(CredentialRefused, match="'custom'"):
        await fetch(clients, server.make_url("/echo"), crm("custom"))


async def test_an_unknown_credential_is_named(server: TestServer, clients: HttpClients) -> None:
    with pytest.raises(CredentialNotFound, match="'other'"):
        await fetch(clients, server.make_url("/echo"), crm(), credential="other")
    assert seen(server) == []


def test_auth_and_credential_together_are_refused_in_a_document() -> None:
    parameters = {"url": "http://x", "credential": "crm", "auth": {"type": "bearer", "token": "t"}}
    assert "keep one of them" in str(problems_of("http", parameters))


async def test_auth_and_the_nodes_credentials_together_are_refused(clients: HttpClients) -> None:
    context = FakeContext(services={"http": HttpService(make=lambda: clients)}, credentials={"crm": crm()})
    context.credential_name = "crm"
    parameters = {"url": "http://127.0.0.1", "auth": {"type": "bearer", "token": "t"}}
    with pytest.raises(NodeError, match="keep one of them"):
        await run_node("http", parameters, context)
