"""``schedule`` and ``webhook`` nodes: deploying a graph makes what they stand for, the next version takes it away."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from dalsegno.admin.triggers import LOCKS, triggers_of
from dalsegno.admin.webhook_signatures import PRESETS, sign
from dalsegno.app import App
from dalsegno.engine.schedules import ScheduleRecords
from dalsegno.errors import Conflict, InvalidDefinition
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.auth.test_keys import bearer, make_key
from tests.server.conftest import LASTING
from tests.server.test_executions import ended

JSON = {"Content-Type": "application/json"}
SAY = {"id": "say", "type": "log", "parameters": {"message": "started by {{ $trigger.body.who ?? 'time' }}"}}
NIGHTLY = {
    "id": "nightly",
    "type": "schedule",
    "parameters": {"cron": "0 2 * * *", "timezone": "Europe/Rome"},
}
HOOK = {"id": "hook", "type": "webhook", "parameters": {"path": "shop/orders"}}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")


@pytest.fixture
def application(app: App) -> FastAPI:
    """Looks for changed keys at every call."""
    return create_application(app, ServerSettings(keys_seconds=0.0))


def report(*triggers: dict[str, Any], **more: Any) -> dict[str, Any]:
    edges = [{"src": trigger["id"], "dst": "say"} for trigger in triggers]
    return {"name": "report", "nodes": [*triggers, SAY], "edges": edges, **more}


async def deploy(http: httpx.AsyncClient, *triggers: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    answer = await http.post("/v1/definitions", json=report(*triggers, **more))
    assert answer.status_code in (200, 201), answer.text
    found: list[dict[str, Any]] = answer.json()["triggers"]
    return found


async def schedules(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get("/v1/schedules")).json()["items"]
    return found


async def webhooks(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await http.get("/v1/webhooks")).json()["items"]
    return found


# -- schedules -------------------------------------------------------------------------------------------------


async def test_a_schedule_node_makes_a_schedule_once(http: httpx.AsyncClient) -> None:
    [made] = await deploy(http, NIGHTLY)
    assert made == {
        "kind": "schedule",
        "name": "report/nightly",
        "status": "added",
        "about": "0 2 * * * (Europe/Rome)",
        "node": "nightly",
        "secret": None,
    }
    [again] = await deploy(http, NIGHTLY)
    assert again["status"] == "unchanged"
    [schedule] = await schedules(http)
    assert (schedule["name"], schedule["workflow"], schedule["version"]) == ("report/nightly", "report", None)
    assert (schedule["cron"], schedule["timezone"], len(schedule["next"])) == ("0 2 * * *", "Europe/Rome", 1)


async def test_what_the_schedule_starts_is_the_workflow(http: httpx.AsyncClient) -> None:
    await deploy(http, NIGHTLY)
    started = await http.post("/v1/schedules/report%2Fnightly/trigger")
    assert started.status_code == 201, started.text
    done = await ended(http, started.json()["id"])
    assert (done["state"], done["workflow"], done["relation"]) == ("COMPLETED", "report", "schedule")


async def test_a_new_version_replaces_the_schedule_and_one_without_the_node_removes_it(
    http: httpx.AsyncClient,
) -> None:
    await deploy(http, NIGHTLY)
    later = {**NIGHTLY, "parameters": {"cron": "30 4 * * *"}}
    [changed] = await deploy(http, later)
    assert (changed["status"], changed["about"]) == ("changed", "30 4 * * * (UTC)")
    assert [each["cron"] for each in await schedules(http)] == ["30 4 * * *"]
    [renamed, gone] = await deploy(http, {**later, "id": "early"})
    assert (renamed["status"], renamed["name"]) == ("added", "report/early")
    assert (gone["status"], gone["name"], gone["node"]) == ("removed", "report/nightly", None)
    [removed] = await deploy(http)
    assert (removed["status"], removed["name"]) == ("removed", "report/early")
    assert await schedules(http) == []
    assert await deploy(http) == []
    [back] = await deploy(http, NIGHTLY)
    assert back["status"] == "added"


async def test_a_paused_schedule_stays_paused(http: httpx.AsyncClient) -> None:
    await deploy(http, NIGHTLY)
    await http.post("/v1/schedules/report%2Fnightly/pause")
    [told] = await deploy(http, {**NIGHTLY, "parameters": {"cron": "0 3 * * *"}})
    [schedule] = await schedules(http)
    assert (told["status"], schedule["state"], schedule["cron"]) == ("changed", "PAUSED", "0 3 * * *")


async def test_spellings_of_other_systems_make_schedules_too(http: httpx.AsyncClient) -> None:
    document = {
        "name": "old",
        "dag": {
            "nodes": [
                {"id": "s", "handler": "ScheduledTrigger", "config": {"cron": "@daily"}},
                {"id": "l", "handler": "log", "dependencies": ["s"], "config": {"message": "m"}},
            ]
        },
    }
    answer = await http.post("/v1/definitions", json=document)
    assert [each["name"] for each in answer.json()["triggers"]] == ["old/s"], answer.text


# -- webhooks --------------------------------------------------------------------------------------------------


async def test_a_webhook_node_makes_a_webhook_whose_secret_is_told_once(http: httpx.AsyncClient) -> None:
    [made] = await deploy(http, HOOK)
    assert (made["kind"], made["name"], made["status"]) == ("webhook", "report.hook", "added")
    assert (made["about"], len(made["secret"])) == ("POST /v1/hooks/shop/orders", 64)
    [again] = await deploy(http, HOOK)
    assert (again["status"], again["secret"]) == ("unchanged", None)
    [webhook] = await webhooks(http)
    assert (webhook["path"], webhook["workflow"], webhook["signature"]["style"]) == (
        "shop/orders",
        "report",
        "github",
    )
    body = b'{"who": "shop"}'
    signed = sign(PRESETS["github"], made["secret"], body, 0.0, "")
    answer = await http.post("/v1/hooks/shop/orders", content=body, headers={**JSON, **signed})
    assert answer.status_code == 202, answer.text
    done = await ended(http, answer.json()["execution"])
    assert done["output"]["message"] == "started by shop"
    forged = await http.post("/v1/hooks/shop/orders", content=body, headers=JSON)
    assert forged.status_code == 403


async def test_a_new_version_changes_the_webhook_and_keeps_its_secret(http: httpx.AsyncClient) -> None:
    [made] = await deploy(http, HOOK)
    moved = {**HOOK, "parameters": {"path": "/shop/new", "method": "put"}}
    [changed] = await deploy(http, moved)
    assert (changed["status"], changed["about"], changed["secret"]) == (
        "changed",
        "PUT /v1/hooks/shop/new",
        None,
    )
    signed = sign(PRESETS["github"], made["secret"], b"{}", 0.0, "")
    answer = await http.put("/v1/hooks/shop/new", content=b"{}", headers={**JSON, **signed})
    assert answer.status_code == 202, answer.text
    assert (await http.post("/v1/hooks/shop/orders", content=b"{}", headers=JSON)).status_code == 404
    [removed] = await deploy(http)
    assert (removed["status"], removed["kind"]) == ("removed", "webhook")
    assert await webhooks(http) == []
    assert (await http.put("/v1/hooks/shop/new", content=b"{}", headers=JSON)).status_code == 404


async def test_a_credential_may_hold_the_secret(http: httpx.AsyncClient) -> None:
    node = {**HOOK, "parameters": {"path": "shop/orders", "secret": "shop"}}
    unknown = await http.post("/v1/definitions", json=report(node))
    assert unknown.status_code in (404, 422), unknown.text
    credential = {"type": "custom", "fields": {"secret": "the-word-of-the-shop"}, "workflows": ["report"]}
    assert (await http.put("/v1/credentials/shop", json=credential)).status_code == 201
    [made] = await deploy(http, node)
    assert made["secret"] is None
    signed = sign(PRESETS["github"], "the-word-of-the-shop", b"{}", 0.0, "")
    answer = await http.post("/v1/hooks/shop/orders", content=b"{}", headers={**JSON, **signed})
    assert answer.status_code == 202, answer.text


async def test_what_cannot_be_made_is_refused_and_nothing_is_stored(http: httpx.AsyncClient) -> None:
    taken = {"path": "shop/orders", "workflow": "other", "secret": "a-long-enough-one"}
    assert (await http.put("/v1/webhooks/mine", json=taken)).status_code == 201
    by_hand = {"name": "report/nightly", "timing": "@daily", "workflow": "report", "allow_unknown": True}
    assert (await http.post("/v1/schedules", json=by_hand)).status_code == 201
    for document, code, said in (
        (report(HOOK), 409, "belongs to the webhook 'mine'"),
        (report(NIGHTLY), 409, "not made by a deploy"),
        (report({**HOOK, "parameters": {"path": "a b"}}), 422, "node 'hook'"),
        (report({**HOOK, "parameters": {"path": "a", "method": "GET"}}), 422, "POST, PUT, PATCH, not GET"),
        (
            report({**NIGHTLY, "id": "s", "parameters": {"cron": "61 * * * *"}}),
            422,
            "/nodes/0/parameters/cron",
        ),
        (report(*({**HOOK, "id": each, "parameters": {"path": "same"}} for each in "ab")), 422, "same path"),
        (
            report({**NIGHTLY, "id": "s"}, input_schema={"type": "object", "required": ["shop"]}),
            422,
            "'shop' is a required property",
        ),
    ):
        answer = await http.post("/v1/definitions", json=document)
        assert (answer.status_code, said in answer.text) == (code, True), answer.text
    assert (await http.get("/v1/definitions/report")).status_code == 404
    assert [each["name"] for each in await schedules(http)] == ["report/nightly"]
    assert [each["id"] for each in await webhooks(http)] == ["mine"]


async def test_removing_the_workflow_removes_what_its_nodes_made(http: httpx.AsyncClient) -> None:
    await deploy(http, NIGHTLY, HOOK)
    own = {"name": "own", "timing": "@daily", "workflow": "report"}
    await http.post("/v1/schedules", json=own)
    kept = await http.delete("/v1/definitions/report")
    assert (kept.status_code, "'own'" in kept.text) == (409, True), kept.text
    assert len(await schedules(http)) == 2
    await http.delete("/v1/schedules/own")
    assert (await http.delete("/v1/definitions/report")).status_code == 204
    assert (await schedules(http), await webhooks(http)) == ([], [])


async def test_what_a_start_brings_along_makes_nothing(http: httpx.AsyncClient) -> None:
    started = await http.post("/v1/executions", json={"definition": report(NIGHTLY, HOOK), "input": {}})
    assert started.status_code == 201, started.text
    assert (await schedules(http), await webhooks(http)) == ([], [])


# -- rights ----------------------------------------------------------------------------------------------------


async def test_a_key_without_the_right_to_webhooks_gets_none_by_a_deploy(
    app: App, http: httpx.AsyncClient
) -> None:
    admin, runner = bearer(await make_key(app, "admin", name="ops")), bearer(await make_key(app, "run"))

    async def by(headers: dict[str, str], *triggers: dict[str, Any]) -> httpx.Response:
        return await http.post("/v1/definitions", json=report(*triggers), headers=headers)

    refused = await by(runner, HOOK)
    assert (refused.status_code, "would add the webhook 'report.hook'" in refused.text) == (403, True)
    assert (await http.get("/v1/definitions/report", headers=admin)).status_code == 404
    assert (await by(runner, NIGHTLY)).status_code == 201
    assert (await by(admin, NIGHTLY, HOOK)).status_code == 201
    assert (await by(runner, NIGHTLY, HOOK)).status_code == 200
    moved = {**HOOK, "parameters": {"path": "elsewhere"}}
    for triggers, verb in (((NIGHTLY, moved), "change"), ((NIGHTLY,), "remove")):
        answer = await by(runner, *triggers)
        assert (answer.status_code, f"would {verb} the webhook" in answer.text) == (403, True), answer.text
    assert len((await http.get("/v1/webhooks", headers=admin)).json()["items"]) == 1


# -- embedded --------------------------------------------------------------------------------------------------


def test_an_application_deploys_in_the_same_way(store_url: str) -> None:
    app = App(store_url)
    with app.running():
        definition = app.deploy(report(NIGHTLY, HOOK))
        assert [(each.kind, each.status) for each in definition.triggers] == [
            ("schedule", "added"),
            ("webhook", "added"),
        ]
        assert [each.name for each in app.schedules.list()] == ["report/nightly"]
        assert [each.status for each in app.deploy(report(NIGHTLY, HOOK)).triggers] == [
            "unchanged",
            "unchanged",
        ]
        gone = app.deploy_script("return 1", name="report")
        assert [(each.name, each.status) for each in gone.triggers] == [
            ("report/nightly", "removed"),
            ("report.hook", "removed"),
        ]
        assert app.schedules.list() == []
        with pytest.raises(InvalidDefinition, match=r"/nodes/0/parameters/cron: .* has 6 fields"):
            app.deploy(report({**NIGHTLY, "parameters": {"cron": "0 2 * * * *"}}))
        app.schedules.add("report/nightly", "@daily", "report")
        with pytest.raises(Conflict, match="not made by a deploy"):
            app.deploy(report(NIGHTLY))


# -- versions of other kinds -----------------------------------------------------------------------------------


def with_a_python_workflow(store_url: str) -> App:
    app = App(store_url)

    @app.workflow
    async def report() -> int:
        return 1

    return app


@LASTING
def test_a_python_workflow_that_replaces_a_graph_ends_what_its_nodes_made(store_url: str) -> None:
    graphs = App(store_url)
    graphs.deploy(report(NIGHTLY, HOOK))
    assert [each.name for each in graphs.schedules.list()] == ["report/nightly"]
    program = with_a_python_workflow(store_url)
    with program.running(worker=False):
        assert program.schedules.list() == []
        assert program.host.call(triggers_of(program.engine).webhooks.page()) == []
        assert [each.status for each in program.deploy(report(NIGHTLY)).triggers] == ["added"]
    graphs.close()


# -- deploys at the same time ----------------------------------------------------------------------------------


def scheduled(number: int) -> dict[str, Any]:
    return report({**NIGHTLY, "id": f"n{number}", "parameters": {"cron": f"{number} 2 * * *"}})


async def planned(app: App) -> list[str]:
    return [each.name for each in await app.schedules.alist()]


@LASTING
async def test_a_deploy_that_was_overtaken_leaves_the_schedules_of_the_current_version(
    store_url: str,
) -> None:
    """Another one stores its version, and makes its schedule, before the first has made its own."""
    first, second = App(store_url), App(store_url)
    async with first.running(worker=False), second.running(worker=False):
        store = first.client.stack.archive.put_definition

        async def put(*given: Any) -> Any:
            stored = await store(*given)
            await second.adeploy(scheduled(3))
            return stored

        first.client.stack.archive.put_definition = put  # type: ignore[method-assign]
        await first.adeploy(scheduled(2))
        assert await planned(second) == ["report/n3"]


@LASTING
async def test_a_deploy_during_another_ones_changes_leaves_the_schedules_of_the_current_version(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = App(store_url), App(store_url)
    async with first.running(worker=False), second.running(worker=False):
        await first.adeploy(scheduled(1))
        add, later = ScheduleRecords.add, []

        async def overtaken(book: ScheduleRecords, *given: Any, **options: Any) -> Any:
            """The current version changes just before the first schedule is added."""
            if not later:
                await second.client.deploy(scheduled(3))
                later.append(asyncio.ensure_future(second.adeploy(scheduled(3))))
            return await add(book, *given, **options)

        monkeypatch.setattr(ScheduleRecords, "add", overtaken)
        await first.adeploy(scheduled(2))
        await later[0]
        assert await planned(second) == ["report/n3"]


@LASTING
async def test_many_deploys_at_once_leave_the_triggers_of_the_current_version(store_url: str) -> None:
    apps = [App(store_url) for _ in range(3)]
    async with apps[0].running(worker=False), apps[1].running(worker=False), apps[2].running(worker=False):
        await asyncio.gather(*(apps[number % 3].adeploy(scheduled(number)) for number in range(9)))
        current = await apps[0].client.stack.archive.definition("report")
        assert current is not None
        [node] = [each["id"] for each in msgspec.json.decode(current.source)["nodes"] if each["id"] != "say"]
        assert await planned(apps[0]) == [f"report/{node}"]
        assert (await apps[0].adeploy(report())).triggers[0].status == "removed"
        assert await planned(apps[0]) == []


async def test_the_lock_of_a_process_that_died_is_passed_over(http: httpx.AsyncClient, app: App) -> None:
    stack = app.client.stack
    await stack.records.put(LOCKS, "report", msgspec.json.encode(stack.ledger.now() - 0.001))
    [made] = await deploy(http, NIGHTLY)
    assert made["status"] == "added"
    assert await stack.records.get(LOCKS, "report") is None
