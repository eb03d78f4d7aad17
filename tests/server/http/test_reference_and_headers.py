"""What every reply carries, and the reference of the API as it is served."""

from __future__ import annotations

import re

import httpx
import pytest

from dalsegno.server.http.openapi import FILES
from dalsegno.server.http.problems import MEDIA_TYPE, REFUSALS


async def test_every_reply_carries_the_headers(http: httpx.AsyncClient) -> None:
    for answer in (
        await http.get("/v1/executions"),
        await http.get("/nothing"),
        await http.get("/v1/executions", headers={"Host": "evil.example"}),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; base-uri")
        assert "strict-transport-security" not in answer.headers


async def test_behind_tls_browsers_are_told_to_stay_there(http: httpx.AsyncClient) -> None:
    answer = await http.get("https://127.0.0.1:8700/v1/executions")
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


async def test_the_reference_is_served_whole_from_here(http: httpx.AsyncClient) -> None:
    page = await http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert "http:" not in page.text
    assert "https:" not in page.text
    asked = re.findall(r'(?:src|href)="(/docs/[^"]+)"', page.text)
    assert set(asked) == set(FILES) - {"/docs"}
    for path in asked:
        file = await http.get(path)
        assert (file.status_code, file.headers["content-type"]) == (200, FILES[path][1])
    for inline in ("<style", "onclick", "onload", "<script>"):
        assert inline not in page.text


async def test_the_reference_is_swagger_ui_on_this_document(http: httpx.AsyncClient) -> None:
    assert "SwaggerUIBundle" in (await http.get("/docs/swagger-ui-bundle.js")).text
    settings = (await http.get("/docs/reference.js")).text
    assert 'url: "/v1/openapi.json"' in settings
    assert "validatorUrl: null" in settings  # else it would ask a server of others about ours
    assert "queryConfigEnabled: false" in settings


async def test_files_of_the_reference_are_sent_once_and_packed(http: httpx.AsyncClient) -> None:
    first = await http.get("/docs/swagger-ui-bundle.js")
    assert first.headers["content-encoding"] == "gzip"
    plain = await http.get("/docs/swagger-ui-bundle.js", headers={"Accept-Encoding": "identity"})
    assert plain.content == first.content
    again = await http.get("/docs/swagger-ui-bundle.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_the_document_of_the_api_says_how_to_come_in(http: httpx.AsyncClient) -> None:
    document = (await http.get("/v1/openapi.json")).json()
    assert document["security"] == [{"key": []}, {"session": []}, {}]
    assert set(document["components"]["securitySchemes"]) == {"key", "session"}


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
async def test_refusals_are_problems_whatever_an_answer_would_be(http: httpx.AsyncClient) -> None:
    document = (await http.get("/v1/openapi.json")).json()
    assert "Problem" in document["components"]["schemas"]
    refusals = [
        answer["content"]
        for path in document["paths"].values()
        for operation in path.values()
        for status, answer in operation["responses"].items()
        if int(status) in REFUSALS
    ]
    assert len(refusals) > 500
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    for content in refusals:
        assert schema in (content[MEDIA_TYPE], content.get("application/json"))
        assert "text/event-stream" not in content
