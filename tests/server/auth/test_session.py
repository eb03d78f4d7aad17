"""Signing in to the pages: a cookie that scripts cannot read and other sites cannot use."""

from __future__ import annotations

from http.cookies import SimpleCookie

import httpx
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth.authentication import SESSION_KIND
from dalsegno.server.http.request import COOKIE
from tests.server.auth.test_keys import bearer, book_of, make_key
from tests.server.test_definitions import GRAPH

OWN = {"Origin": "http://127.0.0.1:8700"}
START = {"definition": GRAPH, "input": {"n": 1}}


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0, session_seconds=3600.0))


async def sign_in(app: App, http: httpx.AsyncClient) -> httpx.Response:
    answer = await http.post("/v1/session", json={"key": await make_key(app, "run", name="ada")}, headers=OWN)
    assert answer.status_code == 201
    return answer


async def test_a_session_stands_for_its_key(app: App, http: httpx.AsyncClient) -> None:
    answer = await sign_in(app, http)
    assert (answer.json()["name"], answer.json()["scopes"]) == ("ada", ["read", "run"])
    assert "ds_" not in answer.text
    who = (await http.get("/v1/session")).json()
    assert (who["name"], who["via"], who["expires_at"]) == ("ada", "session", answer.json()["expires_at"])
    assert (await http.post("/v1/executions", json=START, headers=OWN)).status_code == 201
    assert (await http.get("/v1/keys")).status_code == 403


@pytest.mark.parametrize(
    ("url", "secure"), [("http://127.0.0.1:8700", False), ("https://127.0.0.1:8700", True)]
)
async def test_the_cookie_is_for_this_server_alone(
    app: App, http: httpx.AsyncClient, url: str, secure: bool
) -> None:
    body = {"key": await make_key(app, "read")}
    answer = await http.post(f"{url}/v1/session", json=body, headers={"Origin": url})
    morsel = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert morsel["httponly"] is True
    assert morsel["samesite"] == "strict"
    assert (morsel["path"], morsel["domain"], morsel["max-age"]) == ("/", "", "3600")
    assert bool(morsel["secure"]) is secure
    assert len(morsel.value) >= 43


async def test_a_session_changes_nothing_unless_a_page_of_this_server_asks(
    app: App, http: httpx.AsyncClient
) -> None:
    await sign_in(app, http)
    for headers in (
        {},
        {"Origin": "http://127.0.0.1:9"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
    ):
        answer = await http.post("/v1/executions", json=START, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "DS-322")
    assert (await http.get("/v1/executions")).json()["items"] == []
    own = await http.post("/v1/executions", json=START, headers={"Sec-Fetch-Site": "same-origin"})
    assert own.status_code == 201


async def test_a_listed_origin_has_no_use_of_the_cookie(app: App) -> None:
    settings = ServerSettings(origins=("https://ops.example.com",), keys_seconds=0.0)
    application = create_application(app, settings)
    transport = httpx.ASGITransport(application)
    async with (
        application.router.lifespan_context(application),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as client,
    ):
        await sign_in(app, client)
        headers = {"Origin": "https://ops.example.com"}
        assert (await client.post("/v1/executions", json=START, headers=headers)).status_code == 403


async def test_signing_out_ends_it_for_good(app: App, http: httpx.AsyncClient) -> None:
    await sign_in(app, http)
    cookie = http.cookies[COOKIE]
    answer = await http.delete("/v1/session", headers=OWN)
    assert answer.status_code == 204
    assert COOKIE not in http.cookies
    stolen = await http.get("/v1/session", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert (stolen.status_code, stolen.json()["code"]) == (401, "DS-310")


async def test_a_session_ends_with_its_key(app: App, http: httpx.AsyncClient) -> None:
    await sign_in(app, http)
    await book_of(app).revoke((await book_of(app).find("ada")).id)
    assert (await http.get("/v1/session")).status_code == 401


async def test_a_session_expires_and_is_swept(
    app: App, http: httpx.AsyncClient, application: FastAPI
) -> None:
    await sign_in(app, http)
    sessions = application.state.services.authenticator.sessions
    sessions.clock = Later(app.client.stack.clock.now() + 3601)
    assert await sessions.find(http.cookies[COOKIE]) is None
    assert await sessions.sweep() == 1
    assert await app.client.stack.records.page(SESSION_KIND) == []


class Later:
    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now


async def test_the_store_does_not_hold_what_the_cookie_holds(app: App, http: httpx.AsyncClient) -> None:
    await sign_in(app, http)
    (record,) = await app.client.stack.records.page(SESSION_KIND)
    assert http.cookies[COOKIE] not in record.id
    assert http.cookies[COOKIE].encode() not in record.data


async def test_wrong_keys_and_cookies_open_no_session(app: App, http: httpx.AsyncClient) -> None:
    await make_key(app, "read")
    wrong = await http.post("/v1/session", json={"key": "ds_wrong"}, headers=OWN)
    assert (wrong.status_code, wrong.json()["code"]) == (401, "DS-310")
    assert "set-cookie" not in wrong.headers
    for cookie in (f"{COOKIE}=nonsense", f"{COOKIE}=", "\x7f=;;=", f'{COOKIE}="a\\"b"'):
        assert (await http.get("/v1/session", headers={"Cookie": cookie})).status_code == 401
    assert (await http.get("/v1/session")).status_code == 401


async def test_a_key_shown_beside_a_cookie_counts(app: App, http: httpx.AsyncClient) -> None:
    await sign_in(app, http)
    headers = bearer(await make_key(app, "admin", name="root"))
    assert (await http.get("/v1/session", headers=headers)).json()["name"] == "root"
    assert (await http.post("/v1/executions", json=START, headers=headers)).status_code == 201
