"""Messages of alerts are signed: receivers verify them with what the documentation tells them to run."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno.admin.alerts import Alert
from dalsegno.admin.webhook_signatures import PRESETS, verify
from dalsegno.cli.target.administration import AlertsHere
from dalsegno.engine.secrets.keys import new_key
from dalsegno.server import alerts as alerting
from dalsegno.server.alerts import Alerting
from dalsegno.server.services import ServerServices
from tests.server.conftest import LASTING
from tests.server.test_alerts import by_hand, fail_once, services

__all__ = ["by_hand", "services"]

IN_MEMORY = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
GUIDE = Path(__file__).parents[2] / "docs" / "failure-alerts.md"
Check = Callable[[str, dict[str, str], bytes], None]
Request = tuple[dict[str, str], bytes]


@pytest.fixture(autouse=True)
def quick_key(by_hand: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key takes no time to read, unlike a passphrase."""
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", new_key())


def example(language: str) -> str:
    """The code of the guide in this language."""
    return GUIDE.read_text().partition(f"```{language}\n")[2].partition("```")[0]


def in_python(secret: str, headers: dict[str, str], body: bytes) -> None:
    scope: dict[str, Any] = {}
    exec(example("python"), scope)
    scope["verify"](secret, headers, body)


def in_node(secret: str, headers: dict[str, str], body: bytes) -> None:
    call = "; const [secret, headers, body] = JSON.parse(require('node:fs').readFileSync(0, 'utf8')); "
    program = example("javascript") + call + "verify(secret, headers, Buffer.from(body, 'hex'))"
    given = json.dumps([secret, headers, body.hex()])
    done = subprocess.run(["node", "-e", program], input=given, text=True, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)


def by_ourselves(secret: str, headers: dict[str, str], body: bytes) -> None:
    verify(PRESETS["standard"], secret, headers, body, time.time())


CHECKS: list[Check] = [in_python, by_ourselves, *([in_node] if shutil.which("node") else [])]


@asynccontextmanager
async def listening(status: int = 204) -> AsyncIterator[tuple[str, list[Request]]]:
    """A receiver on a real socket, which keeps requests as they came."""
    got: list[Request] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
        got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook", got


async def added(http: httpx.AsyncClient, url: str) -> str | None:
    answer = await http.put("/v1/alerts/ops", json={"url": url, "every": 0})
    assert answer.status_code in (200, 201), answer.text
    secret: str | None = answer.json()["secret"]
    return secret


@IN_MEMORY
async def test_a_receiver_verifies_a_message_with_the_code_of_the_guide(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    async with listening() as (url, got):
        secret = await added(http, url)
        assert secret is not None
        assert secret.startswith("whsec_")
        await fail_once(http)
        await Alerting(services).round()
        assert (await http.post("/v1/alerts/ops/test")).json()["delivered"]
    for headers, body in got:
        assert headers["webhook-id"] == json.loads(body)["id"] == headers["idempotency-key"]
        for check in CHECKS:
            check(secret, headers, body)
            with pytest.raises(Exception, match="sign"):
                check(secret, headers, body + b" ")
    assert len(got) == 2


@IN_MEMORY
async def test_every_attempt_has_the_same_id_and_a_signature_of_its_own_time(
    http: httpx.AsyncClient, services: ServerServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerting, "BACK_OFF", (0.0,))
    async with listening(503) as (url, got):
        secret = await added(http, url)
        await fail_once(http)
        for _ in range(3):
            await Alerting(services).round()
    assert len({headers["webhook-id"] for headers, _ in got}) == 1
    assert len(got) == 3
    for headers, body in got:
        by_ourselves(secret or "", headers, body)


@IN_MEMORY
async def test_after_a_rotation_both_secrets_sign_for_a_while(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    async with listening() as (url, got):
        old = await added(http, url)
        new = (await http.post("/v1/alerts/ops/secret", json={"overlap": "1h"})).json()["secret"]
        await http.post("/v1/alerts/ops/test")
        last = (await http.post("/v1/alerts/ops/secret", json={"overlap": 0})).json()["secret"]
        await http.post("/v1/alerts/ops/test")
    assert len({old, new, last}) == 3
    (both, body), (single, later) = got
    for check in CHECKS:
        check(old or "", both, body)
        check(new, both, body)
        check(last, single, later)
        with pytest.raises(Exception, match="sign"):
            check(new, single, later)
    book = Alerting(services).alert_records
    alert = await book.get("ops")
    await book.rotate("ops", 60.0, now=1000.0)
    assert len((await book.receiver(alert, 1059.0)).secrets) == 2
    assert len((await book.receiver(alert, 1061.0)).secrets) == 1


@LASTING
async def test_a_secret_is_shown_once_and_kept_for_its_host_alone(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    secret = await added(http, "https://chat.example.com/one")
    assert secret is not None
    assert await added(http, "https://chat.example.com/two") is None
    shown = (await http.get("/v1/alerts/ops")).text + (await http.get("/v1/alerts")).text
    assert secret not in shown
    assert '"signed":true' in shown
    for page in ("alert", "credential"):
        assert secret not in repr(await services.client.stack.records.page(page))
    assert await added(http, "https://other.example.com/two") not in (None, secret)
    mailed = await http.put("/v1/alerts/mailed", json={"mail": ["ops@example.com"]})
    assert (mailed.json()["secret"], mailed.json()["signed"]) == (None, False)
    refused = await http.post("/v1/alerts/mailed/secret", json={})
    assert (refused.status_code, "not signed" in refused.json()["detail"]) == (422, True)
    assert (await http.post("/v1/alerts/ops/secret", json={"overlap": "40d"})).status_code == 422


@IN_MEMORY
async def test_an_alert_from_before_there_were_signatures_is_sent_without_until_it_has_a_secret(
    http: httpx.AsyncClient, services: ServerServices
) -> None:
    book = Alerting(services).alert_records
    async with listening() as (url, got):
        await added(http, url)
        await book._seal("ops", {"url": url})
        await http.post("/v1/alerts/ops/test")
        secret = await AlertsHere(services.app).arotate("ops", overlap=60.0)
        await http.post("/v1/alerts/ops/test")
    (unsigned, _), (signed, body) = got
    assert "webhook-signature" not in unsigned
    by_ourselves(secret, signed, body)
    assert Alert("x").signed is False
