"""Responses over 64 KiB are read in a process and go on as JSON: they hold up nothing and take little memory."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec import Raw

from dalsegno.adapters.memory import MemoryBlobs, MemoryStore
from dalsegno.core.values import Survey, decode_value, encode_value, is_small
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.values import Results
from dalsegno.engine.subprocesses.large_responses import LargeResponses
from dalsegno.errors import LimitExceeded, NotJson
from dalsegno.nodes.http.body import body_json, body_value
from dalsegno.nodes.http.client import HttpClients
from dalsegno.nodes.http.service import HttpService
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential
from tests.loop_gaps import LoopGaps
from tests.nodes.fakes import FakeContext, run_node
from tests.peak_memory import peak_kib, reset_peak

MIB = 1024 * 1024
PAD = "x" * 70_000


@pytest.fixture
async def large() -> AsyncIterator[LargeResponses]:
    responses = LargeResponses()
    yield responses
    await responses.close()


class Answering:
    """A server whose answers the test sets; `clients` and `large` are closed by their fixtures."""

    def __init__(self, clients: HttpClients, large: LargeResponses) -> None:
        self.answers: list[web.Response] = []
        self._service = HttpService(make=lambda: clients, large=large)
        application = web.Application()
        application.router.add_get("/", self._answer)
        self.server = TestServer(application)

    async def _answer(self, request: web.Request) -> web.Response:
        return self.answers.pop(0)

    async def fetch(self, **parameters: Any) -> Any:
        url = str(self.server.make_url("/"))
        return await run_node("http", {"url": url, **parameters}, services={"http": self._service})


@pytest.fixture
async def answering(clients: HttpClients, large: LargeResponses) -> AsyncIterator[Answering]:
    server = Answering(clients, large)
    await server.server.start_server()
    yield server
    await server.server.close()


def deep(levels: int) -> bytes:
    return b"[" * levels + json.dumps(PAD).encode() + b"]" * levels


@pytest.mark.parametrize(
    ("content", "content_type", "charset"),
    [
        (json.dumps({"a": [1, 2.5, None, True, "ü"], "pad": PAD}).encode(), "application/json", None),
        (json.dumps([PAD, "\u2028é𝄋"], ensure_ascii=False).encode(), "application/problem+json", "utf-8"),
        (b"\xef\xbb\xbf" + json.dumps([PAD]).encode(), "application/json", None),
        (b'{"a": 1, "a": 2, "n": 123456789012345678901234567890}', "application/json", None),
        (b'{"n": 123456789012345678901234567890, "f": 1.0, "g": 1e5, "h": -0.0}', "application/json", None),
        (json.dumps(["é" + PAD], ensure_ascii=False).encode("latin-1"), "application/json", "latin-1"),
        (b'["' + PAD.encode() + b'", NaN]', "application/json", None),
        (b'{"never ends": "' + PAD.encode(), "application/json", None),
        (deep(100), "application/json", None),
        (deep(2_000), "application/json", None),
        (deep(200_000), "application/json", None),
        (PAD.encode(), "text/plain", None),
        (b"\xff\xfe" + PAD.encode(), "text/plain", "utf-8"),
        (b"\x89PNG" + PAD.encode(), "image/png", None),
        (b"", "application/json", None),
        (b"", "text/plain", None),
    ],
)
def test_a_large_body_is_the_value_that_a_small_one_is(
    content: bytes, content_type: str, charset: str | None
) -> None:
    value = body_value(content, content_type, charset)
    assert decode_value(body_json(content, content_type, charset)) == decode_value(encode_value(value))


async def test_ten_megabytes_of_tiny_lists_neither_hold_up_the_loop_nor_fill_the_memory(
    answering: Answering,
) -> None:
    content = b"[" + b",".join([b"[]"] * (10 * MIB // 3 - 1)) + b"]"
    assert len(content) > 9 * MIB
    answering.answers = [web.Response(body=content, content_type="application/json")]
    results = Results(MemoryBlobs(MemoryStore()), EngineLimits())  # type: ignore[arg-type]
    before = reset_peak()
    async with LoopGaps() as gaps:
        output = await answering.fetch()
        result = await results.of("0" * 32, output, "the output")
    taken = (peak_kib() - before) // 1024
    assert result.raw.count(b"[]") == content.count(b"[]")
    assert gaps.longest < 0.25, f"{gaps.longest:.2f} s"
    assert taken < 120, f"{taken} MiB"
    assert type(output["body"]) is Raw


async def test_the_time_in_which_a_large_response_is_read_is_not_the_servers(
    answering: Answering, large: LargeResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = large.run

    async def slow(*arguments: Any) -> Any:
        await asyncio.sleep(0.6)
        return await run(*arguments)

    monkeypatch.setattr(large, "run", slow)
    answering.answers = [web.json_response([PAD])]
    assert (await answering.fetch(timeout=0.5))["status"] == 200
    answering.answers = [web.json_response([PAD]), web.json_response([])]
    output = await answering.fetch(timeout=0.5, pagination={"page_param": "page"})
    assert output["pages"] == 2


async def test_a_small_response_is_a_value_as_ever(answering: Answering) -> None:
    answering.answers = [web.json_response({"a": [1]})]
    assert (await answering.fetch())["body"] == {"a": [1]}


ROWS = [[3, 2], [3, 2000, 1], [2000, 2000], [1500, 0]]
WAYS: dict[str, dict[str, Any]] = {
    "next": {"next_url_path": "body.next"},
    "link": {"next_url_path": "link"},
    "number": {"page_param": "page"},
}


async def test_pages_are_joined_whatever_their_size(answering: Answering) -> None:
    for rows, way in itertools.product(ROWS, WAYS):
        every = [
            [{"page": page, "row": row, "text": "x" * 40} for row in range(count)]
            for page, count in enumerate(rows)
        ]
        answering.answers = [_page(items, way, page + 1 < len(rows)) for page, items in enumerate(every)]
        answering.answers.append(web.json_response({"items": []}))
        output = await answering.fetch(pagination={"items_path": "body.items", **WAYS[way]})
        found = decode_value(encode_value(output))
        assert found["body"] == [item for items in every for item in items]
        assert found["more"] is False
        assert found["pages"] == (len(rows) + 1 if way == "number" and rows[-1] else len(rows))


def _page(items: list[Any], way: str, goes_on: bool) -> web.Response:
    body = {"items": items, "next": "/" if goes_on and way == "next" else None}
    headers = {"Link": '</>; rel="next"'} if goes_on and way == "link" else {}
    return web.json_response(body, headers=headers)


async def test_pages_that_are_bodies(answering: Answering) -> None:
    pages: list[Any] = [{"a": PAD}, {"b": 1}, {}]
    answering.answers = [web.json_response(page) for page in pages]
    output = await answering.fetch(pagination={"page_param": "page"})
    assert decode_value(encode_value(output))["body"] == pages


async def test_a_large_page_that_does_not_hold_what_pagination_says(answering: Answering) -> None:
    answering.answers = [web.json_response({"items": PAD})]
    with pytest.raises(NodeError, match="should lead to a list, but leads to a string") as caught:
        await answering.fetch(pagination={"page_param": "page", "items_path": "body.items"})
    assert caught.value.failure.code == "HTTP_PAGINATION"


async def test_a_large_error_page_is_shown_in_part(answering: Answering) -> None:
    answering.answers = [web.Response(status=500, text=PAD), web.json_response([PAD], status=500)]
    for shown in (2000, None):
        with pytest.raises(NodeError) as caught:
            await answering.fetch(raise_on_status="5xx")
        details = caught.value.failure.details or {}
        assert (details["body"] and len(details["body"])) == shown


async def test_a_character_that_json_cannot_carry_is_named(answering: Answering) -> None:
    body = json.dumps([PAD, "\ud800"])
    answering.answers = [web.Response(text=body, content_type="application/json")]
    with pytest.raises(NotJson, match="not valid Unicode"):
        await answering.fetch()


async def test_what_cannot_be_read_within_the_memory_fails_and_says_so(
    answering: Answering, large: LargeResponses
) -> None:
    large.offload.configure(replace(large.offload.limits, memory_bytes=48 * MIB))
    answering.answers = [web.json_response([[]] * MIB)]
    with pytest.raises(LimitExceeded, match="ask for less data at a time"):
        await answering.fetch()


# --- memory of many at once ---------------------------------------------------------------------


async def test_large_responses_are_read_in_turns_and_leave_others_a_place(
    clients: HttpClients,
) -> None:
    """Four runs of one workflow, of which two fit its share; another workflow is not held up by them."""
    large = LargeResponses(at_once=8 * MIB)
    release = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x" * (MIB + 1))
        for _ in range(8):
            await response.write(b"x" * (MIB // 8))
        if request.query["by"] == "hostile":
            await release.wait()
        await response.write_eof()
        return response

    application = web.Application()
    application.router.add_get("/", endless)
    service = HttpService(make=lambda: clients, large=large)

    async def run(server: TestServer, workflow: str) -> Any:
        context = FakeContext(services={"http": service})
        context.workflow = workflow
        url = str(server.make_url("/")) + f"?by={workflow}"
        return await run_node("http", {"url": url, "max_response_bytes": 2 * MIB + 1000}, context)

    async with TestServer(application) as server, asyncio.timeout(20):
        hostile = [asyncio.create_task(run(server, "hostile")) for _ in range(4)]
        while not large.waiting:
            await asyncio.wait(hostile, timeout=0.01)
        assert (await run(server, "honest"))["status"] == 200
        release.set()
        assert [(await each)["status"] for each in hostile] == [200] * 4
    await large.close()


async def test_a_packed_response_counts_unpacked(answering: Answering) -> None:
    content = gzip.compress(json.dumps(["x" * (2 * MIB)]).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    answering.answers = [web.Response(body=content, headers=headers)]
    assert len(bytes((await answering.fetch())["body"])) > 2 * MIB


# --- JSON inside values -----------------------------------------------------------------------


def test_json_inside_a_value_counts_for_its_size_and_depth() -> None:
    raw = Raw(b'"' + b"x" * 200_000 + b'"')
    assert not is_small({"body": raw})
    with pytest.raises(LimitExceeded):
        encode_value({"body": raw}, limit=100_000)
    survey = Survey(None)
    list(survey.measure({"body": raw}, "the value"))
    assert survey.size >= 200_000
    with pytest.raises(NotJson, match="nested"):
        encode_value({"body": Raw(b"[" * 200 + b"]" * 200), "pad": ["x"] * 200})


async def test_a_secret_in_a_large_response_is_taken_out() -> None:
    secrets = Redactor()
    secrets.learn(Credential("crm", "bearer", {"token": "s3cr3t-t0ken-of-the-crm"}))
    output = {"body": Raw(json.dumps([PAD, "s3cr3t-t0ken-of-the-crm"]).encode())}
    redacted = await secrets.returned(output, "the output")
    assert b"s3cr3t" not in encode_value(redacted)
    assert decode_value(encode_value(redacted))["body"][1] == "[secret crm]"
