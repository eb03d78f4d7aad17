"""Servers that are killed between a failure and its message, while it is sent, and right after: every failure is told.

Whoever comes next sends what is owed. A message that may have arrived comes again as the very same one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from tests.server.conftest import LASTING
from tests.server.test_stream_kill import ServerProcess
from tests.waiting import until

PATIENCE = 30.0
SOONER = """
from dalsegno.cli.main import main
from dalsegno.server import alerts as alerting
alerting.LEASE, alerting.LOOK_EVERY = 1.0, 0.05
main()
"""
"""The program, in a hurry: a test does not wait for two minutes."""


class Receiver:
    """Keeps what it gets, and answers as long as ``answers`` is set; otherwise the sender waits."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.answers = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                receiver.got.append(json.loads(self.rfile.read(size)))
                receiver.answers.wait()
                try:
                    self.send_response(200)
                    self.end_headers()
                except OSError:
                    return  # the sender was killed

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook"

    def told(self) -> set[str]:
        return {each["execution"] for message in self.got for each in message["failures"]}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.answers.set()
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def server(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    monkeypatch.setenv("DALSEGNO_SECRET_KEY", "a passphrase of the tests")
    with ServerProcess(store_url, ("-c", SOONER, "dev")) as made:
        yield made


def fail_once(server: ServerProcess) -> str:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
        execution: str = http.post("/v1/executions", json={"workflow": "broken"}).json()["id"]
        ended = http.get(f"/v1/executions/{execution}/wait", params={"seconds": 20}).json()
    assert ended["state"] == "FAILED"
    return execution


@LASTING
def test_every_failure_is_told_though_servers_are_killed(server: ServerProcess, receiver: Receiver) -> None:
    with httpx.Client(base_url=server.url, timeout=PATIENCE) as http:
        script = {"source": 'throw {code: "E", message: "no"}', "kind": "script", "name": "broken"}
        assert http.post("/v1/definitions", json=script).status_code == 201
        assert http.put("/v1/alerts/ops", json={"url": receiver.url, "every": 0}).status_code == 201

    failed = {fail_once(server)}
    until(lambda: receiver.got, "a message is on its way")
    server.kill()  # while it is sent: nobody knows whether it arrived
    receiver.answers.set()
    server.start()
    until(lambda: len(receiver.got) == 2, "the message comes again")
    assert receiver.got[0] == receiver.got[1]

    for _ in range(2):
        failed.add(fail_once(server))
        server.kill()  # before anybody has looked, while it is told, or right after
        server.start()
    until(lambda: receiver.told() == failed, "every failure was told")

    messages = {message["id"]: message["failures"] for message in receiver.got}
    listed = [each["execution"] for failures in messages.values() for each in failures]
    assert sorted(listed) == sorted(failed)  # each in one message, however often that came
