"""A key with the scope ``run`` against credentials that list workflows, over real HTTP with a real receiver."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import msgspec
import pytest

from dalsegno.app import App
from dalsegno.engine.secrets.credentials import KIND
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from tests.server.conftest import LASTING, LiveServer

TOKEN = "t0ken-of-the-bank"
pytestmark = LASTING


class Receiver:
    """Remembers which authorisations arrived."""

    def __init__(self) -> None:
        seen = self.seen = list[str | None]()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append(self.headers["Authorization"])
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture(scope="module")
def receiving() -> Iterator[Receiver]:
    made = Receiver()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


class World:
    """A server with its worker, an admin, a key with the scope ``run``, and a credential for ``billing``."""

    def __init__(self, app: App, server: LiveServer, receiver: Receiver) -> None:
        self.app = app
        self.receiver = receiver
        self._http = httpx.Client(base_url=server.url, timeout=30)
        self._keys: dict[str, str] = {}
        for scope in ("admin", "run"):
            made = self.ask("admin", "POST", "keys", {"name": f"a-{scope}", "scopes": [scope]})
            assert made.status_code == 201, made.text
            self._keys[scope] = made.json()["key"]

    def close(self) -> None:
        self._http.close()

    def ask(self, scope: str, method: str, path: str, body: Any = None) -> httpx.Response:
        key = self._keys.get(scope)
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        return self._http.request(method, f"/v1/{path}", json=body, headers=headers)

    def limit_credential(self, *workflows: str) -> None:
        setting = {
            "type": "bearer",
            "fields": {"token": TOKEN},
            "hosts": [self.receiver.url],
            "workflows": list(workflows),
        }
        assert self.ask("admin", "PUT", "credentials/bank", setting).status_code in (200, 201)

    def paying(self, name: str, note: str = "") -> dict[str, Any]:
        """A graph that sends the token."""
        node = {
            "id": "pay",
            "type": "http",
            "credentials": {"ref": "bank"},
            "parameters": {"url": f"{self.receiver.url}/{note}"},
        }
        return {"name": name, "nodes": [node]}

    def scripted(self, name: str) -> dict[str, Any]:
        source = f'return await Node.run("http", {{url: "{self.receiver.url}", credential: "bank"}})'
        return {"name": name, "nodes": [{"id": "pay", "type": "script", "parameters": {"source": source}}]}

    def deploy(self, scope: str, document: dict[str, Any], **fields: Any) -> httpx.Response:
        return self.ask(scope, "POST", "definitions", {"document": document, **fields})

    def run(self, body: dict[str, Any], path: str = "executions") -> dict[str, Any]:
        started = self.ask("run", "POST", path, body)
        assert started.status_code == 201, started.text
        return self.ended(started.json()["id"])

    def ended(self, execution: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("run", "GET", f"executions/{execution}/wait").json()
        return found

    def arrivals(self) -> list[str | None]:
        """What the receiver has got since the last look."""
        found = list(self.receiver.seen)
        self.receiver.seen.clear()
        return found


@pytest.fixture
def world(store_url: str, receiving: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    app = App(store_url)
    with LiveServer(app) as server:
        made = World(app, server, receiving)
        made.arrivals()
        yield made
        made.close()


SENT = [f"Bearer {TOKEN}"]


def test_what_an_admin_deploys_uses_the_credential_and_what_others_deploy_does_not(world: World) -> None:
    world.limit_credential("billing", "invoices-*")
    for document in (world.paying("billing"), world.scripted("invoices-eu")):
        assert world.deploy("admin", document).status_code == 201
        done = world.run({"workflow": document["name"]})
        assert (done["state"], world.arrivals()) == ("COMPLETED", SENT), done
    for name in ("billing", "billing/x", "billing/x/y", "invoices-eu", "invoices-us", "invoices-eu/z"):
        for document in (world.paying(name, "evil"), world.scripted(name)):
            if document == world.scripted("invoices-eu"):
                continue  # the admin's own
            refused = world.deploy("run", document)
            assert (refused.status_code, refused.json()["code"]) == (403, "DS-324"), refused.text
            assert "'bank' lists" in refused.json()["detail"]
            for path, body in (
                ("executions", {"definition": document}),
                ("executions", {"definition": document, "pending": True}),
                ("workflows", document),
            ):
                refused = world.ask("run", "POST", path, body)
                assert (refused.status_code, refused.json().get("code")) == (403, "DS-324"), (
                    path,
                    refused.text,
                )
    script = {"source": 'return await Node.run("http", {url: "x", credential: "bank"})', "name": "billing"}
    assert world.ask("run", "POST", "definitions", {**script, "kind": "script"}).status_code == 403
    versions = world.ask("run", "GET", "definitions/billing/versions").json()
    assert ([each["version"] for each in versions], world.arrivals()) == ([1], [])


def test_deploying_the_current_content_again_needs_no_admin(world: World) -> None:
    world.limit_credential("billing")
    for note in ("one", "two"):
        world.deploy("admin", world.paying("billing", note))
    assert world.deploy("run", world.paying("billing", "two")).json()["status"] == "unchanged"
    done = world.run({"definition": world.paying("billing", "two")})
    assert (done["state"], done["version"], world.arrivals()) == ("COMPLETED", 2, SENT)
    assert world.deploy("run", world.paying("billing", "one")).status_code == 403, "that would roll it back"


def test_aliases_of_a_protected_name_are_an_admins(world: World) -> None:
    world.limit_credential("billing")
    for note in ("one", "two"):
        world.deploy("admin", world.paying("billing", note), alias="stable")
    path = "definitions/billing/aliases/stable"
    for method, body in (("PUT", {"version": 1}), ("DELETE", None)):
        refused = world.ask("run", method, path, body)
        assert (refused.status_code, refused.json()["code"]) == (403, "DS-324")
    assert world.deploy("run", world.paying("billing", "two"), alias="other").status_code == 403
    assert world.ask("admin", "PUT", path, {"version": 1}).json() == {"stable": 1}


def test_what_was_deployed_before_the_name_was_listed_gets_nothing_until_it_is_approved(world: World) -> None:
    planted = [world.paying("billing"), world.scripted("billing-script")]
    for document in planted:
        assert world.deploy("run", document).status_code == 201
    script = f'return await Node.run("http", {{url: "{world.receiver.url}", credential: "bank"}})'
    body = {"source": script, "kind": "script", "name": "billing-flow"}
    assert world.ask("run", "POST", "definitions", body).status_code == 201
    names = ["billing", "billing-flow", "billing-script"]
    world.limit_credential("billing", "billing-*")
    for name in names:
        for target in (name, f"{name}@1"):
            assert world.run({"workflow": target})["error"]["code"] == "DS-345"
    again = world.run({"workflow": "billing"})
    rerun = world.run({"nodes": ["pay"]}, f"executions/{again['id']}/rerun")
    parent = {"id": "c", "type": "workflow", "parameters": {"name": "billing"}}
    child = world.run({"definition": {"name": "other", "nodes": [parent]}})
    assert "DS-345" in json.dumps([rerun["error"], child["error"]])
    assert (rerun["state"], child["state"], world.arrivals()) == ("FAILED", "FAILED", [])

    listed = world.ask("run", "GET", "definition-approvals").json()
    assert [(each["workflow"], each["approved"]) for each in listed["items"]] == [(n, False) for n in names]
    for each in listed["items"]:
        path = f"definition-approvals/{each['hash']}"
        assert world.ask("run", "PUT", path).status_code == 403
        assert world.ask("admin", "PUT", path).json()["workflow"] == each["workflow"]
        assert (world.run({"workflow": each["workflow"]})["state"], world.arrivals()) == ("COMPLETED", SENT)
        assert world.ask("run", "DELETE", path).status_code == 403
        assert world.ask("admin", "DELETE", path).status_code == 204
        assert world.run({"workflow": each["workflow"]})["error"]["code"] == "DS-345"
    assert world.ask("admin", "PUT", "definition-approvals/nothing").status_code == 404


def test_a_definition_below_a_listed_name_does_not_count_as_that_workflow(world: World) -> None:
    """Deployed before the name was listed, and even approved: its name is another one."""
    for document in (world.paying("billing/x"), world.scripted("billing/x/y")):
        assert world.deploy("admin", document).status_code == 201
    world.limit_credential("billing")
    for name in ("billing/x", "billing/x/y"):
        assert world.run({"workflow": name})["error"]["code"] == "DS-341"
    assert world.arrivals() == []
    world.limit_credential("billing/*")
    assert world.run({"workflow": "billing/x"})["state"] == "COMPLETED"


def test_a_child_counts_as_itself_and_not_as_its_parent(world: World) -> None:
    world.limit_credential("billing")
    world.deploy("run", world.paying("helper"))
    node = {"id": "c", "type": "workflow", "parameters": {"name": "helper"}}
    world.deploy("admin", {"name": "billing", "nodes": [node]})
    done = world.run({"workflow": "billing"})
    assert ("DS-341" in json.dumps(done["error"]), world.arrivals()) == (True, [])


def test_a_credential_for_any_workflow_protects_no_name(world: World) -> None:
    world.limit_credential("*")
    assert world.run({"definition": world.paying("anything")})["state"] == "COMPLETED"
    assert world.arrivals() == SENT


def test_a_removed_definition_takes_its_approval_along(world: World) -> None:
    deployed = world.deploy("admin", world.paying("billing")).json()
    assert world.ask("admin", "DELETE", "definitions/billing").status_code == 204
    assert world.deploy("run", world.paying("billing")).json()["hash"] == deployed["hash"]
    world.limit_credential("billing")
    assert world.run({"workflow": "billing"})["error"]["code"] == "DS-345"


def test_credentials_from_before_approvals_have_a_grace_that_ends(world: World) -> None:
    assert world.deploy("run", world.paying("billing")).status_code == 201
    world.limit_credential("billing")
    loop = world.app.engine.vault.loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(_as_before(world.app), loop).result(20)
    assert (world.run({"workflow": "billing"})["state"], world.arrivals()) == ("COMPLETED", SENT)
    listed = world.ask("run", "GET", "definition-approvals").json()
    assert (listed["grace_until"] is not None, listed["items"][0]["approved"]) == (True, False)
    assert world.deploy("run", world.paying("billing", "later")).status_code == 403
    assert world.ask("run", "DELETE", "definition-approvals/grace").status_code == 403
    assert world.ask("admin", "DELETE", "definition-approvals/grace").status_code == 204
    assert world.run({"workflow": "billing"})["error"]["code"] == "DS-345"


async def _as_before(app: App) -> None:
    """The credential's record as releases without approvals wrote it."""
    records = app.client.stack.records
    record = await records.get(KIND, "bank")
    assert record is not None
    data = msgspec.json.decode(record.data)
    del data["needs_approval"]
    assert await records.put(KIND, "bank", msgspec.json.encode(data), record.version) is not None


def test_an_admin_protects_names_without_a_credential(world: World) -> None:
    assert world.deploy("run", world.paying("payroll")).status_code == 201
    assert world.ask("run", "PUT", "protected-names/payroll").status_code == 403
    assert world.ask("admin", "PUT", "protected-names/payroll").json()["protected_by"] == "a-admin"
    for document in (
        world.paying("payroll", "changed"),
        world.paying("payroll/x"),
        world.scripted("payroll"),
    ):
        refused = world.deploy("run", document)
        assert (refused.status_code, refused.json()["code"]) == (403, "DS-324"), refused.text
    assert "an admin protects 'payroll'" in refused.json()["detail"]
    assert world.ask("run", "PUT", "definitions/payroll/aliases/stable", {"version": 1}).status_code == 403
    assert world.deploy("admin", world.paying("payroll", "changed")).status_code == 201
    listed = world.ask("run", "GET", "protected-names").json()["items"]
    assert [(each["name"], each["protected_by"]) for each in listed] == [("payroll", "a-admin")]
    assert world.ask("run", "DELETE", "protected-names/payroll").status_code == 403
    assert world.ask("admin", "DELETE", "protected-names/payroll").status_code == 204
    assert world.ask("admin", "DELETE", "protected-names/payroll").status_code == 404
    assert world.deploy("run", world.paying("payroll", "again")).status_code == 201


def test_a_script_inside_a_graph_is_started_by_its_graph_only(world: World) -> None:
    world.limit_credential("billing")
    assert world.deploy("admin", world.scripted("billing")).status_code == 201
    for target in ("billing/pay", "billing/pay@1"):
        refused = world.ask("run", "POST", "executions", {"workflow": target})
        assert (refused.status_code, refused.json()["code"]) == (404, "DS-130"), refused.text
    caller = {
        "name": "caller",
        "nodes": [{"id": "a", "type": "workflow", "parameters": {"name": "billing/pay"}}],
    }
    assert world.deploy("run", caller).status_code == 201
    assert world.run({"workflow": "caller"})["state"] == "FAILED"
    schedule = {"workflow": "billing/pay", "every": "1h"}
    assert world.ask("run", "PUT", "schedules/often", schedule).status_code == 404
    assert world.arrivals() == []
    assert world.run({"workflow": "billing"})["state"] == "COMPLETED"
    assert world.arrivals() == SENT
