"""Stores that earlier releases wrote are opened, finished and operated by the present code."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import binary
from tests.stored.opening import ending, finish, picture, until
from tests.stored.serving import ROOT, StoredServer
from tests.stored.workflows import app

RELEASES = sorted(path for path in (Path(__file__).parent / "releases").iterdir() if path.is_dir())
REMOTE = {"p_remote": 120, "s_remote": 101, "g_remote": 120}
"""Their outputs, where the remote program doubles what it is given."""


@dataclass
class Stored:
    """A throw-away copy of a fixture."""

    url: str
    cases: dict[str, dict[str, Any]]
    kept: dict[str, Any]

    def key(self, name: str) -> str:
        return str(self.kept["keys"][name]["key"])


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(
    request: pytest.FixtureRequest, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stored]:
    kind = request.param
    if kind == "sqlite":
        path = tmp_path / "store.db"
        path.write_bytes(gzip.decompress((release / "store.db.gz").read_bytes()))
        (tmp_path / "store.db.key").write_text((release / "secret.key").read_text())
        (tmp_path / "store.db.key").chmod(0o600)
        url = f"sqlite:///{path}"
    else:
        url = request.getfixturevalue("postgres_url")
        dump = gzip.decompress((release / "store.sql.gz").read_bytes())
        command = [str(binary("psql")), "-XqAt", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", url]
        subprocess.run(command, input=dump, capture_output=True, check=True)
        monkeypatch.setenv("DALSEGNO_SECRET_KEY", (release / "secret.key").read_text().strip())
    found = json.loads((release / f"{kind}.json").read_text())
    app.url = url
    yield Stored(url, found["cases"], found["kept"])
    app.close()
    app.url = "memory:"


@pytest.fixture
def server(stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoredServer]:
    monkeypatch.setenv("DALSEGNO_EGRESS_ALLOW", "localhost")
    folder = tmp_path / "server"
    folder.mkdir()
    with StoredServer(
        folder, stored.url, "--app", "tests.stored.workflows:app", "--queues", "default,later"
    ) as server:
        yield server


def test_every_execution_stands_where_it_stood_and_ends_as_recorded(stored: Stored) -> None:
    cases = stored.cases
    pictures = {name: picture(app.handle(case["id"])) for name, case in cases.items()}
    assert not (differing := changed(pictures, cases, "before")), json.dumps(differing)
    with app.running():
        endings = finish(app, cases, [name for name in cases if name not in REMOTE])
        assert not (differing := changed(endings, cases, "ending")), json.dumps(differing)
        again(cases)
        listed = {handle.id for handle in app.executions(limit=1000)}
        assert {case["id"] for case in cases.values()} <= listed
        until(lambda: app.executions("tick", tags={"made": "hourly"}), "the schedule to fire")


def changed(found: dict[str, Any], cases: dict[str, dict[str, Any]], what: str) -> dict[str, Any]:
    """What is not as recorded, beside the record."""
    return {name: (each, cases[name][what]) for name, each in found.items() if each != cases[name][what]}


def again(cases: dict[str, dict[str, Any]]) -> None:
    """Ended executions can be run again, and a key of a start still means the execution that it meant."""
    done = app.handle(cases["g_done"]["id"])
    rerun = done.rerun("then")
    assert ending(rerun)["output"] == cases["g_done"]["ending"]["output"]
    assert done.context()["$work"] == rerun.context()["$work"]
    failed = ending(app.handle(cases["p_failed"]["id"]).retry())
    assert (failed["state"], failed["code"]) == ("FAILED", "Shortage")
    assert ending(app.handle(cases["s_failed"]["id"]).retry())["type"] == "Breakdown"
    repeated = app.with_options(idempotency_key="order-4", tags={"case": "g_done"}).start("g_plain", n=4)
    assert repeated.id == done.id
    assert app.start("s_task", n=8).result(30) == 81


def test_keys_webhooks_schedules_credentials_and_dead_letters_work(
    stored: Stored, server: StoredServer
) -> None:
    ops = stored.key("ops")

    def get(path: str) -> Any:
        status, found = server.call("GET", path, key=ops)
        assert status == 200, found
        return found

    assert server.call("GET", "executions")[0] == 401
    assert server.call("GET", "executions", key=stored.key("former"))[0] == 401
    assert server.call("PUT", "limits/x", {"concurrency": 1}, key=stored.key("reader"))[0] == 403
    assert {key["name"] for key in get("keys")["items"]} >= {"ops", "reader", "program"}
    assert get("executions/" + stored.cases["g_done"]["id"])["state"] == "COMPLETED"
    assert {limit["key"] for limit in get("limits")["items"]} >= {"stored"}
    assert [alert["id"] for alert in get("alerts")["items"]] == ["failures"]
    assert "limits/stored" in json.dumps(get("audit"))
    assert {schedule["name"] for schedule in get("schedules")["items"]} == {
        "hourly",
        "paused",
        "g_nightly/nightly",
    }
    remote(stored, server, get)
    webhooks(stored, server, get)
    schedules(server, get, ops)
    dead_letters(stored, server, get, ops)
    credentials(server, get, ops)
    commands(stored)


def remote(stored: Stored, server: StoredServer, get: Any) -> None:
    """Tasks that waited in the store for a remote program."""
    key = stored.key("program")
    done = 0
    while done < len(REMOTE):
        asked = {"worker": "program-1", "queues": ["programs"], "limit": 3, "wait": 20}
        status, found = server.call("POST", "tasks/claim", asked, key=key)
        assert status == 200, found
        for task in found["tasks"]:
            assert task["name"] == "outside"
            reply = {"fence": task["fence"], "output": task["input"] * 2}
            status, said = server.call("POST", f"tasks/{task['id']}/complete", reply, key=key)
            assert status == 200, said
            done += 1
    for name, output in REMOTE.items():
        ended = get(f"executions/{stored.cases[name]['id']}/wait?seconds=30")
        assert (ended["state"], ended["output"]) == ("COMPLETED", output)


def webhooks(stored: Stored, server: StoredServer, get: Any) -> None:
    """The secret is read with the stored key; a signature by another one is refused."""
    assert {hook["id"] for hook in get("webhooks")["items"]} == {"orders", "g_hook.incoming"}
    body = b'{"n": 1}'
    for secret, expected in ((stored.kept["webhook_secret"], 202), ("another", 403)):
        signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signed}", "X-GitHub-Delivery": f"one-{expected}"}
        status, found = server.call("POST", "hooks/orders/new", body, headers=headers)
        assert status == expected, found


def schedules(server: StoredServer, get: Any, key: str) -> None:
    assert get("schedules/paused")["timezone"] == "Europe/Rome"
    assert server.call("POST", "schedules/paused/resume", key=key)[0] == 200
    status, started = server.call("POST", "schedules/hourly/trigger", key=key)
    assert status in (200, 201, 202), started
    ended = get(f"executions/{started['id']}/wait?seconds=30")
    assert ended["output"] == "tick, the second"


def dead_letters(stored: Stored, server: StoredServer, get: Any, key: str) -> None:
    """The clean-up that was cut short can be taken up again."""
    left = stored.cases["p_left_cleaning"]["id"]
    letters = [letter["id"] for letter in get("dead")["items"] if letter["execution"] == left]
    assert len(letters) == 1
    status, found = server.call("POST", f"dead/{letters[0]}/retry", key=key)
    assert status == 200, found


def credentials(server: StoredServer, get: Any, key: str) -> None:
    """A graph sends the token that the fixture has sealed."""
    seen: list[str | None] = []

    class Shop(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop) as shop:
        threading.Thread(target=shop.serve_forever, daemon=True).start()
        port = shop.server_address[1]
        changed = get("credentials/shop")
        assert changed["hosts"] == ["http://localhost:9"]
        asked = {"type": "bearer", "hosts": [f"http://localhost:{port}"], "workflows": ["*"]}
        status, found = server.call("PUT", "credentials/shop", asked, key=key)
        assert status == 200, found
        start = {"workflow": "g_call", "input": {"url": f"http://localhost:{port}/"}}
        status, started = server.call("POST", "executions", start, key=key)
        ended = get(f"executions/{started['id']}/wait?seconds=30")
        shop.shutdown()
    assert (ended["state"], seen) == ("COMPLETED", ["Bearer token-of-the-shop"]), ended


def commands(stored: Stored) -> None:
    waiting, ended = stored.cases["p_values"]["id"], stored.cases["p_done"]["id"]

    def run(*words: str) -> Any:
        command = [sys.executable, "-m", "dalsegno", *words, "--store", stored.url, "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    assert "go" in json.dumps(run("why", waiting))
    assert run("show", ended)["output"] == stored.cases["p_done"]["ending"]["output"]
    assert run("ls", "--state", "COMPLETED", "--tag", "case=p_done")
