"""Four workers, two schedulers and a server on a private PostgreSQL, and all of them are killed while they work.

A random process is killed with -9 every second, PostgreSQL too now and then, and one worker is stopped for longer than
its lease and goes on. Every execution ends once, with the result that it has without faults; those that are cancelled
end once, too, and no limit is left in use or shut. Schedules come every second, and each of their times has started one
execution. ``make test`` does so for 20 seconds; ``make chaos`` for ``DALSEGNO_CHAOS_SECONDS`` (180), with
``DALSEGNO_CHAOS_EXECUTIONS`` (5000).
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.core.values import decode_value
from tests.chaos import mixed_workload as mixed
from tests.chaos.cluster import Cluster
from tests.chaos.counting import check_histories, expected, outcome
from tests.chaos.load import Load
from tests.chaos.reporting import Report
from tests.chaos.schedule_workload import ScheduleWorkload
from tests.chaos.witness import refusals
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

SECONDS = float(os.environ.get("DALSEGNO_CHAOS_SECONDS", "180"))
EXECUTIONS = int(os.environ.get("DALSEGNO_CHAOS_EXECUTIONS", "5000"))
DATABASE = "chaos"
PATIENCE = 120.0
"""For what is left when nothing dies any more; no progress for so long is a failure."""

LEFT = "SELECT count(*) FROM dalsegno.execution WHERE state IN ('PENDING', 'RUNNING', 'PAUSED')"
ENDED_TWICE_OR_NEVER = """
SELECT execution, count(*) FROM dalsegno.event
WHERE kind IN ('ExecutionCompleted', 'ExecutionFailed', 'ExecutionCancelled') GROUP BY 1 HAVING count(*) <> 1
UNION ALL
SELECT number, 0 FROM dalsegno.execution WHERE NOT EXISTS (
    SELECT FROM dalsegno.event WHERE execution = number AND kind IN ('ExecutionCompleted', 'ExecutionCancelled'))
"""
IN_USE = """
SELECT limit_key FROM dalsegno.token WHERE state = 'leased' AND limit_key IS NOT NULL
UNION ALL SELECT key FROM dalsegno.slot_holder
UNION ALL SELECT key FROM dalsegno.line WHERE shut
"""
"""Limit keys of which a slot is in use or a line shut. What ended is swept a moment later."""
STUCK = """
SELECT execution.id, workflow, flight.state, token.id, token.node, token.state FROM dalsegno.flight
JOIN dalsegno.execution USING (number) LEFT JOIN dalsegno.token ON token.execution = flight.number
WHERE flight.ended_at IS NULL LIMIT 20
"""


LEASED = "SELECT fence FROM dalsegno.token WHERE id = '{token}' AND state = 'leased'"
DONE = """
SELECT token FROM dalsegno.event WHERE kind = 'TaskCompleted' AND execution =
(SELECT number FROM dalsegno.execution WHERE id = '{execution}')
"""


def prepared(postgres: PostgresServer) -> str:
    """A database with everything deployed that is deployed by hand."""
    url = postgres.create_database(DATABASE)
    client = App(url)
    for document in mixed.GRAPHS.values():
        client.deploy(document)
    client.deploy_script(mixed.ORDER)
    client.close()
    postgres.psql(mixed.BOOKINGS, DATABASE)
    return url


def scheduled(url: str, seconds: float) -> ScheduleWorkload:
    """Schedules that are over when the storm is."""
    client = App(url)
    schedule_workload = ScheduleWorkload.of_the_next(seconds * 0.9)
    schedule_workload.add_to(client)
    client.close()
    return schedule_workload


class Chaos:
    """What happens to the cluster, second by second."""

    def __init__(self, cluster: Cluster, postgres: PostgresServer, chance: random.Random) -> None:
        self.cluster = cluster
        self.postgres = postgres
        self.chance = chance
        self.kills: Counter[str] = Counter()
        self.restarts = 0
        self._stopped: str | None = None

    def rage(self, seconds: float, restarts: int) -> None:
        began = time.monotonic()
        crashes = [seconds * (number + 0.7) / restarts for number in range(restarts)]
        pauses = [(seconds * 0.15, seconds * 0.15 + mixed.LEASE + 2)]
        second = 0
        while (elapsed := time.monotonic() - began) < seconds:
            if crashes and elapsed >= crashes[0]:
                crashes.pop(0)
                self._crash()
            self._pause(pauses, elapsed)
            self.cluster.tend()
            self._kill_one()
            second += 1
            time.sleep(max(0.0, began + second - time.monotonic()))
        if self._stopped is not None:
            self.cluster.go_on(self._stopped)
        for _ in crashes:
            self._crash()

    def _kill_one(self) -> None:
        name = self.chance.choice([each for each in self.cluster.roles if each != self._stopped])
        self.cluster.replace(name)
        self.kills[name.partition("-")[0]] += 1

    def _crash(self) -> None:
        self.postgres.kill()
        self.postgres.start()
        self.restarts += 1

    def _pause(self, pauses: list[tuple[float, float]], elapsed: float) -> None:
        """A worker sleeps past its lease and goes on as if nothing had happened."""
        if self._stopped is None and pauses and elapsed >= pauses[0][0]:
            self._stopped = "worker-4"
            self.cluster.stop(self._stopped)
        elif self._stopped is not None and pauses and elapsed >= pauses[0][1]:
            self.cluster.go_on(self._stopped)
            self._stopped = None
            pauses.pop(0)


def finish(cluster: Cluster, postgres: PostgresServer) -> None:
    """Until nothing is left to do, as long as there is progress."""
    left, end = -1, time.monotonic() + PATIENCE
    while (now_left := int(postgres.psql(LEFT, DATABASE))) > 0:
        if now_left != left:
            left, end = now_left, time.monotonic() + PATIENCE
        assert time.monotonic() < end, f"{left} executions hang:\n{postgres.psql(STUCK, DATABASE)}"
        cluster.tend()
        time.sleep(0.2)


def check(url: str, postgres: PostgresServer, load: Load, beside: int) -> Counter[str]:
    """Every execution once, with the fault-free result and an exact history. Returns how many of each kind. ``beside``:
    how many there are that nobody started."""
    started = load.started
    graphs = {key: (kind, number % 100) for key, (kind, number) in started.items() if kind in mixed.GRAPHS}
    wanted = expected(graphs)
    assert int(postgres.psql("SELECT count(*) FROM dalsegno.execution", DATABASE)) == len(started) + beside
    assert postgres.psql(ENDED_TWICE_OR_NEVER, DATABASE) == ""
    client = App(url)
    try:
        check_histories(client, load.asked())
        for key, (kind, number) in started.items():
            handle = client.handle(key)
            if kind in mixed.GRAPHS:
                assert outcome(handle) == wanted[key], (kind, number)
            else:
                view = handle.status()
                if view.state == "CANCELLED" and mixed.is_fleeting(kind, number):
                    continue
                assert view.output is not None, (kind, number, view.state, view.error)
                assert decode_value(view.output) == mixed.EXPECTED[kind](number), (kind, number)
    finally:
        client.close()
    booked = postgres.psql("SELECT number FROM public.booked WHERE number >= 0 ORDER BY 1", DATABASE).split()
    assert booked == [
        str(number) for number in sorted(n for kind, n in started.values() if kind == "booking")
    ]
    return Counter(kind for kind, _ in started.values())


def chaos(postgres: PostgresServer, folder: Path, seconds: float, restarts: int, executions: int) -> str:
    """What it came to, in a few sentences."""
    chance = random.Random(5)
    url = prepared(postgres)
    schedule_workload = scheduled(url, seconds)
    with Cluster(url, folder) as cluster:
        load = Load(cluster.server, executions, seconds * 0.9, random.Random(6))
        load.begin()
        storm = Chaos(cluster, postgres, chance)
        storm.rage(seconds, restarts)
        began = time.monotonic()
        load.end(cluster.tend)
        finish(cluster, postgres)
        wait_until(
            lambda: postgres.psql(IN_USE, DATABASE) == "", seconds=PATIENCE, what="all slots to be given back"
        )
        quiet = time.monotonic() - began
        kinds = check(url, postgres, load, schedule_workload.executions())
        fired = schedule_workload.check(postgres, DATABASE)
        checked = time.monotonic() - began - quiet
        logs = cluster.logs()
    assert sum(kinds.values()) == executions
    log = postgres.log_text()
    assert "deadlock detected" not in log
    assert "PANIC" not in log
    return (
        f"{sum(storm.kills.values())} kills {dict(storm.kills)}, PostgreSQL killed {storm.restarts} times, "
        f"{cluster.fell} processes ended by themselves while it was away\n"
        f"{executions} executions, each ended once as without faults {dict(kinds)}; "
        f"the last one {quiet:.1f} s after the last kill; checked in {checked:.1f} s\n"
        f"{fired} times of {len(schedule_workload.times())} schedules, each of which started one execution\n"
        f"commits that the store refused, by reason: {dict(Counter(each.reason for each in refusals(logs)))}\n"
        f"{logs.count('Traceback')} tracebacks in the processes' logs, 0 deadlocks in PostgreSQL's"
    )


def test_killed_processes_and_servers_lose_nothing_and_do_nothing_twice(
    private_postgres: PostgresServer, tmp_path: Path
) -> None:
    chaos(private_postgres, tmp_path, seconds=20, restarts=2, executions=200)


@pytest.mark.chaos
def test_minutes_of_chaos_lose_nothing_and_do_nothing_twice(
    private_postgres: PostgresServer, tmp_path: Path, report: Report
) -> None:
    report(chaos(private_postgres, tmp_path, SECONDS, restarts=5, executions=EXECUTIONS))


def test_late_commit_of_a_worker_that_was_stopped_past_its_lease_is_refused(
    private_postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both workers run the task. The first one's commit arrives while the second is still at it, and the store answers
    that its fence is old; the result is the second one's, and there is one completion."""
    monkeypatch.setenv(mixed.MARKS, str(tmp_path))
    url = prepared(private_postgres)
    with Cluster(url, tmp_path, roles=("worker-1", "scheduler-1")) as cluster:
        client = App(url)
        first = cluster.members["worker-1"]
        wait_until(lambda: "serves" in cluster.logs("worker"), seconds=PATIENCE, what="the first worker")
        handle = client.start("lingering")
        wait_until((tmp_path / f"came-{first.pid}").exists, seconds=PATIENCE, what="the task to begin")
        cluster.stop("worker-1")
        second = cluster.start("worker-2")
        wait_until((tmp_path / f"came-{second.pid}").exists, seconds=PATIENCE, what="the second attempt")

        (tmp_path / f"go-{first.pid}").touch()
        cluster.go_on("worker-1")
        log = f"worker-{first.pid}"
        wait_until(
            lambda: refusals(cluster.logs(log)) != [], seconds=PATIENCE, what="the late commit's answer"
        )
        [refusal] = refusals(cluster.logs(log))
        assert refusal.reason == "fence"
        assert private_postgres.psql(LEASED.format(token=refusal.token), DATABASE) == str(refusal.fence + 1)
        assert private_postgres.psql(DONE.format(execution=handle.id), DATABASE) == ""

        (tmp_path / f"go-{second.pid}").touch()
        assert handle.result(PATIENCE) == second.pid
        assert client.start("booking", 7).result(PATIENCE) == mixed.expected_booking(7)
        cluster.drain()
        check_histories(client)
        client.close()
        assert refusals(cluster.logs()) == [refusal]
    assert private_postgres.psql(DONE.format(execution=handle.id), DATABASE) == refusal.token
    assert private_postgres.psql(ENDED_TWICE_OR_NEVER, DATABASE) == ""
