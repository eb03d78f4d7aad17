"""Callers without a key: what they send takes linear time, fills no log, and is answered in few words."""

from __future__ import annotations

import time
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from dalsegno.app import App
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from dalsegno.server.auth.audit import LOG, SUMMED_ADDRESSES, Entry, Refusals
from dalsegno.server.http.rate_limits import AddressRate
from dalsegno.server.http.request import COOKIE, GuardedRequest
from tests.server.auth.test_keys import bearer, make_key
from tests.server.conftest import LASTING

HEADER = 60_000
"""Bytes: a little less than the server takes of all headers."""
SECONDS = 0.5
"""Of the processor. Linear work on a header takes milliseconds; quadratic work took 6 to 16 seconds."""

WITHOUT_STORE = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
"""For what is decided before any store is asked."""


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0, public_rate=30))


async def stored(application: FastAPI) -> list[Entry]:
    services = application.state.services
    await services.audit.flush()
    found = await services.client.stack.records.entries(LOG, limit=1000)
    return [msgspec.json.decode(each.data, type=Entry) for each in found]


def reading(**headers: str) -> GuardedRequest:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return GuardedRequest({"type": "http", "method": "GET", "path": "/", "headers": pairs})


# -- headers --------------------------------------------------------------------------------------------------


@WITHOUT_STORE
@pytest.mark.parametrize("name", [COOKIE, "other"])
async def test_a_cookie_of_backslashes_takes_no_time(http: httpx.AsyncClient, name: str) -> None:
    hostile = f'{name}="' + "\\" * HEADER + '"'
    for headers in ({}, {"Cookie": hostile}):  # the first round pays for what is made once
        began = time.process_time()
        for path in ("/v1/executions", "/v1/errors/DS-130", "/v1/health/live", "/v1/session"):
            await http.get(path, headers=headers)
    assert time.process_time() - began < SECONDS


HOSTILE_VALUES = {
    "backslashes": "\\" * HEADER,
    "quoted backslashes": '"' + "\\" * HEADER + '"',
    "commas": "," * HEADER,
    "semicolons": "a=b;" * (HEADER // 4),
    "colons": ":" * HEADER,
    "dots": "1." * (HEADER // 2),
    "percent signs": "%41" * (HEADER // 3),
    "digits": "9" * HEADER,
    "brackets": "[" * HEADER,
    "blanks": " " * HEADER + "x",
}
HEADERS = (
    "Cookie",
    "Host",
    "Origin",
    "Accept",
    "Accept-Encoding",
    "Authorization",
    "Content-Type",
    "Content-Length",
    "Content-Encoding",
    "Forwarded",
    "X-Forwarded-For",
    "If-None-Match",
    "Last-Event-ID",
    "Idempotency-Key",
    "Traceparent",
)


@WITHOUT_STORE
@pytest.mark.parametrize("kind", HOSTILE_VALUES)
async def test_no_header_takes_more_than_linear_time(http: httpx.AsyncClient, kind: str) -> None:
    slowest: dict[str, float] = {}
    for name in HEADERS:
        for method, path in (("GET", "/v1/executions"), ("POST", "/v1/session"), ("GET", "/docs")):
            began = time.process_time()
            await http.request(method, path, headers={name: HOSTILE_VALUES[kind]})
            slowest[name] = max(slowest.get(name, 0.0), time.process_time() - began)
    assert max(slowest.values()) < SECONDS, slowest


@pytest.mark.parametrize(
    ("cookie", "token"),
    [
        (f"{COOKIE}=abc-DEF_1", "abc-DEF_1"),
        (f"a=b; {COOKIE}=abc ;c", "abc"),
        (f'a="{COOKIE}=no"; b', None),
        (f"{COOKIE}=", None),
        (f'{COOKIE}="abc"', None),
        (f"{COOKIE}={'x' * 300}", None),
        ("", None),
    ],
)
def test_of_all_cookies_only_ours_is_read_and_handed_on(cookie: str, token: str | None) -> None:
    visit = reading(cookie=cookie, host="localhost")
    assert visit.session == token
    visit.keep_own_cookie()
    kept = dict(visit.scope["headers"])
    assert kept.get(b"cookie") == (None if token is None else f"{COOKIE}={token}".encode())
    assert kept[b"host"] == b"localhost"


# -- the audit log --------------------------------------------------------------------------------------------


@WITHOUT_STORE
async def test_malformed_calls_without_a_key_are_not_noted(
    application: FastAPI, http: httpx.AsyncClient
) -> None:
    for body in ({}, {"key": 1}, {"key": "x" * 300}):
        assert (await http.post("/v1/session", json=body)).status_code == 422
    assert (await http.post("/v1/approvals/links/" + "x" * 300, json={})).status_code == 422
    assert (
        await http.post("/v1/session", content="{", headers={"Content-Type": "application/json"})
    ).is_error
    assert await stored(application) == []


async def test_refused_sign_ins_of_an_address_are_one_entry_a_minute_with_their_count(
    app: App, application: FastAPI, http: httpx.AsyncClient
) -> None:
    http.headers.update(bearer(await make_key(app, "admin")))
    for _ in range(8):
        assert (await http.post("/v1/session", json={"key": "ds_guess"})).status_code == 401
    (first,) = await stored(application)
    assert (first.who, first.status, first.address, first.count) == ("nobody", 401, "127.0.0.1", None)
    await application.state.services.audit.close()
    summed, first = await stored(application)
    assert (summed.count, summed.address, first.count) == (7, "127.0.0.1", None)
    shown = (await http.get("/v1/audit")).json()["items"]
    assert [each["count"] for each in shown] == [7, None]


def refusal(address: str, at: float, status: int = 401) -> Entry:
    return Entry(at, "nobody", "nobody", "POST", "/v1/session", "session.sign_in", status, address)


def test_a_flood_from_many_addresses_adds_a_bounded_number_of_entries() -> None:
    refusals = Refusals()
    written = [
        each for n in range(10_000) for each in refusals.add(refusal(f"10.0.{n // 256}.{n % 256}", 0.0))
    ]
    assert len(written) == SUMMED_ADDRESSES + 1
    assert written[-1].address is None
    assert refusals.due(59.0) == []
    (others,) = refusals.due(60.0)
    assert others.count == 10_000 - SUMMED_ADDRESSES - 1
    assert refusals.add(refusal("10.0.0.1", 61.0)) == [refusal("10.0.0.1", 61.0)]


@LASTING
async def test_the_log_is_kept_below_a_number_of_entries(store_url: str) -> None:
    application = create_application(App(store_url), ServerSettings(audit_rows=50))
    async with application.router.lifespan_context(application):
        audit = application.state.services.audit
        for number in range(40):
            for part in range(5):
                audit.note(Entry(float(number), "ops", "key", "POST", f"/{number}/{part}"))
            await audit.flush()
        await audit.trim_to(50)
        kept = await stored(application)
        assert [each.path for each in kept][:2] == ["/39/4", "/39/3"]
        assert 45 <= len(kept) <= 50
        assert await audit.trim_to(50) == 0


# -- rates ----------------------------------------------------------------------------------------------------


@WITHOUT_STORE
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/session"), ("GET", "/v1/approvals/links/guess"), ("POST", "/v1/hooks/no/such/path")],
)
async def test_a_flood_without_a_key_is_told_to_wait(http: httpx.AsyncClient, method: str, path: str) -> None:
    answers = [await http.request(method, path, json={}) for _ in range(35)]
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) >= 4
    assert all(int(each.headers["Retry-After"]) >= 1 for each in refused)
    assert (await http.get("/v1/executions")).status_code == 200
    assert (await http.get("/v1/approvals/links/approval.css")).status_code == 200


def test_a_rate_is_each_addresss_own_and_refills() -> None:
    rate = AddressRate(60)
    assert [rate.spend("10.0.0.1", 0.0) for _ in range(60)] == [0.0] * 60
    assert rate.spend("10.0.0.1", 0.0) == pytest.approx(1.0)
    assert rate.spend("10.0.0.2", 0.0) == 0.0
    assert rate.spend("10.0.0.1", 1.0) == 0.0
    assert rate.spend("2001:db8::1", 0.0) == 0.0


# -- replies --------------------------------------------------------------------------------------------------


SMALL = 8_000
MANY = "&".join(f"u{n}=1" for n in range(5000))


@WITHOUT_STORE
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/v1/errors?{MANY}", None),
        ("GET", f"/v1/errors?{'&'.join(f'a%00{n}=1' for n in range(3000))}", None),
        ("GET", "/v1/errors/" + "x" * 50_000, None),
        ("GET", "/v1/nothing/" + "x" * 50_000, None),
        ("DELETE", "/v1/errors/" + "x" * 50_000, None),
        ("POST", "/v1/executions", {f"field{n}": n for n in range(10_000)}),
        ("POST", "/v1/session", {f"{n}": n for n in range(300)}),
        ("POST", "/v1/executions", {"workflow": "w" * 100_000}),
        ("POST", "/v1/executions", {"workflow": "w", "tags": {f"{n}": n for n in range(10_000)}}),
        ("POST", "/v1/tasks/claim", {"worker": "w", "tasks": list(range(10_000))}),
    ],
)
async def test_a_refusal_is_small_whatever_was_sent(
    http: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    answer = await http.request(method, path, json=body)
    assert answer.is_client_error
    assert len(answer.content) < SMALL


@WITHOUT_STORE
async def test_a_refusal_names_the_first_unknown_parameters_and_counts_the_others(
    http: httpx.AsyncClient,
) -> None:
    some = "&".join(f"u{n}=1" for n in range(150))
    told = (await http.get(f"/v1/errors?{some}")).json()
    assert [each["pointer"] for each in told["errors"]][:2] == ["/query/u0", "/query/u1"]
    assert told["errors"][-1]["message"] == "There are 140 more parameters of unknown names"
    told = (await http.get(f"/v1/errors?{MANY}")).json()
    assert told["detail"] == "/query: There are 5,000 parameters; a query has at most 200"


@WITHOUT_STORE
async def test_a_definition_with_many_findings_lists_some_and_counts_the_others(
    http: httpx.AsyncClient,
) -> None:
    nodes = [{"id": f"n{n}", "type": "no-such-type"} for n in range(500)]
    told = (await http.post("/v1/definitions", json={"name": "wrong", "nodes": nodes, "edges": []})).json()
    assert len(told["errors"]) == 100
    assert told["omitted"] >= 400
