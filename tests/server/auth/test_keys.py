"""Keys over HTTP and in the store: no key, wrong key, too small a scope, expired, revoked."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from dalsegno.admin.keys import KIND, Key, KeyRecords, Scope, is_secret_of, read_key
from dalsegno.app import App
from dalsegno.errors import BadConfiguration, Conflict, InvalidInput, NotFound
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth.authentication import check_listening
from dalsegno.server.http.rate_limits import ADDRESSES, WINDOW, Failures
from dalsegno.server.http.request import SESSION, is_public
from tests.server.test_definitions import GRAPH

START = {"definition": GRAPH, "input": {"n": 1}}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def book_of(app: App) -> KeyRecords:
    stack = app.client.stack
    return KeyRecords(stack.records, stack.clock)


async def make_key(app: App, *scopes: Scope, name: str = "somebody", expires: str | None = None) -> str:
    """As another process does it: straight into the store."""
    needs_queues = "worker" in scopes and "admin" not in scopes
    _, text = await book_of(app).add(name, scopes, expires, queues=["*"] if needs_queues else None)
    return text


@pytest.fixture
def application(app: App) -> FastAPI:
    """Looks for changed keys at every call."""
    return create_application(app, ServerSettings(keys_seconds=0.0))


@pytest.fixture
async def admin(app: App, http: httpx.AsyncClient) -> httpx.AsyncClient:
    key = await make_key(app, "admin", name="ops")
    http.headers.update(bearer(key))
    return http


# -- coming in ------------------------------------------------------------------------------------------------


async def test_without_keys_the_server_is_open_and_the_first_key_closes_it(
    app: App, http: httpx.AsyncClient
) -> None:
    assert (await http.get("/v1/session")).json()["via"] == "open"
    made = await http.post("/v1/keys", json={"name": "ops", "scopes": ["admin"]})
    assert made.status_code == 201
    refused = await http.post("/v1/executions", json=START)
    assert (refused.status_code, refused.json()["code"]) == (401, "DS-310")
    assert refused.headers["www-authenticate"] == "Bearer"
    allowed = await http.post("/v1/executions", json=START, headers=bearer(made.json()["key"]))
    assert allowed.status_code == 201


async def test_an_open_server_answers_only_its_own_machine(application: FastAPI) -> None:
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application, client=("192.0.2.7", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8700") as stranger:
            refused = await stranger.post("/v1/executions", json=START)
    assert refused.status_code == 401
    assert "dalsegno keys add" in refused.json()["detail"]


@pytest.mark.parametrize(
    "shown",
    [
        "Bearer ds_000000000000_" + "0" * 64,
        "Bearer nonsense",
        "Bearer ",
        "Basic b3BzOm9wcw==",
        "Bearer ds_ünïcode_key",
        "",
    ],
)
async def test_a_wrong_key_is_refused(admin: httpx.AsyncClient, shown: str) -> None:
    answer = await admin.get("/v1/executions", headers={"Authorization": shown.encode("latin-1")})
    assert (answer.status_code, answer.json()["code"]) == (401, "DS-310")


async def test_the_right_id_with_another_secret_is_refused(app: App, admin: httpx.AsyncClient) -> None:
    text = await make_key(app, "read")
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    assert (await admin.get("/v1/executions", headers=bearer(wrong))).status_code == 401


async def test_a_key_in_the_url_is_no_key(app: App, http: httpx.AsyncClient) -> None:
    text = await make_key(app, "admin")
    for name in ("key", "token", "access_token", "authorization"):
        assert (await http.get("/v1/executions", params={name: text})).status_code == 401


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", ("look",)),
        ("run", ("look", "start")),
        ("worker", ()),
        ("admin", ("look", "start", "keys")),
    ],
)
async def test_a_key_does_what_its_scope_allows_and_nothing_else(
    app: App, http: httpx.AsyncClient, scope: Scope, allowed: tuple[str, ...]
) -> None:
    headers = bearer(await make_key(app, scope))
    answers = {
        "look": await http.get("/v1/executions", headers=headers),
        "start": await http.post("/v1/executions", json=START, headers=headers),
        "keys": await http.get("/v1/keys", headers=headers),
    }
    assert tuple(name for name, answer in answers.items() if answer.is_success) == allowed
    refused = [answer for name, answer in answers.items() if name not in allowed]
    assert all((each.status_code, each.json()["code"]) == (403, "DS-320") for each in refused)


async def test_a_key_expires(app: App, http: httpx.AsyncClient) -> None:
    text = await make_key(app, "read", expires="1ms")
    await asyncio.sleep(0.01)
    refused = await http.get("/v1/executions", headers=bearer(text))
    assert refused.status_code == 401
    assert "has expired" in refused.json()["detail"]


async def test_a_revoked_key_is_refused_and_the_door_stays_closed(app: App, http: httpx.AsyncClient) -> None:
    text = await make_key(app, "admin")
    assert (await http.get("/v1/executions", headers=bearer(text))).status_code == 200
    await book_of(app).revoke((await book_of(app).find("somebody")).id)
    refused = await http.get("/v1/executions", headers=bearer(text))
    assert refused.status_code == 401
    assert "was revoked" in refused.json()["detail"]
    assert (await http.get("/v1/executions")).status_code == 401


async def test_a_key_of_another_process_counts_within_seconds(app: App) -> None:
    application = create_application(app, ServerSettings(keys_seconds=0.2))
    async with application.router.lifespan_context(application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/v1/executions")).status_code == 200
            text = await make_key(app, "admin")
            began = time.monotonic()
            while (await client.get("/v1/executions")).status_code == 200:
                await asyncio.sleep(0.01)
                assert time.monotonic() - began < 30
            await book_of(app).revoke((await book_of(app).find("somebody")).id)
            while (await client.get("/v1/executions", headers=bearer(text))).status_code == 200:
                await asyncio.sleep(0.01)
                assert time.monotonic() - began < 30


async def test_every_route_needs_a_scope_or_is_listed_as_public(
    app: App, application: FastAPI, http: httpx.AsyncClient
) -> None:
    """Whoever adds a route without ``needs`` must say so in `paths`."""
    powerless = await powerless_key(app)
    own = {("GET", SESSION), ("DELETE", SESSION)}  # they tell or end what the caller is
    routes = [
        (method.upper(), path)
        for path, methods in application.openapi()["paths"].items()
        for method in methods
    ]
    assert len(routes) > 20
    for method, path in routes:
        if is_public(method, path) or (method, path) in own:
            continue
        url = re.sub(r"\{[^}]*\}", "x", path)
        assert (await http.request(method, url, json={})).status_code == 401, (method, path)
        answer = await http.request(method, url, json={}, headers=bearer(powerless))
        assert (answer.status_code, answer.json()["code"]) == (403, "DS-320"), (method, path)


async def powerless_key(app: App) -> str:
    """No key without scopes can be made; this one was written by hand."""
    text = await make_key(app, "read")
    (record,) = await app.client.stack.records.page(KIND)
    key = msgspec.structs.replace(msgspec.json.decode(record.data, type=Key), scopes=())
    await app.client.stack.records.put(KIND, record.id, msgspec.json.encode(key))
    return text


# -- too many wrong ones --------------------------------------------------------------------------------------


async def test_too_many_wrong_keys_from_an_address_have_to_wait_but_a_right_one_works(
    app: App, http: httpx.AsyncClient
) -> None:
    text = await make_key(app, "read")
    codes = [(await http.get("/v1/executions", headers=bearer("wrong"))).status_code for _ in range(12)]
    assert codes == [401] * 10 + [429] * 2
    refused = await http.get("/v1/executions", headers=bearer("wrong"))
    assert refused.json()["code"] == "DS-330"
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert (await http.get("/v1/executions", headers=bearer(text))).status_code == 200
    signing_in = await http.post("/v1/session", json={"key": "wrong"})
    assert signing_in.status_code == 429


def test_failures_are_forgotten_after_a_minute_and_addresses_are_bounded() -> None:
    failures = Failures(2)
    assert [failures.note("192.0.2.1", at) for at in (0.0, 1.0)] == [0.0, 0.0]
    assert failures.note("192.0.2.1", 2.0) == WINDOW - 2.0
    assert failures.note("192.0.2.2", 2.0) == 0.0
    assert failures.note("192.0.2.1", WINDOW + 0.5) == 0.0
    for number in range(ADDRESSES + 100):
        failures.note(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", 100.0)
    assert len(failures) == ADDRESSES


def test_all_addresses_of_one_ipv6_network_count_together() -> None:
    failures = Failures(1)
    assert failures.note("2001:db8::1", 0.0) == 0.0
    assert failures.note("2001:db8::ffff", 0.0) > 0
    assert failures.note("2001:db8:0:1::1", 0.0) == 0.0
    assert failures.note("192.0.2.1", 0.0) == 0.0
    assert failures.note("::ffff:192.0.2.1", 0.0) > 0


# -- the routes -----------------------------------------------------------------------------------------------


async def test_keys_are_made_listed_and_revoked_over_http(admin: httpx.AsyncClient) -> None:
    made = await admin.post("/v1/keys", json={"name": "ci", "scopes": ["run"], "expires": "30d"})
    key = made.json()
    assert (made.status_code, key["scopes"], key["created_by"]) == (201, ["run"], "ops")
    listed = (await admin.get("/v1/keys")).json()["items"]
    assert {each["name"] for each in listed} == {"ops", "ci"}
    secret = key["key"].rpartition("_")[2]
    assert secret not in (await admin.get("/v1/keys")).text
    revoked = await admin.delete("/v1/keys/ci")
    assert (revoked.status_code, revoked.json()["id"]) == (200, key["id"])
    assert revoked.json()["revoked_at"] is not None
    assert (await admin.get("/v1/executions", headers=bearer(key["key"]))).status_code == 401
    everything = (await admin.get("/v1/keys", params={"revoked": True})).json()["items"]
    assert len(everything) == 2
    assert (await admin.delete("/v1/keys/nobody")).status_code == 404


async def test_lists_of_keys_are_paged(app: App, admin: httpx.AsyncClient) -> None:
    for number in range(4):
        await make_key(app, "read", name=f"k{number}")
    first = (await admin.get("/v1/keys", params={"limit": 3})).json()
    rest = (await admin.get("/v1/keys", params={"limit": 3, "cursor": first["next"]})).json()
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 2, None)


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "", "scopes": ["read"]},
        {"name": "a\nb", "scopes": ["read"]},
        {"name": "a", "scopes": ["read"], "expires": "never"},
        {"name": "a", "scopes": ["read"], "expires": "0s"},
    ],
)
async def test_nonsense_makes_no_key(admin: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await admin.post("/v1/keys", json=body)).status_code == 422
    assert len((await admin.get("/v1/keys")).json()["items"]) == 1


async def test_last_use_is_told_and_written_at_most_once_a_minute(app: App, admin: httpx.AsyncClient) -> None:
    key = next(each for each in (await admin.get("/v1/keys")).json()["items"] if each["name"] == "ops")
    records = app.client.stack.records
    for _ in range(500):
        await admin.get("/v1/executions")
        record = await records.get(KIND, key["id"])
        if record is not None and msgspec.json.decode(record.data, type=Key).used_at is not None:
            break
        await asyncio.sleep(0.02)
    else:
        pytest.fail("the last use was never written")
    for _ in range(5):
        await admin.get("/v1/executions")
        await asyncio.sleep(0.1)
    again = await records.get(KIND, key["id"])
    assert again is not None
    assert again.version == record.version


# -- the store ------------------------------------------------------------------------------------------------


async def test_only_a_hash_is_stored(app: App, http: httpx.AsyncClient) -> None:
    text = await make_key(app, "admin")
    id_and_secret = read_key(text)
    assert id_and_secret is not None
    named, secret = id_and_secret
    assert len(bytes.fromhex(secret)) == 32
    record = await app.client.stack.records.get(KIND, named)
    assert record is not None
    assert secret.encode() not in record.data
    stored = msgspec.json.decode(record.data, type=Key)
    assert is_secret_of(stored, secret)
    assert not is_secret_of(stored, secret[::-1])
    assert not is_secret_of(None, secret)


async def test_names_are_unique_among_valid_keys(app: App, http: httpx.AsyncClient) -> None:
    book = book_of(app)
    key, _ = await book.add("ci", ["run"])
    with pytest.raises(Conflict, match="'ci'"):
        await book.add("ci", ["run"])
    await book.revoke(key.id)
    again, _ = await book.add("ci", ["run"])
    assert (await book.find("ci")).id == again.id
    with pytest.raises(NotFound):
        await book.find("somebody")
    with pytest.raises(InvalidInput):
        await book.add("x", ["root"])  # type: ignore[list-item]


async def test_noting_a_use_never_undoes_a_revocation(app: App, http: httpx.AsyncClient) -> None:
    book = book_of(app)
    key, _ = await book.add("ci", ["run"])
    await asyncio.gather(*(book.touch(key.id, float(at)) for at in range(10)), book.revoke(key.id))
    found = await book.find(key.id)
    assert found.revoked_at is not None
    assert found.used_at == 9.0


async def test_a_server_refuses_to_be_open_to_others(app: App, http: httpx.AsyncClient) -> None:
    stack = app.client.stack
    said = await check_listening(stack.records, stack.clock, ServerSettings())
    assert said is not None
    assert "no keys" in said
    for host in ("0.0.0.0", "192.168.1.5", "::", "box.example.com"):
        with pytest.raises(BadConfiguration, match="dalsegno keys add"):
            await check_listening(stack.records, stack.clock, ServerSettings(host=host))
    await make_key(app, "admin")
    assert await check_listening(stack.records, stack.clock, ServerSettings(host="0.0.0.0")) is None
