"""Where the http node connects: redirects, the egress policy with real sockets, and connections that fail."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.test_utils import TestServer, unused_port

from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.egress import EgressPolicy
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import run_node
from tests.nodes.http_service import service


class ScriptedResolver(AbstractResolver):
    """Names that point where the test says; counts how often it was asked."""

    def __init__(self, **names: list[str]) -> None:
        self.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.names:
            raise OSError(None, "Name or service not known")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in self.names[host]
        ]

    async def close(self) -> None: ...


async def fetch(clients: HttpClients, url: str, **parameters: Any) -> Any:
    return await run_node(
        "http", {"url": url, **parameters}, services={"http": HttpService(make=lambda: clients)}
    )


async def failure_of(clients: HttpClients, url: str, **parameters: Any) -> Any:
    with pytest.raises(NodeError) as caught:
        await fetch(clients, url, **parameters)
    return caught.value.failure


@pytest.fixture
async def with_policy() -> AsyncIterator[Any]:
    made: list[HttpClients] = []

    def make(policy: EgressPolicy, resolver: AbstractResolver | None = None) -> HttpClients:
        made.append(HttpClients(policy, resolver=resolver))
        return made[-1]

    yield make
    for clients in made:
        await clients.close()


# --- redirects ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "method", "method_after"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (301, "PUT", "PUT"),
    ],
)
async def test_redirects_change_the_method_as_the_standard_says(
    server: TestServer, clients: HttpClients, code: int, method: str, method_after: str
) -> None:
    url = str(server.make_url(f"/redirect/{code}").update_query(to="/echo"))
    found = (await fetch(clients, url, method=method, body={"a": 1}))["body"]
    assert found["method"] == method_after
    assert found["body"] == ("" if method_after == "GET" else '{"a":1}')
    assert ("Idempotency-Key" in found["headers"]) == (method_after != "GET")


async def test_redirects_are_not_followed_when_declined(server: TestServer, clients: HttpClients) -> None:
    output = await fetch(clients, str(server.make_url("/redirect/302?to=/echo")), follow_redirects=False)
    assert (output["status"], output["headers"]["location"]) == (302, "/echo")


async def test_endless_redirects_end(server: TestServer, clients: HttpClients) -> None:
    failure = await failure_of(clients, str(server.make_url("/loop")))
    assert (failure.code, failure.retryable) == ("HTTP_TOO_MANY_REDIRECTS", False)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/", "file:///etc/passwd", "http://[oops/"])
async def test_a_redirect_to_an_unusable_address_fails(
    server: TestServer, clients: HttpClients, target: str
) -> None:
    url = str(server.make_url("/redirect/302").update_query(to=target))
    assert (await failure_of(clients, url)).code == "HTTP_BAD_URL"


SECRETS = {"Cookie": "c=1", "X-Auth-Token": "t", "X-Plain": "p"}


@pytest.mark.parametrize(
    "auth", [{"type": "bearer", "token": "t"}, {"type": "header", "name": "X-Odd", "value": "v"}]
)
async def test_a_redirect_to_another_host_drops_what_authorises(
    server: TestServer, clients: HttpClients, auth: dict[str, str]
) -> None:
    elsewhere = str(server.make_url("/echo").with_host("localhost"))
    url = str(server.make_url("/redirect/307").update_query(to=elsewhere))
    headers = (await fetch(clients, url, auth=auth, headers=SECRETS))["body"]["headers"]
    assert headers["X-Plain"] == "p"
    assert not {"Authorization", "X-Odd", "Cookie", "X-Auth-Token"} & set(headers)


async def test_a_redirect_to_another_port_drops_what_authorises(
    server: TestServer, clients: HttpClients
) -> None:
    async with TestServer(service(), host="127.0.0.1") as other:
        url = str(server.make_url("/redirect/307").update_query(to=str(other.make_url("/echo"))))
        found = await fetch(clients, url, auth={"type": "bearer", "token": "t"})
    assert "Authorization" not in found["body"]["headers"]


async def test_a_redirect_on_the_same_host_keeps_what_authorises(
    server: TestServer, clients: HttpClients
) -> None:
    url = str(server.make_url("/redirect/307?to=/echo"))
    headers = (await fetch(clients, url, auth={"type": "bearer", "token": "t"}, headers=SECRETS))["body"][
        "headers"
    ]
    assert (headers["Authorization"], headers["Cookie"]) == ("Bearer t", "c=1")


# --- egress ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]"]
)
async def test_loopback_is_blocked_in_every_spelling(server: TestServer, with_policy: Any, host: str) -> None:
    failure = await failure_of(with_policy(EgressPolicy.blocking()), f"http://{host}:{server.port}/echo")
    assert (failure.code, failure.retryable) == ("HTTP_EGRESS_BLOCKED", False)
    assert "DALSEGNO_EGRESS_ALLOW" in failure.message


@pytest.mark.parametrize("allow", ["127.0.0.0/8", "10.0.0.0/8,127.0.0.1", "127.0.0.*"])
async def test_an_allowed_address_is_reached(server: TestServer, with_policy: Any, allow: str) -> None:
    assert (await fetch(with_policy(EgressPolicy.blocking(allow)), str(server.make_url("/echo"))))[
        "status"
    ] == 200


async def test_a_public_name_that_points_to_loopback_is_blocked(server: TestServer, with_policy: Any) -> None:
    resolver = ScriptedResolver(innocent_example=["127.0.0.1"])
    url = f"http://innocent.example:{server.port}/echo"
    assert (
        await failure_of(with_policy(EgressPolicy.blocking(), resolver), url)
    ).code == "HTTP_EGRESS_BLOCKED"
    allowed = with_policy(EgressPolicy.blocking("innocent.example"), resolver)
    assert (await fetch(allowed, url))["status"] == 200


async def test_the_connection_goes_to_the_address_that_was_checked(
    server: TestServer, with_policy: Any
) -> None:
    """A name that changes its address after the check cannot matter: it is asked once, and that answer is used."""
    resolver = ScriptedResolver(changing_example=["127.0.0.1"])
    clients = with_policy(EgressPolicy.blocking("127.0.0.1/32"), resolver)
    assert (await fetch(clients, f"http://changing.example:{server.port}/echo"))["status"] == 200
    assert resolver.asked == ["changing.example"]


async def test_of_several_addresses_only_permitted_ones_are_used(
    server: TestServer, with_policy: Any
) -> None:
    resolver = ScriptedResolver(mixed_example=["10.255.255.1", "127.0.0.1"])
    clients = with_policy(EgressPolicy.blocking("127.0.0.1"), resolver)
    assert (await fetch(clients, f"http://mixed.example:{server.port}/echo", timeout=5))["status"] == 200


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://localhost/", "http://inner.example/"]
)
async def test_a_redirect_to_a_blocked_address_is_not_followed(
    server: TestServer, with_policy: Any, target: str
) -> None:
    resolver = ScriptedResolver(
        outer_example=["127.0.0.1"], inner_example=["10.0.0.1"], localhost=["127.0.0.1"]
    )
    clients = with_policy(EgressPolicy.blocking("outer.example"), resolver)
    url = f"http://outer.example:{server.port}/redirect/302"
    failure = await failure_of(clients, url, query={"to": target})
    assert failure.code == "HTTP_EGRESS_BLOCKED"


async def test_the_next_page_obeys_the_policy(server: TestServer, with_policy: Any) -> None:
    clients = with_policy(
        EgressPolicy.blocking("outer.example"), ScriptedResolver(outer_example=["127.0.0.1"])
    )
    url = f"http://outer.example:{server.port}/raw"
    query = {"type": "application/json", "body": '{"next": "http://10.0.0.1/"}'}
    failure = await failure_of(clients, url, query=query, pagination={"next_url_path": "body.next"})
    assert failure.code == "HTTP_EGRESS_BLOCKED"


async def test_a_proxy_in_the_environment_is_not_used(
    server: TestServer, clients: HttpClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")
    assert (await fetch(clients, str(server.make_url("/echo"))))["status"] == 200


# --- connections that fail ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "example.com",
        "/relative",
        "ftp://example.com/",
        "http://",
        "http://[::1",
        "http://x:99999/",
        "http://x:0/",
    ],
)
async def test_unusable_addresses(clients: HttpClients, url: str) -> None:
    failure = await failure_of(clients, url)
    assert (failure.code, failure.retryable) == ("HTTP_BAD_URL", False)


async def test_a_refused_connection(clients: HttpClients) -> None:
    url = f"http://user:sekret@127.0.0.1:{unused_port()}/path?key=sekret"
    failure = await failure_of(clients, url)
    assert (failure.code, failure.retryable) == ("HTTP_CONNECTION_REFUSED", True)
    assert failure.details["url"].endswith("/path")
    assert "sekret" not in str(failure)


async def test_a_name_that_does_not_resolve(with_policy: Any) -> None:
    clients = with_policy(EgressPolicy(block_private=False), ScriptedResolver())
    assert (await failure_of(clients, "http://nowhere.example/")).code == "HTTP_DNS_ERROR"


async def test_a_name_that_cannot_be_one(clients: HttpClients) -> None:
    assert (await failure_of(clients, f"http://{'a' * 300}.example/")).code == "HTTP_DNS_ERROR"


@pytest.fixture
def certificate(tmp_path: Path) -> ssl.SSLContext:
    """A certificate that nobody trusts."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    command += ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


@pytest.fixture
async def tls_server(certificate: ssl.SSLContext) -> AsyncIterator[TestServer]:
    running = TestServer(service(), host="127.0.0.1", scheme="https")
    await running.start_server(ssl=certificate)
    yield running
    await running.close()


async def test_an_untrusted_certificate_is_refused_unless_ignored(
    tls_server: TestServer, clients: HttpClients
) -> None:
    url = str(tls_server.make_url("/echo"))
    assert (await failure_of(clients, url)).code == "HTTP_TLS_ERROR"
    assert (await fetch(clients, url, ignore_ssl=True))["status"] == 200
    assert (await failure_of(clients, url)).code == "HTTP_TLS_ERROR", (
        "the unverified connection was used again"
    )


async def test_https_to_a_plain_server_is_a_tls_error(server: TestServer, clients: HttpClients) -> None:
    assert (
        await failure_of(clients, str(server.make_url("/echo").with_scheme("https")))
    ).code == "HTTP_TLS_ERROR"


async def test_the_clients_can_be_used_again_after_closing(server: TestServer, clients: HttpClients) -> None:
    url = str(server.make_url("/echo"))
    await fetch(clients, url)
    await clients.close()
    assert (await fetch(clients, url))["status"] == 200


async def test_credentials_in_a_redirect_are_not_used(server: TestServer, clients: HttpClients) -> None:
    target = str(server.make_url("/echo").with_user("eve").with_password("pw"))
    url = str(server.make_url("/redirect/307").update_query(to=target))
    headers = (await fetch(clients, url, auth={"type": "bearer", "token": "t"}))["body"]["headers"]
    assert headers["Authorization"] == "Bearer t"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 100\r\n\r\n\x1f\x8b",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"",
    ],
)
async def test_what_is_no_answer_is_a_failure_with_a_code(clients: HttpClients, answer: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(respond, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    failure = await failure_of(clients, f"http://127.0.0.1:{port}/", timeout=5)
    assert failure.code in ("HTTP_PROTOCOL_ERROR", "HTTP_CONNECTION_LOST")
    assert failure.retryable
    listener.close()
    await listener.wait_closed()
