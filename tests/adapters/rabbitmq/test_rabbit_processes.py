"""Worker processes on RabbitMQ, as the command line starts them, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from tests.servers.process import HOST, Server
from tests.servers.sqlite import empty_sqlite
from tests.servers.workspace import Workspace
from tests.waiting import come_about
from tests.wire.documents import LINEAR

SCRIPT = """
let total = 0
for (let number = 1; number <= inputs.n; number += 1) {
  total += number
}
await Timer.delay("10ms")
return total
"""
STARTED = 12


class DalsegnoWorker(Server):
    _name = "worker"
    _stop_signal = signal.SIGTERM

    def __init__(self, folder: Path, store: str, broker: str) -> None:
        super().__init__(folder)
        self._options = ["--store", store, "--broker", broker, "--health-port", str(self.port)]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "dalsegno", "worker", *self._options]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:
            return False


Start = Callable[[], Awaitable[DalsegnoWorker]]


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_sqlite(tmp_path / "store.db")
    found: str = request.getfixturevalue("empty_postgres")()
    return found


@pytest.fixture
def start_worker(store_url: str, rabbitmq_url: str, server_workspace: Workspace) -> Iterator[Start]:
    with ExitStack() as workers:

        async def start() -> DalsegnoWorker:
            worker = DalsegnoWorker(server_workspace.new_folder("worker"), store_url, rabbitmq_url)
            return await asyncio.to_thread(workers.enter_context, worker)

        yield start


async def test_workers_share_what_is_started_elsewhere(
    store_url: str, rabbitmq_url: str, start_worker: Start
) -> None:
    """Graphs and scripts go through the queue to processes that come and go."""
    app = App(store_url, broker=rabbitmq_url)
    first = await start_worker()
    await app.adeploy({**LINEAR, "name": "linear"})
    await app.adeploy_script(SCRIPT, "adds")
    handles = [await app.astart("linear", n=number) for number in range(STARTED)]
    handles += [await app.astart("adds", n=10) for _ in range(STARTED)]
    await start_worker()
    await handles[0].aresult(60)

    stopping = asyncio.create_task(asyncio.to_thread(first.stop))
    handles += [await app.astart("linear", n=number) for number in range(STARTED)]

    results = [await handle.aresult(60) for handle in handles]
    assert results[STARTED : 2 * STARTED] == [55] * STARTED
    await stopping
    assert "Traceback" not in first.log_text()
    channel = await (connection := await Connection.open(parse_address(rabbitmq_url))).channel()
    await come_about(lambda: _is_empty(channel), "nothing left in the queue", 20)
    await connection.close()
    await app.aclose()


async def _is_empty(channel: object) -> bool:
    depth, _ = await channel.depth("workflow.execution")  # type: ignore[attr-defined]
    return bool(depth == 0)


async def doctor(store_url: str, rabbitmq_url: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dalsegno", "doctor", "--store", store_url, "--broker", rabbitmq_url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return " ".join(output.decode().split())


async def test_doctor_names_what_differs(store_url: str, rabbitmq_url: str) -> None:
    connection = await Connection.open(parse_address(rabbitmq_url))
    channel = await connection.channel()
    await channel.declare_queue("workflow.execution", arguments={"x-message-ttl": 5})
    await connection.close()
    said = await doctor(store_url, rabbitmq_url)
    assert "x-message-ttl of the queue 'workflow.execution' is 5 instead of 86400000" in said
    assert "x-max-priority of the queue 'workflow.execution' is not set instead of 10" in said
    assert "guest:guest" not in said


async def test_doctor_examines_rabbitmq_before_there_is_a_store(tmp_path: Path, rabbitmq_url: str) -> None:
    missing = tmp_path / "missing.db"
    said = await doctor(f"sqlite:///{missing}", rabbitmq_url)
    assert "RabbitMQ connected to" in said
    assert not missing.exists()
