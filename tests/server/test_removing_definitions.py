"""Definitions are removed only when nothing needs them, and the refusal says what does."""

from __future__ import annotations

import httpx
import pytest

from dalsegno.app import App
from tests.server.test_executions import WAITS, deploy_script, ended

OTHER = WAITS.replace('"go"', '"come"')


async def refusal(http: httpx.AsyncClient, path: str) -> str:
    answer = await http.delete(f"/v1/definitions/{path}")
    assert (answer.status_code, answer.json()["code"]) == (409, "DS-160"), answer.text
    return str(answer.json()["detail"])


@pytest.fixture
async def two_versions(http: httpx.AsyncClient) -> None:
    await deploy_script(http, WAITS)
    await deploy_script(http, OTHER)


@pytest.mark.usefixtures("two_versions")
async def test_what_runs_is_kept(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"workflow": "waits@1"})).json()["id"]

    assert execution in await refusal(http, "waits/versions/1")
    assert execution in await refusal(http, "waits")
    assert "current" in await refusal(http, "waits/versions/2")

    await http.post(f"/v1/executions/{execution}/cancel")
    await ended(http, execution)
    assert (await http.delete("/v1/definitions/waits/versions/1")).status_code == 204
    assert (await http.delete("/v1/definitions/waits/versions/1")).status_code == 404
    assert (await http.delete("/v1/definitions/waits")).status_code == 204
    assert (await http.get("/v1/definitions/waits")).status_code == 404
    gone = await http.post("/v1/executions", json={"workflow": "waits"})
    assert (gone.status_code, gone.json()["code"]) == (404, "DS-130")


@pytest.mark.usefixtures("two_versions")
async def test_what_an_alias_means_is_kept(http: httpx.AsyncClient) -> None:
    await http.put("/v1/definitions/waits/aliases/stable", json={"version": 1})

    assert "'stable'" in await refusal(http, "waits/versions/1")
    assert "'stable'" in await refusal(http, "waits")
    await http.delete("/v1/definitions/waits/aliases/stable")
    assert (await http.delete("/v1/definitions/waits")).status_code == 204


@pytest.mark.usefixtures("two_versions")
async def test_what_a_schedule_starts_is_kept(http: httpx.AsyncClient, app: App) -> None:
    await app.schedules.aadd("nightly", "0 3 * * *", "waits@1")

    assert "'nightly'" in await refusal(http, "waits/versions/1")
    assert "'nightly'" in await refusal(http, "waits")
    await app.schedules.aremove("nightly")
    assert (await http.delete("/v1/definitions/waits/versions/1")).status_code == 204


@pytest.mark.usefixtures("two_versions")
async def test_what_a_webhook_starts_is_kept(http: httpx.AsyncClient) -> None:
    unsigned = {"signature": {"style": "none"}}
    for name, target in (("push", "waits@1"), ("other", "elsewhere")):
        setting = {"path": name, "workflow": target, "enabled": False, **unsigned}
        assert (await http.put(f"/v1/webhooks/{name}", json=setting)).status_code == 201

    assert "the webhook 'push'" in await refusal(http, "waits/versions/1")
    assert "the webhook 'push'" in await refusal(http, "waits")
    await http.put("/v1/webhooks/push", json={"path": "push", "workflow": "waits", **unsigned})
    assert (await http.delete("/v1/definitions/waits/versions/1")).status_code == 204
    assert "the webhook 'push'" in await refusal(http, "waits")
    await http.delete("/v1/webhooks/push")
    assert (await http.delete("/v1/definitions/waits")).status_code == 204


async def test_what_is_not_there_is_told(http: httpx.AsyncClient) -> None:
    for path in ("nobody", "nobody/versions/1"):
        answer = await http.delete(f"/v1/definitions/{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "DS-130")
