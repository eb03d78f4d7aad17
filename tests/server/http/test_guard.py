"""What never reaches a route: other origins, other hosts, forms, large and slow bodies. On an open server above all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth.audit import WAITING
from dalsegno.server.http.rate_limits import ADDRESSES
from dalsegno.server.http.request import GuardedRequest
from tests.docs.pages import DOCS
from tests.server.auth.test_keys import bearer, make_key
from tests.server.test_definitions import GRAPH

START = {"definition": GRAPH, "input": {"n": 1}}
BODY = json.dumps(START).encode()


@pytest.fixture
def app() -> App:
    """The guard knows no store but for keys: one kind is enough."""
    made = App("memory:")

    @made.task
    async def double(n: int) -> int:
        return n * 2

    return made


async def started(http: httpx.AsyncClient) -> int:
    """How many executions there are, whatever was tried."""
    return len((await http.get("/v1/executions")).json()["items"])


def settings_client(app: App, settings: ServerSettings) -> Any:
    application = create_application(app, settings)
    return application, httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://127.0.0.1:8700"
    )


@pytest.fixture
async def listed(app: App) -> AsyncIterator[httpx.AsyncClient]:
    """An open server that knows another origin and another name."""
    settings = ServerSettings(
        origins=("https://ops.example.com",), names=("Flows.example.com", "*"), keys_seconds=0.0
    )
    application, client = settings_client(app, settings)
    async with application.router.lifespan_context(application), client:
        yield client


# -- a web page against an open server ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://localhost:8700"},
        {"Origin": "https://127.0.0.1.evil.example:8700"},
        {"Origin": "http://127.0.0.1:8700@evil.example"},
        {"Origin": "chrome-extension://abc"},
        {"Origin": "nonsense"},
        {"Origin": "http://[::1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_a_page_of_another_origin_changes_nothing(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    answer = await http.post("/v1/executions", json=START, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (403, "DS-322")
    assert (await http.post("/v1/executions/x/pause", headers=headers)).status_code == 403
    assert (await http.delete("/v1/keys/x", headers=headers)).status_code == 403
    assert (await http.post("/v1/hooks/x", content=b"{}", headers=headers)).status_code == 403
    assert await started(http) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://127.0.0.1:8700"},
        {"Origin": "http://127.0.0.1:8700", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {},
    ],
)
async def test_its_own_pages_and_programs_may(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    assert (await http.post("/v1/executions", json=START, headers=headers)).status_code == 201


async def test_a_page_may_not_ask_either(http: httpx.AsyncClient) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    asked = await http.options("/v1/executions", headers=headers)
    assert (asked.status_code, asked.json()["code"]) == (403, "DS-322")
    looked = await http.get("/v1/executions", headers={"Origin": "https://evil.example"})
    assert looked.status_code == 200  # the browser keeps it from the page:
    assert "access-control-allow-origin" not in looked.headers
    assert looked.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.5",
        "169.254.169.254",
        "",
        "127.0.0.1@evil.example",
        "[::1",
        "flows.example.com",
        "127.0.0.1/x",
    ],
)
async def test_a_name_pointed_at_this_machine_reaches_nothing(http: httpx.AsyncClient, host: str) -> None:
    for path in ("/v1/executions", "/v1/hooks/x", "/docs", "/v1/health/live"):
        answer = await http.post(path, json=START, headers={"Host": host})
        assert (answer.status_code, answer.json()["code"]) == (403, "DS-321")
        assert (await http.get(path, headers={"Host": host})).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]:8700", "localhost."])
async def test_names_of_this_machine_are_its_own(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/v1/executions", headers={"Host": host})).status_code == 200


async def test_two_hosts_are_none(http: httpx.AsyncClient) -> None:
    scope = {"method": "GET", "path": "/", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]}
    assert GuardedRequest(scope).host is None


@pytest.mark.parametrize(
    "media",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", None, "json"],
)
async def test_a_form_post_starts_nothing(http: httpx.AsyncClient, media: str | None) -> None:
    headers = {} if media is None else {"Content-Type": media}
    answer = await http.post("/v1/executions", content=BODY, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "DS-192")
    assert await started(http) == 0


async def test_definitions_come_in_their_own_types_and_nothing_else_does(http: httpx.AsyncClient) -> None:
    yaml = b"name: y\nnodes:\n  - {id: a, type: log, parameters: {message: hi}}\n"
    headers = {"Content-Type": "application/yaml; charset=utf-8"}
    assert (await http.post("/v1/definitions", content=yaml, headers=headers)).status_code == 201
    assert (await http.post("/v1/executions", content=BODY, headers=headers)).status_code == 415
    plain = {"Content-Type": "text/plain"}
    assert (await http.post("/v1/definitions", content=yaml, headers=plain)).status_code == 415


async def test_a_call_without_a_body_needs_no_type(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/executions/none/pause")).status_code == 404


# -- names and origins that were listed -----------------------------------------------------------------------


async def test_a_listed_origin_may_ask_and_call(listed: httpx.AsyncClient) -> None:
    origin = {"Origin": "https://ops.example.com"}
    asked = await listed.options(
        "/v1/executions", headers={**origin, "Access-Control-Request-Method": "POST"}
    )
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == "https://ops.example.com"
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    called = await listed.post("/v1/executions", json=START, headers=origin)
    assert (called.status_code, called.headers["vary"]) == (201, "Origin")
    assert called.headers["access-control-allow-origin"] == "https://ops.example.com"
    wrong = await listed.post(
        "/v1/executions", json=START, headers={"Origin": "https://ops.example.com.evil"}
    )
    assert wrong.status_code == 403
    assert "access-control-allow-origin" not in wrong.headers


async def test_a_listed_name_counts_and_every_name_only_behind_a_key(
    app: App, listed: httpx.AsyncClient
) -> None:
    async def answer(host: str, headers: dict[str, str] | None = None) -> int:
        reply = await listed.get("/v1/executions", headers={"Host": host, **(headers or {})})
        return reply.status_code

    assert await answer("flows.example.com") == 200
    assert await answer("other.example.com") == 403
    assert await answer("192.168.1.5:8700") == 403
    key = bearer(await make_key(app, "read"))
    assert await answer("other.example.com", key) == 200
    assert await answer("192.168.1.5:8700", key) == 200
    assert await answer("other.example.com") == 401


async def test_behind_tls_a_page_without_it_is_another_origin() -> None:
    def own(scheme: str, host: bytes, origin: bytes) -> bool:
        headers = [(b"host", host), (b"origin", origin)]
        return GuardedRequest(
            {"method": "POST", "path": "/", "scheme": scheme, "headers": headers}
        ).is_from_own_page

    assert own("https", b"a.example", b"https://a.example")
    assert not own("https", b"a.example", b"http://a.example")
    assert own("http", b"a.example", b"https://a.example")  # a proxy that ends TLS without telling
    assert own("http", b"a.example:443", b"https://a.example")
    assert not own("http", b"a.example", b"https://a.example:8443")
    assert not own("http", b"b.example", b"https://a.example")


# -- paths ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/docs/../../../etc/passwd",
        "/docs/%2e%2e/%2e%2e/settings.py",
        "/docs/..%2f..%2fsettings.py",
        "/v1/definitions/..%2f..%2f..%2fetc%2fpasswd",
        "/v1/executions/..%2f..%2fetc%2fpasswd",
        "/v1/../../etc/passwd",
        "//etc/passwd",
        "/docs//reference.js",
    ],
)
async def test_no_path_leads_to_a_file(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "DS-130")


@pytest.mark.parametrize(
    "path",
    ["/v1/health/../executions", "/v1/hooks/../executions", "/docs/../v1/executions", "/v1//executions"],
)
async def test_no_detour_leads_past_the_key(
    app: App, application: FastAPI, http: httpx.AsyncClient, path: str
) -> None:
    """Spoken without a client in between, which would straighten the path."""
    await make_key(app, "admin")
    application.state.services.authenticator.look_again()
    assert await status_of(application, path) in (401, 404, 405)  # webhooks take no GET


async def status_of(application: FastAPI, path: str) -> int:
    statuses: list[int] = []

    async def send(message: Message) -> None:
        statuses.extend([message["status"]] if message["type"] == "http.response.start" else [])

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost")]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
    await application({**scope, "raw_path": path.encode(), "client": ("127.0.0.1", 1)}, receive, send)
    return statuses[0]


# -- bodies ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def narrow(app: App) -> AsyncIterator[httpx.AsyncClient]:
    application, client = settings_client(app, ServerSettings(body_bytes=1000, body_seconds=0.2))
    async with application.router.lifespan_context(application), client:
        yield client


async def test_a_large_body_is_refused_by_its_length(narrow: httpx.AsyncClient) -> None:
    answer = await narrow.post("/v1/executions", json={"workflow": "x" * 1000})
    assert (answer.status_code, answer.json()["code"]) == (413, "DS-191")
    assert answer.headers["connection"] == "close"
    fits = await narrow.post("/v1/executions", json={"workflow": "x" * 10})
    assert fits.status_code == 404


async def test_a_large_body_without_a_length_is_refused_before_all_of_it_was_read(
    narrow: httpx.AsyncClient,
) -> None:
    given = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal given
        while True:
            given += 100
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    answer = await asyncio.wait_for(narrow.post("/v1/executions", content=endless(), headers=headers), 60)
    assert (answer.status_code, answer.json()["code"]) == (413, "DS-191")
    assert given <= 1200


async def test_a_body_that_does_not_arrive_is_not_waited_for(narrow: httpx.AsyncClient) -> None:
    async def stalling() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    headers = {"Content-Type": "application/json"}
    answer = await asyncio.wait_for(narrow.post("/v1/executions", content=stalling(), headers=headers), 60)
    assert (answer.status_code, answer.json()["code"]) == (408, "DS-331")


async def test_a_body_in_many_pieces_is_put_together(narrow: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in BODY:
            yield bytes([byte])

    headers = {"Content-Type": "application/json"}
    answer = await narrow.post("/v1/executions", content=pieces(), headers=headers)
    assert answer.status_code == 201


async def test_no_key_no_reading(app: App, http: httpx.AsyncClient) -> None:
    """Who may not come in cannot make the server read and parse a body."""
    await make_key(app, "admin")
    application: FastAPI = http._transport.app  # type: ignore[attr-defined]
    application.state.services.authenticator.look_again()

    async def never() -> AsyncIterator[bytes]:
        raise AssertionError("read")
        yield b""

    headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
    answer = await http.post("/v1/executions", content=never(), headers=headers)
    assert answer.status_code == 401


def test_the_page_about_security_has_the_numbers_of_the_code() -> None:
    text = " ".join((DOCS / "security.md").read_text(encoding="utf-8").split())
    settings = ServerSettings()
    for said in (
        f"at most {settings.body_bytes // 2**20} MiB (`body_bytes`)",
        f"within {settings.body_seconds:.0f} s (`body_seconds`)",
        f"within {settings.header_seconds:.0f} s (`header_seconds`)",
        f"idle for {settings.idle_seconds} s (`idle_seconds`)",
        f"every {settings.keys_seconds:.0f} seconds (`keys_seconds`)",
        f"for {settings.session_seconds / 3600:.0f} hours (`session_seconds`)",
        f"After {settings.failures} wrong keys",
        f"{ADDRESSES:,} addresses are remembered",
        f"up to {WAITING:,} entries wait",
        f"for {(settings.audit_seconds or 0) / 86_400:.0f} days (`audit_seconds`)",
    ):
        assert said in text
