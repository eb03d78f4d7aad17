"""Moves over HTTP: chunks, reasons, the audit log, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx

from tests.server.test_executions import deploy_script
from tests.server.test_listing import start

OLD = 'workflow order(inputs) {\n  let word = await Signal.when("go")\n  return ["old", word]\n}\n'
NEW = OLD.replace('"old"', '"new"')
GONE = 'workflow order(inputs) {\n  return "gone"\n}\n'


async def waiting(http: httpx.AsyncClient, count: int) -> list[str]:
    await deploy_script(http, OLD)
    names = [await start(http, "order") for _ in range(count)]
    for name in names:
        while True:
            events = (await http.get(f"/v1/executions/{name}/events")).json()["events"]
            if any(event["kind"] == "Suspended" for event in events):
                break
    return names


async def moved(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post("/v1/definitions/order/move", json={"from": 1, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_executions_are_moved_chunk_by_chunk(http: httpx.AsyncClient) -> None:
    names = await waiting(http, 5)
    await deploy_script(http, NEW)
    await deploy_script(http, GONE)

    dry = await moved(http, to=2, dry_run=True)
    assert (dry["moved"], dry["refusals"], dry["to_version"]) == (5, [], 2)
    first = await moved(http, to=2, limit=2)
    assert (first["moved"], bool(first["next"])) == (2, True)
    second = await moved(http, to=2, cursor=first["next"])
    assert (second["moved"], second["next"]) == (3, None)
    refused = await moved(http, **{"from": 2, "to": "latest"})
    assert (refused["moved"], len(refused["refusals"]), refused["to_version"]) == (0, 5, 3)
    reason = refused["refusals"][0]["reasons"][0]
    assert (reason["old_line"], reason["old_text"]) == (2, 'let word = await Signal.when("go")')

    one = await http.post(f"/v1/executions/{names[0]}/move", json={"version": "latest"})
    assert (one.status_code, "cannot continue in version 3" in one.json()["detail"]) == (409, True)
    back = await http.post(f"/v1/executions/{names[0]}/move", json={"version": 1})
    assert (back.json()["state"], back.json()["frames"][0]["new_line"]) == ("moved", 2)
    assert (await http.get(f"/v1/executions/{names[0]}")).json()["version"] == 1
    audit = (await http.get("/v1/audit")).json()["items"]
    assert {"definitions.move", "executions.move"} <= {entry["action"] for entry in audit}


async def test_a_script_that_is_not_deployed_is_only_checked(http: httpx.AsyncClient) -> None:
    await waiting(http, 2)

    checked = await moved(http, source=NEW, dry_run=True)
    assert (checked["moved"], checked["to_version"]) == (2, 2)
    gone = await moved(http, source=GONE, dry_run=True)
    assert (gone["moved"], len(gone["refusals"])) == (0, 2)
    assert len((await http.get("/v1/definitions/order/versions")).json()) == 1
    for body in (
        {"source": NEW},
        {"source": NEW, "to": 1, "dry_run": True},
        {},
        {"source": NEW.replace("workflow order", "workflow other"), "dry_run": True},
        {"to": 2, "cursor": "x"},
    ):
        answer = await http.post("/v1/definitions/order/move", json={"from": 1, **body})
        assert answer.status_code in (404, 422), (body, answer.text)
    missing = await http.post("/v1/definitions/order/move", json={"from": 7, "to": 1})
    assert missing.status_code == 404
