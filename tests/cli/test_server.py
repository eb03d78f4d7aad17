"""``dev``, ``server`` and ``scheduler`` as real processes: they announce themselves, serve, and stop without loss."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from dalsegno import Client
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, LONG_WAIT, TASKS, write
from tests.cli.programs import PATIENCE, Program, Programs
from tests.waiting import until


def announced(program: Program) -> dict[str, Any]:
    """The line that a server writes once it listens."""
    assert program.process.stdout is not None
    line = program.process.stdout.readline()
    assert line, program.process.communicate()
    return dict(json.loads(line))


def test_dev_serves_runs_and_stops(programs: Programs, folder: Path) -> None:
    write(folder, cli_tasks_py=TASKS)
    dev = programs.begin("dev", "--port", "0", "--json", "--app", "cli_tasks:app")
    told = announced(dev)
    assert told["docs"] == f"{told['url']}/docs"
    assert told["store"] == "sqlite:///dalsegno.db"
    assert told["runs"] == ["server", "worker of default", "scheduler"]
    assert told["open"] is True
    with Client(told["url"]) as client:
        client.deploy(HELLO)
        assert client.start("hello", name="Ada").result(timeout=PATIENCE) == "Hello Ada"
    headers = httpx.get(f"{told['url']}/v1/definitions").headers
    assert headers["server"].startswith("dalsegno/")
    dev.send(signal.SIGTERM)
    code, _, said = dev.finish()
    assert code == 0
    assert "There are no keys: everyone on this machine may do everything" in said
    assert "HTTP nodes reach every address" in said
    assert "stopping" in said
    assert "stopped" in said


def test_a_stop_ends_streams_and_long_polls_at_once(programs: Programs, folder: Path) -> None:
    server = programs.begin("server", "--port", "0", "--json", "--grace", "20")
    url = announced(server)["url"]
    with Client(url, patience=1) as client, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        client.deploy(LONG_WAIT)
        run = client.start("sleeper")
        with http.stream("GET", f"/v1/executions/{run.id}/stream") as stream:
            lines = stream.iter_lines()
            until(lambda: next(lines) == "event: NodeWaiting", "the nap")
            server.send(signal.SIGTERM)
            assert "event: end" not in list(lines)
    code, _, said = server.finish(patience=15)  # less than its grace: nothing was waited for
    assert code == 0
    assert "HTTP nodes reach public addresses only" in said
    assert "Cancel" not in said


def test_a_server_goes_on_where_another_one_stopped(programs: Programs, folder: Path) -> None:
    first = programs.begin("server", "--port", "0", "--json")
    with Client(announced(first)["url"]) as client:
        client.deploy(HELLO.replace("hello", "later") + "  \n")
        client.deploy(LONG_WAIT)
        run = client.start("sleeper")
        until(lambda: run.nodes()["nap"].state == "WAITING", "the nap")
    first.send(signal.SIGKILL)
    first.process.communicate()
    second = programs.begin("server", "--port", "0", "--json")
    with Client(announced(second)["url"]) as client:
        assert client.handle(run.id).status().state == "RUNNING"
        client.handle(run.id).cancel()
        assert client.handle(run.id).wait(timeout=PATIENCE).state == "CANCELLED"


def test_a_watcher_outlives_the_server(programs: Programs, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    first = programs.begin("server", "--port", port, "--json")
    url = announced(first)["url"]
    with Client(url) as client:
        client.deploy(SIGNALLED)
        run = client.start("signalled")
        watch = programs.begin("watch", run.id, "--server", url, "--json")
        until(lambda: run.nodes()["go"].state == "WAITING", "the wait")
        until(lambda: "dalsegno_streams_open 1" in httpx.get(f"{url}/metrics").text, "the watcher")
        first.send(signal.SIGKILL)
        first.process.communicate()
        announced(programs.begin("server", "--port", port, "--json"))
        run.signal("go", {"by": "Ann"})
        told = watch.result()
    assert told["exit_code"] == 0
    assert told["output"] == "Ann"


def test_a_taken_port_is_told(invoke: Invoke) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = invoke("server", "--port", str(port))
    assert result.exit_code == 2
    assert f"port {port} of 127.0.0.1 is in use" in result.stderr
    assert f"--port {port + 1}" in result.stderr


def test_without_keys_nobody_else_is_let_in(invoke: Invoke) -> None:
    result = invoke("server", "--host", "0.0.0.0", "--port", "0")
    assert result.exit_code == 2
    assert "without keys everyone who reaches 0.0.0.0" in result.stderr
    assert "dalsegno keys add" in result.stderr


def test_a_server_at_all_addresses_says_so(invoke: Invoke, programs: Programs, folder: Path) -> None:
    assert invoke("keys", "add", "ops", "--scope", "admin").exit_code == 0
    server = programs.begin("server", "--host", "0.0.0.0", "--port", "0", "--json")
    url = announced(server)["url"]
    server.send(signal.SIGTERM)
    code, _, said = server.finish()
    assert code == 0
    port = url.rpartition(":")[2]
    assert f"listens at all addresses of this machine (0.0.0.0), port {port}; from here at {url}" in said


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_ours_is_told(invoke: Invoke, host: str) -> None:
    result = invoke("server", "--host", host, "--port", "0")
    assert result.exit_code == 2
    assert host in result.stderr
    assert "address of this machine" in result.stderr


def test_a_store_that_cannot_be_opened_is_told_without_a_traceback(invoke: Invoke, folder: Path) -> None:
    (folder / "dalsegno.db").write_bytes(b"this is no database at all, but long enough to be looked at" * 100)
    result = invoke("server", "--port", "0")
    assert result.exit_code == 2
    assert "dalsegno.db" in result.stderr


def test_a_scheduler_wakes_what_workers_run(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(
        folder,
        nap_yaml="name: nap\nnodes:\n  - {id: nap, type: wait, parameters: {amount: 1, unit: seconds}}\n",
    )
    assert invoke("deploy", "nap.yaml").exit_code == 0
    execution = invoke("start", "nap").stdout.strip()
    server = programs.begin("server", "--port", "0", "--json", "--no-scheduler")
    with Client(announced(server)["url"]) as client:
        run = client.handle(execution)
        until(lambda: run.nodes()["nap"].state == "WAITING", "the nap")
        with pytest.raises(TimeoutError):
            run.result(timeout=2)
        scheduler = programs.begin("scheduler", "--json")
        assert run.wait(timeout=PATIENCE).state == "COMPLETED"
        scheduler.send(signal.SIGTERM)
        code, out, _ = scheduler.finish()
    assert code == 0
    assert json.loads(out)["store"] == "sqlite:///dalsegno.db"


def test_a_second_signal_ends_it_at_once(programs: Programs, folder: Path) -> None:
    write(folder, cli_tasks_py=STUBBORN, stubborn_yaml=ONE_TASK)
    server = programs.begin("server", "--port", "0", "--json", "--app", "cli_tasks:app", "--grace", "60")
    with Client(announced(server)["url"]) as client:
        client.deploy(ONE_TASK)
        client.start("one")
        until((folder / "running").exists, "the task")
    server.send(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(timeout=1)
    server.send(signal.SIGTERM)
    assert server.process.wait(timeout=PATIENCE) == 128 + signal.SIGTERM


SIGNALLED = """\
name: signalled
nodes:
  - {id: go, type: wait, parameters: {resume: signal, signal: go, timeout: 1h}}
output: "$go.by"
"""

STUBBORN = """\
import asyncio
from pathlib import Path

from dalsegno import App

app = App()


@app.task
async def stay() -> None:
    Path("running").touch()
    await asyncio.sleep(60)
"""

ONE_TASK = """\
name: one
nodes:
  - {id: stay, type: task, parameters: {task: stay}}
"""
