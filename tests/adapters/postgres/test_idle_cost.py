"""A system in which nothing happens leaves PostgreSQL alone: under one statement a second, of all processes."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.chaos.cluster import Cluster
from tests.servers.postgres import PostgresServer
from tests.servers.process import wait_until

ROLES = ("server", "worker-1", "worker-2", "scheduler-1")
SECONDS = 30.0
"""Two turns of what looks every 15 seconds: whatever the count begins with, it is an average."""
STATEMENT = re.compile(r"LOG:  (?:execute [^:]+|statement): (.*)")
SETTLED = 8.0
"""Seconds without which the counting would meet the first looks after the start: two turns of the timers."""


def statements(server: PostgresServer) -> list[str]:
    return STATEMENT.findall(server.log_text())


def all_there(logs: str) -> bool:
    return logs.count("serves default") == 2 and "scheduler:" in logs and "listens at" in logs


def test_idle_system_makes_under_one_query_a_second(
    postgres_factory: Callable[..., PostgresServer], tmp_path: Path
) -> None:
    """Every statement is logged, those of heartbeats and wake-ups as well."""
    server = postgres_factory(log_statement="all", log_min_messages="warning")
    with Cluster(server.create_database("idle"), tmp_path, roles=ROLES, hasty=False) as cluster:
        wait_until(lambda: all_there(cluster.logs()), seconds=60, what="all processes")
        time.sleep(SETTLED)
        before = len(statements(server))
        time.sleep(SECONDS)
        found = statements(server)[before:]
    rate = len(found) / SECONDS
    counted = Counter(" ".join(text.split())[:60] for text in found).most_common()
    print(f"\n{rate:.2f} statements a second while idle: {counted}")  # noqa: T201 - the figure is worth seeing
    assert found, "heartbeats at least must be seen, or nothing was counted"
    assert rate < 1.0, counted
