"""Workers and RabbitMQ die, are stopped and blocked under load: nothing is lost, and nothing is done twice.

``make chaos`` has ``DALSEGNO_FAULTS`` faults (40), one after the other, while executions are started.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.adapters.rabbitmq.amqp.address import parse_address
from dalsegno.adapters.rabbitmq.amqp.connection import Connection
from dalsegno.adapters.rabbitmq.topology import COMPLETION
from dalsegno.handle import Handle
from tests.chaos.counting import check_histories, expected, outcome
from tests.chaos.processes import Workers
from tests.chaos.reporting import Report
from tests.chaos.workload import DOCUMENTS, payload
from tests.servers import RabbitServer

FAULTS = int(os.environ.get("DALSEGNO_FAULTS", "40"))
STARTED_PER_FAULT = 25
PATIENCE = 120.0
UNCOUNTED = 1000


def kill_worker(_: RabbitServer, workers: Workers, chance: random.Random) -> None:
    living = [worker for worker in workers._workers if worker.alive]
    chance.choice(living).kill()
    workers.start()


def restart(server: RabbitServer, _: Workers, chance: random.Random) -> None:
    server.kill()
    time.sleep(chance.uniform(0.0, 2.0))
    server.start()


def suspend(server: RabbitServer, _: Workers, chance: random.Random) -> None:
    server.suspend()
    time.sleep(chance.uniform(1.0, 8.0))  # beyond the confirmations' timeout
    server.resume()


def block(server: RabbitServer, _: Workers, chance: random.Random) -> None:
    server.raise_memory_alarm()
    time.sleep(chance.uniform(0.5, 4.0))
    server.clear_memory_alarm()


def close_connections(server: RabbitServer, _: Workers, chance: random.Random) -> None:
    server.close_connections("/")


@pytest.mark.chaos
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_faults_of_rabbitmq_and_workers_lose_nothing(
    store: str,
    tmp_path: Path,
    private_rabbitmq: RabbitServer,
    request: pytest.FixtureRequest,
    report: Report,
) -> None:
    url = f"sqlite:///{tmp_path / 'chaos.db'}"
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
    chance, started, handles = random.Random(1), dict[str, tuple[str, int]](), dict[str, Handle]()
    client = App(url, broker=private_rabbitmq.url)
    for document in DOCUMENTS.values():
        client.deploy(document)
    faults: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DALSEGNO_BROKER", private_rabbitmq.url)
        workers = Workers(url, losses=UNCOUNTED)
    with workers:
        for _ in range(3):
            workers.start()
        for _ in range(FAULTS):
            for _ in range(STARTED_PER_FAULT):
                name, number = chance.choice(list(DOCUMENTS)), chance.randrange(100)
                handle = client.start(name, payload(number))
                started[handle.id], handles[handle.id] = (name, number), handle
            fault = chance.choice((kill_worker, kill_worker, restart, suspend, block, close_connections))
            fault(private_rabbitmq, workers, chance)
            faults[fault.__name__] += 1
            time.sleep(chance.uniform(0.0, 0.5))
        began = time.monotonic()
        for handle in handles.values():
            try:
                handle.wait(max(began + PATIENCE - time.monotonic(), 0.1))
            except TimeoutError:
                waits = [f"{wait.kind} {wait.node}: {wait.sentence}" for wait in handle.why()]
                held = client.host.call(holders(client, handle.id))
                raise AssertionError(f"execution {handle.id} hangs: {waits}; {held}") from None
        seconds = time.monotonic() - began
    wanted = expected(started)
    for key, handle in handles.items():
        assert outcome(handle) == wanted[key], started[key]
    check_histories(client)
    graphs = {key for key, handle in handles.items() if handle.status().kind == "graph"}
    completions: dict[str, set[str]] = {}
    while not set(completions) >= graphs and time.monotonic() < began + PATIENCE:
        for key, identities in asyncio.run(completions_in(private_rabbitmq.url)).items():
            completions.setdefault(key, set()).update(identities)
        time.sleep(0.2)
    told = time.monotonic() - began
    assert set(completions) == graphs, "each execution has a completion"
    assert all(len(identities) == 1 for identities in completions.values()), "repeated under one identity"
    client.close()
    report(
        f"{store}: {dict(faults)}, {len(handles)} executions, the last ended {seconds:.1f} s and was told "
        f"{told:.1f} s after the last fault"
    )


async def holders(client: App, execution: str) -> str:
    """Return who holds the tokens of an execution, and which workers live."""
    ledger = client.client.stack.ledger
    found = await ledger.inspect(execution)
    tokens = [(each.node, each.state, each.owner) for each in found.tokens if each.owner] if found else []
    workers = [(each.id, each.expires_at - ledger.now(), each.leases) for each in await ledger.workers()]
    return f"leased: {tokens}; workers: {workers}"


async def completions_in(url: str) -> dict[str, set[str]]:
    """Take every completion that is there: the identities of the messages by execution."""
    connection = await Connection.open(parse_address(url))
    channel, found = await connection.channel(), dict[str, set[str]]()
    while (message := await channel.get(COMPLETION)) is not None:
        channel.ack(message.tag)
        identity = message.properties.message_id or ""
        found.setdefault(identity.rpartition(":")[0].rpartition(":")[0], set()).add(identity)
    await connection.close()
    return found
