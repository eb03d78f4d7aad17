"""Redis, RabbitMQ, PostgreSQL and processes of ours and of others die or are stopped while everything runs.

Each execution ends once, with the result that it has without faults; each graph has one completion, or the same one
again. What each fault costs is printed: runs of our nodes that were repeated, and seconds until a chain of nodes that
is started afterwards has ended. Faults of Redis and RabbitMQ repeat no run. At the end RabbitMQ is gone until
everything has ended, and completions follow when it is back. ``make chaos`` takes ``DALSEGNO_CHAOS_SECONDS`` (180) for
killing a process each second, and has ``DALSEGNO_CHAOS_EXECUTIONS`` (5000).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from dalsegno import App
from dalsegno.errors import DalSegnoError
from tests.chaos import mixed_workload as mixed
from tests.chaos.cluster import Cluster
from tests.chaos.foreign import Completions, ForeignWorkers
from tests.chaos.load import KINDS, Load
from tests.chaos.planted_timers import PlantedTimers
from tests.chaos.reporting import Report
from tests.chaos.test_postgres_chaos import check, finish, prepared
from tests.servers import RabbitServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until
from tests.servers.redis import RedisServer

SECONDS = float(os.environ.get("DALSEGNO_CHAOS_SECONDS", "180"))
EXECUTIONS = int(os.environ.get("DALSEGNO_CHAOS_EXECUTIONS", "5000"))
COUNTED = (*KINDS, *("counted",) * 6)
PATIENCE = 120.0
TIMERS_LATE = 10.0
"""Seconds after the death of their scheduler in which planted timers fire."""


class Servers(NamedTuple):
    postgres: PostgresServer
    redis: RedisServer
    rabbitmq: RabbitServer | None

    def environment(self, folder: Path) -> dict[str, str]:
        broker = self.rabbitmq or self.redis
        return {
            "DALSEGNO_BROKER": broker.url,
            "DALSEGNO_REDIS": self.redis.url,
            "DALSEGNO_REMOTE": mixed.FOREIGN,
            mixed.RUNS: str(folder / "runs"),
        }

    def workers(self) -> dict[str, str]:
        """Return the URLs of the foreign workers, by the name of the example."""
        return (
            {"redis": self.redis.url, "rabbitmq": self.rabbitmq.url}
            if self.rabbitmq
            else {"redis": self.redis.url}
        )


class Cost(NamedTuple):
    fault: str
    runs: int
    """Runs of our own nodes that were repeated."""
    seconds: float
    """Until a chain that was started after the fault has ended."""


class Storm:
    """Faults, one after the other, and what each of them costs."""

    def __init__(
        self,
        cluster: Cluster,
        servers: Servers,
        foreign: ForeignWorkers,
        timers: PlantedTimers,
        client: App,
        folder: Path,
        stopped: float,
        report: Report,
    ) -> None:
        """``stopped``: seconds for which a server that is stopped stays so."""
        self.report = report
        self.cluster = cluster
        self.servers = servers
        self.foreign = foreign
        self.timers = timers
        self.client = client
        self.folder = folder
        self.stopped = stopped
        self.chance = random.Random(5)
        self.costs: list[Cost] = []
        self.probes: dict[str, tuple[str, int]] = {}
        self.kills: Counter[str] = Counter()

    def repeated(self) -> int:
        runs = (self.folder / "runs").read_text().split()
        return len(runs) - len(set(runs))

    def suffer(self, fault: Callable[[], None], *, harmless: bool = False) -> None:
        before = self.repeated()
        fault()
        began = time.monotonic()
        self._probe()
        seconds = time.monotonic() - began
        if not harmless:
            time.sleep(mixed.LEASE)  # what a process has lost is run again
        cost = Cost(fault.__name__, self.repeated() - before, seconds)
        self.costs.append(cost)
        self.report(f"{cost.fault}: {cost.runs} runs repeated, {cost.seconds:.1f} s to recover")
        assert not harmless or cost.runs == 0, cost

    def _probe(self) -> None:
        """Start a chain, and wait for its end. It counts with the others."""
        number, end = 1_000_000 + len(self.probes), time.monotonic() + PATIENCE
        starter = self.client.with_options(idempotency_key=f"probe-{number}")
        while True:
            self.cluster.tend()
            try:
                handle = starter.start("counted", mixed.payload("counted", number))
                self.probes[handle.id] = ("counted", number)
                handle.wait(1.0)
            except (DalSegnoError, TimeoutError):
                assert time.monotonic() < end, (
                    f"nothing runs any more after {self.costs}\n{self.cluster.logs()[-3000:]}"
                )
                continue
            return

    # -- servers ------------------------------------------------------------------------------------------------

    @property
    def rabbitmq(self) -> RabbitServer:
        assert self.servers.rabbitmq is not None
        return self.servers.rabbitmq

    def rabbitmq_killed(self) -> None:
        self.rabbitmq.kill()
        time.sleep(1)
        self.rabbitmq.start()

    def rabbitmq_stopped(self) -> None:
        self.rabbitmq.suspend()
        time.sleep(self.stopped)
        self.rabbitmq.resume()

    def rabbitmq_alarm(self) -> None:
        self.rabbitmq.raise_memory_alarm()
        time.sleep(self.stopped)
        self.rabbitmq.clear_memory_alarm()

    def redis_killed(self) -> None:
        self.servers.redis.kill()
        time.sleep(1)
        self.servers.redis.start()

    def redis_emptied(self) -> None:
        self.servers.redis.flush()

    def redis_stopped(self) -> None:
        self.servers.redis.suspend()
        time.sleep(self.stopped)
        self.servers.redis.resume()

    def postgres_killed(self) -> None:
        self.servers.postgres.kill()
        self.servers.postgres.start()

    # -- processes ----------------------------------------------------------------------------------------------

    def worker_stopped(self) -> None:
        """It sleeps past its lease."""
        self.cluster.stop("worker-4")
        time.sleep(mixed.LEASE + 2)
        self.cluster.go_on("worker-4")

    def foreign_worker_killed(self) -> None:
        self.foreign.kill(self.chance.randrange(len(self.foreign)))

    def schedulers_killed_with_timers(self) -> None:
        """They die between claim and hand-over, and others hand over within ten seconds more than it takes anyway."""
        self.timers.plant()
        usual = self.timers.wait_for_all(self.cluster.tend)
        self.timers.plant()
        claimed = self.timers.wait_for_claim(self.cluster.tend)
        for name in self.cluster.roles:
            if name.startswith("scheduler") and self.cluster.members[name].alive:
                self.cluster.members[name].kill()
        seconds = self.timers.wait_for_all(self.cluster.tend)
        self.report(
            f"schedulers killed with {claimed} claimed timers: all handed over after {seconds:.1f} s "
            f"({usual:.1f} s without a fault)"
        )
        assert seconds - usual < TIMERS_LATE

    def processes_killed(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.cluster.tend()
            name = self.chance.choice([*self.cluster.roles, "foreign worker"])
            if name == "foreign worker":
                self.foreign_worker_killed()
            else:
                self.cluster.replace(name)
            self.kills[name.partition("-")[0]] += 1
            time.sleep(1)


def rage(storm: Storm, seconds: float) -> None:
    """All faults. Those of the brokers come first, while no process dies."""

    def nothing() -> None:
        """What a chain takes without a fault, once all processes run."""

    for _ in range(2):  # during the first one, processes may be starting
        storm.suffer(nothing, harmless=True)
    of_redis = (storm.redis_killed, storm.redis_emptied, storm.redis_stopped)
    of_rabbitmq = (
        storm.rabbitmq_killed,
        storm.rabbitmq_stopped,
        storm.rabbitmq_killed,
        storm.rabbitmq_alarm,
        storm.rabbitmq_killed,
    )
    for fault in (*of_redis, *(of_rabbitmq if storm.servers.rabbitmq else ())):
        storm.suffer(fault, harmless=True)
    storm.suffer(storm.schedulers_killed_with_timers, harmless=True)
    for fault in (storm.foreign_worker_killed, storm.worker_stopped, storm.postgres_killed):
        storm.suffer(fault)

    def processes_killed() -> None:
        storm.processes_killed(seconds)

    storm.suffer(processes_killed)


def chaos(
    servers: Servers, folder: Path, seconds: float, executions: int, stopped: float, report: Report
) -> str:
    """Return what it came to, in a few sentences."""
    (folder / "runs").touch()
    url = prepared(servers.postgres)
    broker = (servers.rabbitmq or servers.redis).url
    client = App(url, broker=broker, redis=servers.redis.url)
    client.deploy(mixed.COUNTED)
    with ExitStack() as running:
        running.callback(client.close)
        reader = running.enter_context(Completions(servers.rabbitmq.url)) if servers.rabbitmq else None
        timers = running.enter_context(PlantedTimers(servers.redis.url))
        foreign = running.enter_context(ForeignWorkers(mixed.FOREIGN, folder, **servers.workers()))
        with pytest.MonkeyPatch.context() as environment:  # of the cluster's processes alone
            for name, value in servers.environment(folder).items():
                environment.setenv(name, value)
            cluster = Cluster(url, folder)
        running.enter_context(cluster)
        load = Load(cluster.server, executions, seconds + 10 * stopped, random.Random(6), COUNTED)
        load.begin()
        storm = Storm(cluster, servers, foreign, timers, client, folder, stopped, report)
        rage(storm, seconds)
        began = time.monotonic()
        load.end(cluster.tend)
        if servers.rabbitmq is not None:
            servers.rabbitmq.kill()  # for good, as far as what runs can know
        finish(cluster, servers.postgres)
        quiet = time.monotonic() - began
        told = ""
        if servers.rabbitmq is not None and reader is not None:
            told = completed(servers, reader, load, storm)
        load.started.update(storm.probes)
        kinds = check(url, servers.postgres, load, len(timers.executions))
        logs = cluster.logs()
    return (
        f"{dict(storm.kills)} killed\n{sum(kinds.values())} executions, each ended once as without faults "
        f"{dict(kinds)}, and {len(timers.executions)} of planted timers; "
        f"the last one {quiet:.1f} s after the last fault\n{told}"
        f"{logs.count('Traceback')} tracebacks in the processes' logs"
    )


def completed(servers: Servers, reader: Completions, load: Load, storm: Storm) -> str:
    """RabbitMQ comes back after everything has ended, and the completions follow."""
    assert servers.rabbitmq is not None
    servers.rabbitmq.start()
    began = time.monotonic()
    started = load.started | storm.probes
    graphs = {key for key, (kind, _) in started.items() if kind in mixed.GRAPHS or kind == "counted"}
    graphs.update(storm.timers.executions)

    def all_told() -> bool:
        storm.cluster.tend()
        return set(reader.identities) >= graphs

    wait_until(all_told, seconds=PATIENCE, what=f"{len(graphs)} completions")
    assert set(reader.identities) == graphs
    assert all(len(identities) == 1 for identities in reader.identities.values()), (
        "repeated under one identity"
    )
    return (
        f"{len(graphs)} completions, {reader.repeated} of them again under the same identity; all there "
        f"{time.monotonic() - began:.1f} s after RabbitMQ was back\n"
    )


@pytest.mark.chaos
@pytest.mark.parametrize("broker", ["rabbitmq", "redis"])
def test_faults_of_brokers_and_processes_lose_nothing_and_repeat_no_run(
    broker: str,
    private_postgres: PostgresServer,
    redis_factory: Callable[..., RedisServer],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    report: Report,
) -> None:
    """Redis keeps an append-only file beside RabbitMQ, and none where it is the broker."""
    rabbitmq = request.getfixturevalue("private_rabbitmq") if broker == "rabbitmq" else None
    servers = Servers(private_postgres, redis_factory(appendonly=rabbitmq is not None), rabbitmq)
    stopped = 25.0 if SECONDS >= 60 else 8.0
    report(f"{broker}: {chaos(servers, tmp_path, SECONDS, EXECUTIONS, stopped, report)}")
