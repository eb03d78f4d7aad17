"""The http node against a real server: requests, responses, statuses, limits, pagination."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestServer

from dalsegno.nodes.http.client import USER_AGENT, HttpClients
from dalsegno.nodes.http.response import retry_after
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from tests.nodes.fakes import NOW, FakeContext, run_node


class Caller:
    """Runs the node against the server."""

    def __init__(self, server: TestServer, clients: HttpClients) -> None:
        self.server = server
        self.clients = clients

    def url(self, path: str) -> str:
        return str(self.server.make_url(path))

    async def __call__(self, path: str, **parameters: Any) -> Any:
        ctx = FakeContext({"$trigger": {"id": 7}}, services={"http": HttpService(make=lambda: self.clients)})
        return await run_node("http", {"url": self.url(path), **parameters}, ctx)

    async def failure(self, path: str, **parameters: Any) -> Any:
        with pytest.raises(NodeError) as caught:
            await self(path, **parameters)
        return caught.value.failure


@pytest.fixture
def call(server: TestServer, clients: HttpClients) -> Caller:
    return Caller(server, clients)


# --- requests ----------------------------------------------------------------------------------


async def test_a_plain_get(call: Caller) -> None:
    output = await call("/echo")
    assert output["status"] == 200
    assert output["status_text"] == "OK"
    assert output["headers"]["content-type"] == "application/json; charset=utf-8"
    assert output["body"]["method"] == "GET"
    assert output["body"]["headers"]["User-Agent"] == USER_AGENT
    assert "Idempotency-Key" not in output["body"]["headers"]
    assert 0 < output["duration_ms"] < 10_000


@pytest.mark.parametrize("method", ["GET", "post", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_methods(call: Caller, method: str) -> None:
    assert (await call("/echo", method=method))["body"]["method"] == method.upper()


async def test_head_has_no_body(call: Caller) -> None:
    output = await call("/echo", method="HEAD", max_response_bytes=1)
    assert (output["status"], output["body"]) == (200, None)


async def test_query_parameters_are_added_to_the_address(call: Caller) -> None:
    output = await call(
        "/echo?a=0", query={"b": [1, "x y&"], "c": True, "d": None, "e": {"f": 1}, "g": "$trigger.id"}
    )
    assert output["body"]["query"] == [
        ["a", "0"], ["b", "1"], ["b", "x y&"], ["c", "true"], ["e", '{"f":1}'], ["g", "7"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type", "sent", "sent_type"),
    [
        ({"a": "ü", "b": [1, None]}, None, '{"a":"ü","b":[1,null]}', "application/json"),
        ([1], None, "[1]", "application/json"),
        (5, None, "5", "application/json"),
        (False, None, "false", "application/json"),
        ("text ü", None, "text ü", "text/plain; charset=utf-8"),
        ('{"ready": 1}', "application/json", '{"ready": 1}', "application/json"),
        ({"a": 1}, "application/vnd.api+json", '{"a":1}', "application/vnd.api+json"),
        ({"a": ["1", 2], "b": "x y"}, "application/x-www-form-urlencoded", "a=1&a=2&b=x+y", None),
        ("<a/>", "application/xml", "<a/>", "application/xml"),
        (12, "text/csv", "12", "text/csv"),
        (None, None, "", None),
    ],
)
async def test_bodies(
    call: Caller, body: Any, content_type: str | None, sent: str, sent_type: str | None
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    found = (await call("/echo", method="POST", body=body, headers=headers))["body"]
    assert found["body"] == sent
    if sent_type:
        names = {name.lower(): value for name, value in found["headers"].items()}
        assert names["content-type"] == sent_type


async def test_an_object_that_the_content_type_cannot_carry_fails(call: Caller) -> None:
    failure = await call.failure("/echo", method="POST", body={"a": 1}, headers={"Content-Type": "text/csv"})
    assert (failure.code, failure.retryable) == ("HTTP_BAD_BODY", False)


async def test_headers_take_numbers_and_the_user_agent_can_be_set(call: Caller) -> None:
    headers = (await call("/echo", headers={"X-Id": "$trigger.id", "User-Agent": "me"}))["body"]["headers"]
    assert (headers["X-Id"], headers["User-Agent"]) == ("7", "me")


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        ({"type": "basic", "username": "ann", "password": "pä"}, "Authorization",
         "Basic " + base64.b64encode("ann:pä".encode()).decode()),
        ({"type": "bearer", "token": "t0"}, "Authorization", "Bearer t0"),
        ({"type": "header", "name": "X-Api-Key", "value": "k"}, "X-Api-Key", "k"),
    ],
)  # fmt: skip
async def test_auth(call: Caller, auth: dict[str, str], name: str, value: str) -> None:
    assert (await call("/echo", auth=auth))["body"]["headers"][name] == value


async def test_user_and_password_in_the_address(call: Caller) -> None:
    url = call.url("/echo").replace("http://", "http://ann:pw@")
    output = await run_node("http", {"url": url}, services={"http": HttpService(make=lambda: call.clients)})
    assert output["body"]["headers"]["Authorization"] == "Basic " + base64.b64encode(b"ann:pw").decode()


async def test_unsafe_requests_carry_the_idempotency_key(call: Caller) -> None:
    assert (await call("/echo", method="POST"))["body"]["headers"]["Idempotency-Key"] == "token-1"
    own = await call("/echo", method="POST", headers={"idempotency-key": "mine"})
    found = {name.lower(): value for name, value in own["body"]["headers"].items()}
    assert found["idempotency-key"] == "mine"


# --- responses ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", '{"a": [1]}', {"a": [1]}),
        ("application/problem+json; charset=utf-8", '{"a": 1}', {"a": 1}),
        ("application/json", "{oops", "{oops"),
        ("application/json", "NaN", "NaN"),
        ("application/json", "[" * 500 + "]" * 500, "[" * 500 + "]" * 500),
        ("application/json", "", None),
        ("application/json", "12345678901234567890123", 12345678901234567890123),
        ("text/plain", "hello", "hello"),
        ("text/plain", "", ""),
        ("text/plain; charset=latin-1", "\xfc", "ü"),
        ("application/xml", "<a/>", "<a/>"),
        (None, "plain", "plain"),
    ],
)
async def test_response_bodies(call: Caller, content_type: str | None, body: str, expected: Any) -> None:
    query = {"body": body} | ({"type": content_type} if content_type else {})
    assert (await call("/raw", query=query))["body"] == expected


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("image/png", "\x89PNG"), ("text/plain", "\xff\xfe\xfd"), ("text/x; charset=klingon", "\xff")],
)
async def test_binary_content_is_base64_and_says_so(call: Caller, content_type: str, body: str) -> None:
    found = (await call("/raw", query={"body": body, "type": content_type}))["body"]
    assert found == {
        "encoding": "base64",
        "data": base64.b64encode(body.encode("latin-1")).decode(),
        "content_type": content_type.partition(";")[0],
        "size": len(body),
    }


async def test_packed_content_is_unpacked(call: Caller) -> None:
    assert (await call("/packed"))["body"] == {"packed": True}


async def test_repeated_headers_are_joined(call: Caller) -> None:
    headers = (await call("/repeated"))["headers"]
    assert (headers["x-many"], headers["set-cookie"]) == ("1, 2", "a=1\nb=2")


async def test_cookies_are_not_kept_between_runs(call: Caller) -> None:
    await call("/repeated")
    assert "Cookie" not in (await call("/echo"))["body"]["headers"]


# --- statuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [200, 204, 404, 500])
async def test_any_status_is_a_success_by_default(call: Caller, code: int) -> None:
    assert (await call(f"/status/{code}"))["status"] == code


@pytest.mark.parametrize(
    ("code", "pattern", "raises"),
    [
        (404, "4xx,5xx", True),
        (503, "4xx, 5xx", True),
        (404, "404", True),
        (404, 404, True),
        (404, [404, "5XX"], True),
        (403, "404", False),
        (502, "500-503", True),
        (504, "500-503", False),
        (200, "4xx,5xx", False),
        (500, "", False),
    ],
)
async def test_raise_on_status(call: Caller, code: int, pattern: Any, raises: bool) -> None:
    if not raises:
        assert (await call(f"/status/{code}", raise_on_status=pattern))["status"] == code
        return
    failure = await call.failure(f"/status/{code}?X=1", raise_on_status=pattern)
    assert failure.code == f"HTTP_{code}"
    assert failure.retryable
    assert failure.details["status"] == code
    assert failure.details["body"] == "the reason"
    assert "X=1" not in str(failure)


async def test_retry_after_is_passed_on(call: Caller) -> None:
    failure = await call.failure("/status/429?Retry-After=17", raise_on_status="4xx")
    assert failure.retry_after == 17
    assert (await call.failure("/status/500", raise_on_status="5xx")).retry_after is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30),
        ("Tue, 14 Nov 2000 22:13:50 GMT", 0),
        ("999999999999999999999999", 86_400),
        ("soon", None),
        ("-5", None),
        (None, None),
    ],
)
def test_retry_after_holds_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


# --- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/stream?kilobytes=300000", "/bomb", "/raw?body=" + "x" * 2000])
async def test_a_response_that_is_too_large_is_not_read_to_its_end(call: Caller, path: str) -> None:
    failure = await call.failure(path, max_response_bytes=1024)
    assert (failure.code, failure.retryable) == ("HTTP_RESPONSE_TOO_LARGE", False)
    assert failure.details["max_response_bytes"] == 1024


async def test_a_large_response_within_the_limit_arrives_whole(call: Caller) -> None:
    body = (await call("/stream?kilobytes=3000"))["body"]
    assert len(msgspec.json.decode(body)) == 3000 * 1024


async def test_the_default_limit_is_ten_megabytes(call: Caller) -> None:
    assert (await call.failure("/stream?kilobytes=10241")).code == "HTTP_RESPONSE_TOO_LARGE"


async def test_the_timeout_covers_the_body(call: Caller) -> None:
    failure = await call.failure("/slow?secret=1", timeout="200ms")
    assert (failure.code, failure.retryable) == ("HTTP_TIMEOUT", True)
    assert failure.details == {"url": call.url("/slow"), "timeout": 0.2}


async def test_a_connection_that_breaks_off(call: Caller) -> None:
    assert (await call.failure("/broken")).code == "HTTP_PROTOCOL_ERROR"


# --- pagination --------------------------------------------------------------------------------


@pytest.mark.parametrize("next_path", ["body.next", "link"])
async def test_pages_linked_by_address(call: Caller, next_path: str) -> None:
    output = await call("/pages", pagination={"next_url_path": next_path, "items_path": "body.items"})
    assert (output["body"], output["pages"], output["more"]) == ([1, 2, 3, 4, 5], 3, False)


async def test_pages_counted_until_one_is_empty(call: Caller) -> None:
    output = await call("/pages", pagination={"page_param": "page", "items_path": "body.items"})
    assert (output["body"], output["pages"]) == ([1, 2, 3, 4, 5], 4)


async def test_max_pages_cuts_short_and_says_so(call: Caller) -> None:
    given = {"page_param": "page", "start_page": 2, "max_pages": 1, "items_path": "body.items"}
    output = await call("/pages", pagination=given)
    assert (output["body"], output["pages"], output["more"]) == ([3, 4], 1, True)


async def test_without_items_path_the_bodies_are_listed_and_each_page_has_its_key(call: Caller) -> None:
    output = await call("/pages", method="POST", pagination={"next_url_path": "body.next"})
    assert [page["key"] for page in output["body"]] == ["token-1", "token-1-2", "token-1-3"]


async def test_the_size_limit_covers_all_pages(call: Caller) -> None:
    failure = await call.failure("/pages", max_response_bytes=120, pagination={"next_url_path": "body.next"})
    assert failure.code == "HTTP_RESPONSE_TOO_LARGE"


@pytest.mark.parametrize("path", ["next_url_path", "items_path"])
async def test_a_pagination_path_that_leads_elsewhere_fails(call: Caller, path: str) -> None:
    failure = await call.failure("/pages", pagination={"next_url_path": "body.next"} | {path: "status"})
    assert failure.code == "HTTP_PAGINATION"


async def test_pagination_ends_at_an_error_status(call: Caller) -> None:
    output = await call("/status/500", pagination={"next_url_path": "body.next"})
    assert (output["status"], output["pages"]) == (500, 1)
