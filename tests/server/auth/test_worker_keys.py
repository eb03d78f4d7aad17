"""Keys of remote workers: each is for its queues, and answers only for the tasks that it claimed."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI

from dalsegno import App
from dalsegno.admin.keys import KIND, Key, KeyRecords
from dalsegno.engine.remote import sessions
from dalsegno.errors import InvalidInput
from dalsegno.server import ServerSettings
from dalsegno.server.application import create_application
from tests.server.auth.test_keys import bearer, book_of, make_key
from tests.server.conftest import LASTING, LiveServer
from tests.server.test_executions import ended
from tests.server.test_remote import GRAPH

IN_MEMORY = pytest.mark.parametrize("store_url", ["memory"], indirect=True)
"""For what no store has a part in."""
HELD = {"worker": "w1", "queues": ["images"], "wait": 5}


async def worker_key(app: App, name: str, *queues: str) -> dict[str, str]:
    _, text = await book_of(app).add(name, ["worker"], queues=queues)
    return bearer(text)


@pytest.fixture
def application(app: App) -> FastAPI:
    return create_application(app, ServerSettings(keys_seconds=0.0))


@pytest.fixture
async def execution(app: App, http: httpx.AsyncClient) -> str:
    await http.post("/v1/definitions", json=GRAPH)
    answer = await http.post("/v1/executions", json={"workflow": "thumbnails", "input": {"file": "a.png"}})
    http.headers.update(bearer(await make_key(app, "read", name="reader")))
    found: str = answer.json()["id"]
    return found


async def claim(http: httpx.AsyncClient, key: dict[str, str], **given: Any) -> httpx.Response:
    return await http.post("/v1/tasks/claim", json={**HELD, **given}, headers=key)


async def answer(
    http: httpx.AsyncClient, key: dict[str, str], task: dict[str, Any], verb: str
) -> httpx.Response:
    error = {"error": {"message": "no"}} if verb == "fail" else {"output": {"small": "forged"}}
    body = {"fence": task["fence"], **error}
    return await http.post(f"/v1/tasks/{task['id']}/{verb}", json=body, headers=key)


@LASTING
@pytest.mark.usefixtures("execution")
async def test_a_key_claims_only_tasks_of_its_queues(app: App, http: httpx.AsyncClient) -> None:
    certificates = await worker_key(app, "certificates", "certificates")
    for asked in (
        {"queues": ["images"]},
        {"queues": ["certificates", "images"]},
        {"queues": None, "tasks": ["images"]},
    ):
        refused = await claim(http, certificates, **asked)
        assert (refused.status_code, refused.json()["code"]) == (403, "DS-323")
        assert "'images'" in refused.json()["detail"]
        assert "certificates" in refused.json()["detail"]
    allowed = await claim(http, certificates, queues=["certificates"], wait=0)
    assert (allowed.status_code, allowed.json()["tasks"]) == (200, [])
    everywhere = await worker_key(app, "everywhere", "*")
    assert len((await claim(http, everywhere)).json()["tasks"]) == 1


@IN_MEMORY
@pytest.mark.parametrize("verb", ["complete", "fail"])
@pytest.mark.parametrize("queue", ["certificates", "images"])
async def test_a_task_is_answered_only_with_the_key_that_claimed_it(
    app: App, http: httpx.AsyncClient, execution: str, verb: str, queue: str
) -> None:
    """Neither with one for another queue, nor with one for the same queue and the worker's name."""
    resizer = await worker_key(app, "resizer", "images")
    (task,) = (await claim(http, resizer)).json()["tasks"]
    other = await worker_key(app, "other", queue)
    refused = await answer(http, other, task, verb)
    assert (refused.status_code, refused.json()["code"]) == (403, "DS-323")
    assert "'images'" in refused.json()["detail"]
    body = {"fence": task["fence"], "output": {"small": "a-small.png"}}
    assert (
        await http.post(f"/v1/tasks/{task['id']}/complete", json=body, headers=resizer)
    ).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"
    assert (await answer(http, other, task, verb)).status_code == 403
    repeated = await http.post(f"/v1/tasks/{task['id']}/complete", json=body, headers=resizer)
    assert repeated.json()["repeated"] is True


@LASTING
@pytest.mark.usefixtures("execution")
async def test_a_heartbeat_keeps_only_tasks_that_its_key_claimed(app: App, http: httpx.AsyncClient) -> None:
    resizer = await worker_key(app, "resizer", "images")
    (task,) = (await claim(http, resizer)).json()["tasks"]
    named = {"worker": "w1", "tasks": [{"id": task["id"], "fence": task["fence"]}]}
    for name, queue in (("same queue", "images"), ("another queue", "certificates")):
        other = await worker_key(app, name, queue)
        told = await http.post("/v1/tasks/heartbeat", json=named, headers=other)
        assert told.json()["lost"] == [task["id"]]
    assert (await http.post("/v1/tasks/heartbeat", json=named, headers=resizer)).json()["lost"] == []
    rows = (await http.get("/v1/workers")).json()["workers"]
    seen = [row for row in rows if row["kind"] == "remote" and row["queues"] == ["images"]]
    assert [(row["id"].split(":")[1], len(row["running"])) for row in seen] == [("w1", 1)]


@LASTING
async def test_the_owner_of_a_task_is_known_to_every_server_of_the_store(
    app: App, http: httpx.AsyncClient, execution: str, store_url: str
) -> None:
    resizer, other = await worker_key(app, "resizer", "images"), await worker_key(app, "other", "images")
    (task,) = (await claim(http, resizer)).json()["tasks"]
    with LiveServer(App(store_url), ServerSettings(names=("*",))) as second:
        async with httpx.AsyncClient(base_url=second.url) as elsewhere:
            assert (await answer(elsewhere, other, task, "complete")).status_code == 403
            assert (await answer(elsewhere, resizer, task, "complete")).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


@IN_MEMORY
async def test_an_admin_may_answer_for_a_worker(app: App, http: httpx.AsyncClient, execution: str) -> None:
    resizer = await worker_key(app, "resizer", "images")
    (task,) = (await claim(http, resizer)).json()["tasks"]
    admin = bearer(await make_key(app, "admin", name="ops"))
    assert (await answer(http, admin, task, "complete")).status_code == 200
    assert (await ended(http, execution))["state"] == "COMPLETED"


@IN_MEMORY
@pytest.mark.usefixtures("execution")
async def test_a_task_from_before_the_first_key_stays_with_its_worker(
    app: App, application: FastAPI, http: httpx.AsyncClient
) -> None:
    """As after an update: leases of then name no key."""
    resizer = await worker_key(app, "resizer", "images")
    (held,) = await application.state.services.remote_workers().claim("w1", ["images"], 1, 5)
    task = {"id": held.id, "fence": held.lease.fence}
    named = {"worker": "w1", "tasks": [task]}
    assert (await http.post("/v1/tasks/heartbeat", json=named, headers=resizer)).json()["lost"] == []
    assert (await answer(http, resizer, task, "complete")).status_code == 200


@IN_MEMORY
async def test_names_of_workers_do_not_fill_a_server(
    app: App, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 4)
    worker, other = await worker_key(app, "w", "a"), await worker_key(app, "v", "a")
    statuses = [
        (await claim(http, worker, worker=f"w{n}", queues=["a"], wait=0)).status_code for n in range(3)
    ]
    assert statuses == [200, 200, 503]
    assert (await claim(http, other, worker="w0", queues=["a"], wait=0)).status_code == 200


@IN_MEMORY
async def test_a_new_worker_key_names_its_queues(app: App, http: httpx.AsyncClient) -> None:
    http.headers.update(bearer(await make_key(app, "admin", name="ops")))
    for body, said in (
        ({"scopes": ["worker"]}, "needs the queues"),
        ({"scopes": ["worker", "run"]}, "needs the queues"),
        ({"scopes": ["run"], "queues": ["a"]}, "only workers take tasks"),
        ({"scopes": ["admin"], "queues": ["a"]}, "an admin key serves every queue"),
        ({"scopes": ["worker"], "queues": ["system"]}, "'system' is not a queue"),
    ):
        refused = await http.post("/v1/keys", json={"name": "w", **body})
        assert (refused.status_code, refused.json()["code"]) == (422, "DS-120")
        assert said in refused.json()["detail"]
    made = await http.post("/v1/keys", json={"name": "w", "scopes": ["worker"], "queues": ["a", "b", "a"]})
    assert (made.status_code, made.json()["queues"]) == (201, ["a", "b"])
    with pytest.raises(InvalidInput, match="needs the queues"):
        await book_of(app).add("x", ["worker"])


@IN_MEMORY
async def test_queues_of_a_key_are_changed_and_count_at_once(app: App, http: httpx.AsyncClient) -> None:
    worker = await worker_key(app, "w", "a")
    http.headers.update(bearer(await make_key(app, "admin", name="ops")))
    assert (await claim(http, worker, queues=["b"], wait=0)).status_code == 403
    changed = await http.patch("/v1/keys/w", json={"queues": ["b"]})
    assert (changed.status_code, changed.json()["queues"]) == (200, ["b"])
    assert (await claim(http, worker, queues=["b"], wait=0)).status_code == 200
    assert (await claim(http, worker, queues=["a"], wait=0)).status_code == 403
    assert (await http.get("/v1/session", headers=worker)).json()["queues"] == ["b"]
    assert (await http.patch("/v1/keys/ops", json={"queues": ["b"]})).status_code == 422


@LASTING
async def test_a_worker_key_from_before_serves_all_queues(app: App, http: httpx.AsyncClient) -> None:
    text = await make_key(app, "worker", name="old")
    book: KeyRecords = book_of(app)
    (key,) = await book.all()
    stored = msgspec.to_builtins(key)
    del stored["queues"]
    await book.records.put(KIND, key.id, msgspec.json.encode(stored))
    (old,) = await book.all()
    assert isinstance(old, Key)
    assert (old.queues, old.serves_all) == (None, True)
    assert (await claim(http, bearer(text), queues=["anything"], wait=0)).status_code == 200
