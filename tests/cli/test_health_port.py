"""The health port of workers and schedulers: alive, ready, and in numbers."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dalsegno.cli.errors import Refusal
from dalsegno.cli.process import health_port
from dalsegno.cli.process.health_port import Address, health_address, read_address
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Program, Programs
from tests.servers.postgres import PostgresServer
from tests.servers.process import free_port
from tests.waiting import until

BLOCKING = """
import time

from dalsegno import App

app = App()


@app.task
async def block(seconds: float) -> str:
    open("blocked", "w").close()
    time.sleep(seconds)
    return "done"
"""


class Port:
    def __init__(self, program: Program, number: int) -> None:
        self.program = program
        self.url = f"http://127.0.0.1:{number}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nobody listens."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=20) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def begin(programs: Programs, *command: str) -> Port:
    number = free_port()
    port = Port(programs.begin(*command, "--health-port", str(number)), number)
    until(lambda: port.get("/ready")[0] == 200, "the port")
    return port


@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_postgres_that_cannot_be_reached_makes_it_unready_and_leaves_it_alive(
    programs: Programs, private_postgres: PostgresServer, role: str
) -> None:
    port = begin(programs, role, "--store", private_postgres.create_database("probed"))
    assert port.get("/ready") == (200, '{"status": "ok"}\n')

    private_postgres.kill()

    until(lambda: port.get("/ready")[0] == 503, "unready")
    _, text = port.get("/ready")
    assert "PostgreSQL cannot be reached" in json.loads(text)["detail"] or "did not answer" in text
    assert port.get("/live")[0] == 200
    assert "dalsegno_store_up 0.0" in port.get("/metrics")[1]

    private_postgres.start()

    until(lambda: port.get("/ready")[0] == 200, "ready again")
    port.program.send(signal.SIGTERM)
    assert port.program.finish()[0] == 0


def test_metrics_count_what_the_worker_did(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, hello_yaml=HELLO)
    invoke("deploy", "hello.yaml")
    port = begin(programs, "worker")
    execution = invoke("start", "hello", "--input", '{"name": "Eve"}').stdout.strip()
    assert invoke("watch", execution, "--timeout", "30s").exit_code == 0

    status, text = port.get("/metrics")

    assert status == 200
    counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert sum(float(count) for name, count in counts.items() if name.startswith("dalsegno_steps_total")) > 0
    assert counts['dalsegno_executions_ended_total{state="COMPLETED",workflow="hello"}'] == "1.0"
    assert counts["dalsegno_store_up"] == "1.0"
    assert counts['dalsegno_workers{state="alive"}'] == "1.0"
    assert port.get("/other")[0] == 404


def test_blocked_event_loop_is_not_alive(programs: Programs, folder: Path, invoke: Invoke) -> None:
    write(folder, blocking_py=BLOCKING)
    port = begin(programs, "worker", "--app", "blocking.py", "--grace", "0")
    graph = {
        "name": "b",
        "nodes": [{"id": "n", "type": "task", "parameters": {"task": "block", "input": 30}}],
    }
    (folder / "b.json").write_text(json.dumps(graph))
    assert invoke("deploy", "b.json", "--app", "blocking.py").exit_code == 0
    invoke("start", "b")
    until((folder / "blocked").exists, "the task that computes in the loop")

    status, text = port.get("/live")

    assert status == 503
    assert "the event loop did not answer within 3 s" in json.loads(text)["detail"]
    port.program.send(signal.SIGKILL)


def test_port_that_is_taken_is_a_refusal(programs: Programs) -> None:
    first = begin(programs, "scheduler")
    number = first.url.rpartition(":")[2]
    code, _, err = programs.begin("scheduler", "--health-port", number).finish()
    assert code == 2
    assert f"the health port 127.0.0.1:{number} cannot be used" in err


@pytest.mark.parametrize(
    ("text", "offset", "address"),
    [
        ("8701", 0, Address("127.0.0.1", 8701)),
        ("8701", 3, Address("127.0.0.1", 8704)),
        ("0.0.0.0:8701", 0, Address("0.0.0.0", 8701)),
        ("[::]:8701", 1, Address("::", 8702)),
        ("0", 5, Address("127.0.0.1", 0)),
    ],
)
def test_addresses(text: str, offset: int, address: Address) -> None:
    assert read_address(text, offset) == address


@pytest.mark.parametrize("text", ["http://x", "x:", ":8701", "70000", "-1"])
def test_no_addresses(text: str) -> None:
    with pytest.raises(Refusal, match="is not a port"):
        read_address(text)


def test_environment_says_where_if_no_option_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(health_port.VARIABLE, raising=False)
    assert health_address(None) is None
    monkeypatch.setenv(health_port.VARIABLE, "8701")
    assert health_address(None, 1) == Address("127.0.0.1", 8702)
    assert health_address("9") == Address("127.0.0.1", 9)
    monkeypatch.setenv(health_port.VARIABLE, "")
    assert health_address(None) is None
