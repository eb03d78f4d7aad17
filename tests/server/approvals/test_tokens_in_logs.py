"""A token in a path is a permission: no log, metric or refusal shows it, whatever goes wrong."""

from __future__ import annotations

import logging

import httpx
import pytest

from dalsegno.app import App
from dalsegno.errors import Unavailable
from dalsegno.server.approvals.links import Links
from tests.server.conftest import LiveServer

TOKEN = "very-secret-token-0123456789"
PATH = f"/v1/approvals/links/{TOKEN}"

pytestmark = pytest.mark.parametrize("store_url", ["memory"], indirect=True)


@pytest.mark.parametrize(
    ("error", "status"), [(Unavailable("the store is away"), 503), (ValueError("a bug"), 500)]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_log_of_a_failed_call_has_no_token(
    http: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    status: int,
    method: str,
) -> None:
    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(Links, "find", broken)
    with caplog.at_level(logging.DEBUG):
        answer = await http.request(method, PATH, json={})
    assert answer.status_code == status
    logged = "\n".join(each.getMessage() for each in caplog.records if each.name.startswith("dalsegno"))
    assert f"{method} /v1/approvals/links/…" in logged
    assert TOKEN not in logged + answer.text
    assert TOKEN not in (await http.get("/metrics")).text


@pytest.mark.parametrize(("method", "path"), [("GET", PATH + "/below"), ("DELETE", PATH)])
async def test_a_refusal_has_no_token(http: httpx.AsyncClient, method: str, path: str) -> None:
    answer = await http.request(method, path)
    assert answer.status_code in (404, 405)
    assert TOKEN not in answer.text


def test_uvicorns_own_access_log_has_no_token(
    app: App, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with LiveServer(app) as server, caplog.at_level(logging.INFO, "uvicorn.access"):
        httpx.get(server.url + PATH + "?more=" + TOKEN)
        httpx.get(server.url + "/v1/health/live?verbose")
    logged = capsys.readouterr().out
    assert "/v1/approvals/links/…" in logged
    assert "/v1/health/live?verbose" in logged
    assert TOKEN not in logged
