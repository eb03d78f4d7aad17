"""``Idempotency-Key`` of the ``http`` node as a service sees it: the same at every attempt of a run, also after its
process was killed; another one for every run."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import PATIENCE, Program, Programs
from tests.waiting import until

KEY = "Idempotency-Key"


class Service(ThreadingHTTPServer):
    """Notes the key of every request. ``/fails-twice`` refuses two requests; ``/silent`` holds the first one."""

    daemon_threads = True

    def __init__(self) -> None:
        self.keys: list[tuple[str, str | None]] = []
        self.refused = 0
        self.released = threading.Event()
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Service

    def __getattr__(self, name: str) -> Any:
        """The library asks for ``do_POST`` and the like."""
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.keys.append((self.command, self.headers.get(KEY)))
        status = 200
        if self.path == "/silent" and len(self.server.keys) == 1:
            self.server.released.wait(PATIENCE)
        if self.path == "/fails-twice" and self.server.refused < 2:
            self.server.refused += 1
            status = 503
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.released.set()
    running.shutdown()
    running.server_close()


@pytest.fixture(params=["sqlite", "postgres"])
def programs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Programs]:
    """The program in processes of its own, on a store that outlives them."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("empty_postgres")()
    running: list[Program] = []
    yield Programs(tmp_path, {**os.environ, "DALSEGNO_STORE": url}, running)
    for program in running:
        program.end()


def call(id: str, url: str, method: str = "POST", **more: Any) -> dict[str, Any]:
    parameters = {"method": method, "url": url, "raise_on_status": "5xx", **more}
    retry = {"max_attempts": 4, "initial_delay": 0.05}
    return {"id": id, "type": "http", "parameters": parameters, "retry": retry}


def written(folder: Path, *nodes: dict[str, Any]) -> str:
    (folder / "calls.json").write_text(json.dumps({"name": "calls", "nodes": nodes}))
    return "calls.json"


def completed(program: Program) -> None:
    told = program.result()
    assert told["state"] == "COMPLETED", told


def test_all_attempts_of_a_run_have_one_key_and_other_runs_another(
    programs: Programs, service: Service
) -> None:
    file = written(programs.folder, call("first", f"{service.url}/fails-twice"), call("second", service.url))
    completed(programs.begin("run", file, "--json"))
    assert len(service.keys) == 4
    counts = sorted([key for _, key in service.keys].count(key) for key in {key for _, key in service.keys})
    assert counts == [1, 3]
    first = {key for _, key in service.keys}
    assert all(first)
    completed(programs.begin("run", file, "--json"))
    assert len(service.keys) == 6
    assert len({key for _, key in service.keys}) == 4, "an execution of its own has keys of its own"


@pytest.mark.parametrize("kind", ["graph", "script"])
def test_a_run_whose_process_was_killed_goes_on_with_its_key(
    programs: Programs, service: Service, kind: str
) -> None:
    url = f"{service.url}/silent"
    file = written(programs.folder, call("pay", url, body={"cents": 300}))
    if kind == "script":
        file = "calls.flow"
        (programs.folder / file).write_text(f'await Node.run("http", {{method: "POST", url: "{url}"}})\n')
    killed = programs.begin("run", file, "--json")
    until(lambda: service.keys, "the first request")
    killed.send(signal.SIGKILL)
    killed.process.communicate()
    completed(programs.begin("resume", "last", "--json"))
    assert len(service.keys) == 2
    [(_, key)] = set(service.keys)
    assert key


def test_a_worker_that_dies_leaves_the_key_to_the_next(programs: Programs, service: Service) -> None:
    """Workers, and not commands that run one execution: another one takes over what the dead one held."""
    written(programs.folder, call("pay", f"{service.url}/silent"))
    assert programs.begin("deploy", "calls.json").finish()[0] == 0
    assert programs.begin("start", "calls").finish()[0] == 0
    allowed = {"DALSEGNO_EGRESS_ALLOW": "127.0.0.1/32"}
    killed = programs.begin("worker", **allowed)
    until(lambda: service.keys, "the first request")
    killed.send(signal.SIGKILL)
    killed.process.communicate()
    programs.begin("worker", **allowed)
    programs.begin("scheduler")
    until(lambda: len(service.keys) == 2, "the second request", seconds=150)
    [(_, key)] = set(service.keys)
    assert key


def test_methods_that_change_nothing_carry_no_key_and_a_header_of_the_user_wins(
    programs: Programs, service: Service
) -> None:
    own = {"idempotency-key": "order-{{ input.n }}"}
    methods = ("GET", "HEAD", "PUT", "PATCH", "DELETE")
    nodes = [call(method.lower(), service.url, method) for method in methods]
    file = written(programs.folder, *nodes, call("own", service.url, headers=own))
    completed(programs.begin("run", file, "--json", "--input", '{"n": 7}'))
    found = dict(service.keys)
    assert (found["GET"], found["HEAD"], found["POST"]) == (None, None, "order-7")
    others = {found[method] for method in ("PUT", "PATCH", "DELETE")}
    assert len(others) == 3
    assert all(others)
