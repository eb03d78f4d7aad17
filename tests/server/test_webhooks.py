"""Webhooks: set up over HTTP, then called by senders that sign, repeat themselves, forge and flood."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from dalsegno.admin.webhook_signatures import PRESETS, Style, sign
from dalsegno.app import App
from tests.server.test_executions import ended

SECRET = "a-very-secret-word"
JSON = {"Content-Type": "application/json"}
ECHO = {
    "name": "echo",
    "nodes": [
        {
            "id": "keep",
            "type": "edit",
            "parameters": {
                "mode": "keep_only",
                "assignments": [{"name": "got", "value": "{{ $trigger.body }}"}],
            },
        }
    ],
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")


async def set_up(http: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    await http.post("/v1/definitions", json=ECHO)
    setting = {"path": "gh/push", "workflow": "echo", "secret": SECRET, **more}
    if more.get("signature", {}).get("style") == "none":
        del setting["secret"]
    answer = await http.put("/v1/webhooks/push", json=setting)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


async def deliver(
    http: httpx.AsyncClient, body: bytes, style: Style = "github", **headers: str
) -> httpx.Response:
    signed = sign(PRESETS[style], SECRET, body, time.time(), "d1")
    return await http.post("/v1/hooks/gh/push", content=body, headers={**JSON, **signed, **headers})


async def started(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get("/v1/executions?workflow=echo")).json()["items"]
    return found


async def test_a_signed_delivery_starts_the_workflow_with_what_came(http: httpx.AsyncClient) -> None:
    made = await set_up(http, headers=["X-GitHub-Event"])
    assert (made["url"], made["signature"]["header"]) == ("/v1/hooks/gh/push", "x-hub-signature-256")
    body = b'{"n": 1}'
    signed = sign(PRESETS["github"], SECRET, body, 0.0, "")
    answer = await http.post(
        "/v1/hooks/gh/push?a=1&b=2&b=3",
        content=body,
        headers={**JSON, **signed, "X-GitHub-Event": "push", "Cookie": "c=1", "Authorization": "Bearer x"},
    )
    assert (answer.status_code, answer.json()["repeated"]) == (202, False), answer.text
    done = await ended(http, answer.json()["execution"])
    assert done["state"] == "COMPLETED"
    assert done["tags"] == {"webhook": "push"}
    given = done["input"]
    assert (given["body"], given["query"]) == ({"n": 1}, {"a": "1", "b": ["2", "3"]})
    assert (given["method"], given["path"]) == ("POST", "gh/push")
    assert given["headers"].pop("user-agent").startswith("python-httpx")
    assert given["headers"] == {"content-type": "application/json", "x-github-event": "push"}


async def test_the_secret_is_nowhere_to_be_read(http: httpx.AsyncClient, app: App) -> None:
    await set_up(http)
    shown = (await http.get("/v1/webhooks")).text + (await http.get("/v1/webhooks/push")).text
    records = app.client.stack.records
    kept = [await records.page(kind) for kind in ("webhook", "webhook-path", "credential")]
    assert SECRET not in shown + repr(kept)


async def test_forged_missing_and_changed_signatures_start_nothing(http: httpx.AsyncClient) -> None:
    await set_up(http)
    good = sign(PRESETS["github"], SECRET, b'{"n": 1}', 0.0, "")
    forged = sign(PRESETS["github"], "another secret", b'{"n": 1}', 0.0, "")
    for headers, body in ((forged, b'{"n": 1}'), ({}, b'{"n": 1}'), (good, b'{"n": 2}'), (good, b"{")):
        answer = await http.post("/v1/hooks/gh/push", content=body, headers={**JSON, **headers})
        assert (answer.status_code, answer.json()["code"]) == (403, "DS-360"), answer.text
    assert await started(http) == []


async def test_an_old_delivery_is_refused(http: httpx.AsyncClient) -> None:
    await set_up(http, signature={"style": "stripe"})
    old = sign(PRESETS["stripe"], SECRET, b"{}", time.time() - 301, "")
    answer = await http.post("/v1/hooks/gh/push", content=b"{}", headers={**JSON, **old})
    assert (answer.status_code, answer.json()["code"]) == (403, "DS-361")
    assert await started(http) == []


async def test_the_same_delivery_starts_once_even_at_the_same_time(http: httpx.AsyncClient) -> None:
    await set_up(http)
    answers = await asyncio.gather(*(deliver(http, b'{"n": 1}') for _ in range(5)))
    assert {answer.status_code for answer in answers} <= {200, 202}
    again = await deliver(http, b'{"n": 1}')
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    assert {answer.json()["execution"] for answer in (*answers, again)} == {again.json()["execution"]}
    await deliver(http, b'{"n": 2}')
    assert len(await started(http)) == 2


async def test_a_sender_that_signs_its_repetitions_anew_starts_once(http: httpx.AsyncClient) -> None:
    """Stripe names the event in its body."""
    await set_up(http, signature={"style": "stripe"})
    first = sign(PRESETS["stripe"], SECRET, b'{"id": "evt_1"}', time.time() - 60, "")
    await http.post("/v1/hooks/gh/push", content=b'{"id": "evt_1"}', headers={**JSON, **first})
    again = await deliver(http, b'{"id": "evt_1"}', "stripe")
    assert (again.status_code, again.json()["repeated"]) == (200, True)


async def test_a_header_can_name_the_delivery(http: httpx.AsyncClient) -> None:
    await set_up(http, delivery_header="X-Delivery")
    one = await deliver(http, b"{}", "github", **{"X-Delivery": "1"})
    same = await deliver(http, b'{"other": 1}', "github", **{"X-Delivery": "1"})
    two = await deliver(http, b"{}", "github", **{"X-Delivery": "2"})
    assert one.json()["execution"] == same.json()["execution"] != two.json()["execution"]


async def test_a_webhook_that_waits_answers_with_the_output(http: httpx.AsyncClient) -> None:
    await set_up(http, sync_seconds=20)
    answer = await deliver(http, b'{"n": 7}')
    assert (answer.status_code, answer.json()) == (200, {"got": {"n": 7}})


async def test_a_failure_is_told_without_its_words(http: httpx.AsyncClient) -> None:
    bad = {"name": "echo", "nodes": [{"id": "f", "type": "task", "parameters": {"task": "fail"}}]}
    await set_up(http, sync_seconds=20)
    await http.post("/v1/definitions", json=bad)
    answer = await deliver(http, b"{}")
    assert (answer.status_code, answer.json()["code"]) == (409, "DS-171")
    assert "no luck" not in answer.text


async def test_one_that_takes_longer_than_the_sender_waits_is_202(http: httpx.AsyncClient) -> None:
    source = 'workflow echo(inputs) {\n  await Signal.when("go")\n}\n'
    await set_up(http, sync_seconds=0.05)
    await http.post("/v1/definitions", json={"source": source, "kind": "script"})
    answer = await deliver(http, b"{}")
    assert (answer.status_code, answer.json()["state"]) == (202, "RUNNING")


async def test_bodies_are_json_forms_or_text(http: httpx.AsyncClient) -> None:
    await set_up(http, sync_seconds=20)
    for media, body, got in (
        ("application/x-www-form-urlencoded", b"a=1&b=2&b=3", {"a": "1", "b": ["2", "3"]}),
        ("text/plain", "grüße".encode(), "grüße"),
        ("application/vnd.x+json", b"[1]", [1]),
    ):
        answer = await deliver(http, body, **{"Content-Type": media})
        assert answer.json() == {"got": got}, media
    for media, body, status in (
        ("application/json", b"{", 400),
        ("application/json", b"[" * 100_000, 400),
        ("text/plain", b"\xff", 400),
        ("image/png", b"png", 415),
    ):
        answer = await deliver(http, body, **{"Content-Type": media})
        assert answer.status_code == status, (media, answer.text)


async def test_unknown_paths_disabled_webhooks_and_other_methods(http: httpx.AsyncClient) -> None:
    await set_up(http)
    assert (await http.post("/v1/hooks/other")).status_code == 404
    assert (await http.post("/v1/hooks/gh/push/")).status_code == 404
    assert (await http.get("/v1/hooks/gh/push")).status_code == 405
    wrong = await http.put("/v1/hooks/gh/push")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    await set_up(http, enabled=False)
    assert (await deliver(http, b"{}")).status_code == 404
    await http.delete("/v1/webhooks/push")
    assert (await http.get("/v1/webhooks/push")).status_code == 404
    assert await started(http) == []


async def test_too_many_and_too_large(http: httpx.AsyncClient) -> None:
    await set_up(http, rate=2, body_bytes=10)
    large = await deliver(http, b'{"n": 12345}')
    assert (large.status_code, large.json()["code"]) == (413, "DS-191")
    answers = [await deliver(http, b"%d" % number) for number in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert int(answers[2].headers["retry-after"]) >= 1


async def test_a_flood_of_forgeries_is_told_to_wait_and_the_sender_is_not(http: httpx.AsyncClient) -> None:
    await set_up(http)
    forged = {**JSON, "x-hub-signature-256": "sha256=" + "0" * 64}
    answers = [await http.post("/v1/hooks/gh/push", content=b"{}", headers=forged) for _ in range(61)]
    assert (answers[0].status_code, answers[-1].status_code) == (403, 429)
    assert (await deliver(http, b"{}")).status_code == 202


async def test_a_path_belongs_to_one_webhook(http: httpx.AsyncClient) -> None:
    made = await set_up(http)
    setting = {"path": made["path"], "workflow": "echo", "secret": SECRET}
    taken = await http.put("/v1/webhooks/second", json=setting)
    assert (taken.status_code, taken.json()["detail"]) == (
        409,
        "the path 'gh/push' belongs to the webhook 'push'",
    )
    await http.put("/v1/webhooks/push", json={"path": "moved", "workflow": "echo"})
    assert (await http.put("/v1/webhooks/second", json=setting)).status_code == 201
    refused = await http.put(
        "/v1/webhooks/second", json={**setting, "path": "moved", "secret": "another-secret"}
    )
    assert refused.status_code == 409
    assert (await deliver(http, b"{}")).status_code == 202, "the secret is the old one"
    assert [each["id"] for each in (await http.get("/v1/webhooks")).json()["items"]] == ["push", "second"]


async def test_what_makes_no_sense_is_refused(http: httpx.AsyncClient) -> None:
    good = {"path": "a/b", "workflow": "echo", "secret": SECRET}
    for changed, said in (
        ({"path": "../a"}, "path"),
        ({"path": "a b"}, "path"),
        ({"secret": None}, "'secret' is needed"),
        ({"secret": "short"}, "fewer than 8"),
        ({"headers": ["Authorization"]}, "never given"),
        ({"headers": ["x-hub-signature-256"]}, "never given"),
        ({"methods": ["GET"]}, "methods"),
        ({"signature": {"style": "standard"}}, "whsec_"),
        ({"workflow": "a@b@c"}, "more than one '@'"),
    ):
        answer = await http.put("/v1/webhooks/w", json={**good, **changed})
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["detail"]
    assert (await http.get("/v1/webhooks")).json()["items"] == []


async def test_no_workflow_can_use_the_secret_of_a_webhook(http: httpx.AsyncClient, app: App) -> None:
    await set_up(http)
    (found,) = (await http.get("/v1/credentials")).json()["items"]
    assert (found["name"], found["workflows"]) == ("webhook.push", ["@webhook.push"])
    refused = await http.post("/v1/definitions", json={**ECHO, "name": "@webhook.push"})
    assert refused.status_code == 422
    assert app.engine.vault is not None


async def test_the_secret_of_a_webhook_cannot_be_removed_under_it(http: httpx.AsyncClient) -> None:
    await http.post("/v1/definitions", json=ECHO)
    await http.put("/v1/webhooks/in", json={"path": "in", "workflow": "echo", "secret": SECRET})

    refused = await http.delete("/v1/credentials/webhook.in")
    assert (refused.status_code, refused.json()["code"]) == (409, "DS-160")
    assert "the webhook 'in'" in refused.json()["detail"]
    assert (await http.delete("/v1/webhooks/in")).status_code == 204
    assert (await http.delete("/v1/credentials/webhook.in")).status_code == 404


async def test_a_webhook_whose_secret_is_gone_tells_those_who_run_it_only(
    http: httpx.AsyncClient, app: App
) -> None:
    await http.post("/v1/definitions", json=ECHO)
    setting = {"path": "in", "workflow": "echo", "secret": SECRET}
    await http.put("/v1/webhooks/in", json=setting)
    assert (await http.get("/v1/webhooks/in")).json()["warning"] is None
    await app.engine.vault.remove("webhook.in")

    answer = await http.post("/v1/hooks/in", content=b"hello")
    assert (answer.status_code, answer.json()["code"]) == (503, "DS-210")
    assert "credential" not in answer.text
    assert "webhook.in" not in answer.text
    for shown in (
        (await http.get("/v1/webhooks/in")).json(),
        (await http.get("/v1/webhooks")).json()["items"][0],
    ):
        assert "there is no credential 'webhook.in'" in shown["warning"]
    health = (await http.get("/v1/health")).json()
    assert health["status"] == "degraded"
    assert any(part["name"] == "webhooks" and "'in'" in part["detail"] for part in health["parts"])

    await http.put("/v1/webhooks/in", json=setting)
    assert (await http.post("/v1/hooks/in", content=b"hello")).status_code == 403
    parts = (await http.get("/v1/health")).json()["parts"]
    assert "webhooks" not in [part["name"] for part in parts]
