"""A marker stands in every field of every credential. Graphs of a master leak it in many ways; then all messages, keys
of Redis, dead letters and logs are searched.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import redis

from dalsegno.engine.secrets.credentials import NewCredential
from tests.secrets.hunting import traces
from tests.secrets.test_leaks import CREDENTIALS, MARKER, RAISED, build, http_graph, task_graph
from tests.servers.sqlite import empty_sqlite
from tests.wire.master import message
from tests.wire.pika_master import PikaMaster


class Echo(BaseHTTPRequestHandler):
    """Answers with everything it was sent."""

    def do_GET(self) -> None:
        body = json.dumps({"headers": dict(self.headers), "path": self.path}).encode()
        self.send_response(500 if self.path.startswith("/page") else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("X-Echo", self.headers.get("Authorization", "-"))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def target() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def leaking(url: str) -> dict[str, dict[str, Any]]:
    found = {
        f"{name}-{path[1:]}": http_graph(f"{name}-{path[1:]}", path, name, url)
        for name in ("bearer", "basic", "header", "query")
        for path in ("/echo", "/page")
    }
    for way in ("return", *RAISED):
        found[f"task-{way}"] = task_graph(f"task-{way}", "leak", {"name": "custom", "way": way})
    found["task-large"] = task_graph("task-large", "leak_a_lot", {"name": "custom"})
    return found


def test_value_of_a_credential_is_in_no_message_key_log_or_dead_letter(
    rabbitmq_url: str,
    redis_url: str,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "dalsegno")
    monkeypatch.setenv("DALSEGNO_BROKER", rabbitmq_url)
    monkeypatch.setenv("DALSEGNO_REDIS", redis_url)
    app = build(empty_sqlite(tmp_path / "store.db"))
    graphs = leaking(target)
    with app.running(), redis.from_url(redis_url) as keys:
        for name, given in CREDENTIALS.items():
            app.host.call(app.engine.vault.put(NewCredential(name=name, **given, adoptable=True)))
        master = PikaMaster(rabbitmq_url)
        for name, definition in graphs.items():
            first = definition["nodes"][0]["id"]
            master.send(message(name, first, definition))
            master.send(message(name, "nobody", definition | {"nodes": []}))  # a dead letter
        done = {name: master.completion(name) for name in graphs}
        master.until("the dead letters", lambda: len(master.dead) >= len(graphs))
        in_redis = [keys.dump(key) or b"" for key in keys.scan_iter()] + list(keys.scan_iter())
        master.close()
    assert {done[f"{name}-echo"]["status"] for name in ("bearer", "basic", "header", "query")} == {
        "completed"
    }
    assert "[secret custom]" in str(done["task-return"]["final_context"]["$leak"])  # it was there to leak
    assert "[secret bearer]" in str(done["bearer-echo"]["final_context"]["$call"])
    for letter in master.letters:
        found = traces(letter.raw, MARKER.encode()) + traces(repr(letter.properties), MARKER.encode())
        assert found == [], (letter.queue, found)
    assert [found for dumped in in_redis for found in traces(dumped, MARKER.encode())] == []
    assert traces(caplog.text, MARKER.encode()) == []
