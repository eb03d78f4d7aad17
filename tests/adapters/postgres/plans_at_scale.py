"""Plans of statements on a database with much in it: how it is filled, and how a plan is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import asyncpg

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.adapters.postgres.archive.partitions import _make
from dalsegno.adapters.postgres.connections import SESSION
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.store import day_at

CROWD = Path(__file__).with_name("plans_crowd.sql")
DAYS = 10
TINY = {
    "worker": "one row for each process that runs",
    "log": "one row for each kind of log; there are fewer than ten",
}
"""Tables that do not grow with work: reading them whole is the quickest way."""
CATALOGUE = "pg_"
"""PostgreSQL's own tables: one row per table or partition."""
WALKS = ("Index Scan", "Index Only Scan", "Bitmap Index Scan")


@dataclass(frozen=True, slots=True)
class Size:
    """How many rows. ``running``: unfinished executions, each with a parked token and five that are consumed."""

    events: int

    def numbers(self, now: float) -> dict[str, Any]:
        """What the script that fills the database is told."""
        return {
            "ended": self.events // 10,
            "running": max(self.events // 100, 5000),
            "settings": max(self.events // 100, 5000),
            "today": day_at(now),
            "now": now,
        }


async def fill(url: str, size: Size) -> None:
    """A migrated database that is empty, with days of history that lie back. Analysed, as autovacuum would."""
    store = await PostgresStore.open(url)
    today = day_at(store.now())
    for day in range(today - DAYS + 1, today + 1):
        await _make(store, day)
    connection = await asyncpg.connect(url, server_settings={"search_path": "dalsegno", "jit": "off"})
    try:
        script = Template(CROWD.read_text()).substitute(size.numbers(store.now()))
        await connection.execute(script, timeout=3600)
        await connection.execute("VACUUM ANALYZE", timeout=3600)
        assert await connection.fetchval("SELECT count(*) FROM event", timeout=600) == size.events
    finally:
        await connection.close()
        await store.close()


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    text: str
    tree: dict[str, Any]

    def whole_tables(self) -> set[str]:
        """Tables that are read from one end to the other."""
        return {node["Relation Name"] for node in nodes_of(self.tree) if node["Node Type"] == "Seq Scan"}

    def endless_walks(self, partial: frozenset[str]) -> set[str]:
        """Indexes of everything that are walked without a condition, and by nobody who stops after a few rows."""
        return {
            node["Index Name"]
            for node, limited in below_limits(self.tree, limited=False)
            if node["Node Type"] in WALKS
            and "Index Cond" not in node
            and not limited
            and node["Index Name"] not in partial
            and node.get("Relation Name") not in TINY
        }


def nodes_of(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each, _ in below_limits(node, limited=False):
        yield each


def below_limits(node: dict[str, Any], *, limited: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    """Every node, and whether somebody above it takes only so many rows."""
    yield node, limited
    for child in node.get("Plans", ()):
        yield from below_limits(child, limited=limited or node["Node Type"] == "Limit")


async def plans_of(url: str, names: list[str], *, settings: dict[str, str]) -> list[Plan]:
    """The one plan of each that serves all parameters. Every partition is shown, though a run looks into few."""
    connection = await asyncpg.connect(
        url, server_settings={**SESSION, "enable_partition_pruning": "off", **settings}
    )
    try:
        return [await _plan_of(connection, name) for name in names]
    finally:
        await connection.close()


async def _plan_of(connection: Any, name: str) -> Plan:
    parameters = (await connection.prepare(SQL[name])).get_parameters()
    given = f"({', '.join(['NULL'] * len(parameters))})" if parameters else ""
    await connection.execute(f"PREPARE planned AS {SQL[name]}")
    try:
        lines = await connection.fetch(f"EXPLAIN EXECUTE planned{given}")
        tree = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE planned{given}")
    finally:
        await connection.execute("DEALLOCATE planned")
    return Plan(name, "\n".join(line for (line,) in lines), json.loads(tree)[0]["Plan"])


async def partitions_read(url: str, name: str, *given: object) -> set[str]:
    """Which partitions of the history a run of a query looks into."""
    connection = await asyncpg.connect(url, server_settings=SESSION)
    try:
        found = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL[name]}", *given)
    finally:
        await connection.close()
    return {
        node["Relation Name"]
        for node in nodes_of(json.loads(found)[0]["Plan"])
        if node.get("Relation Name", "").startswith("event_") and node["Actual Loops"]
    }


async def partial_indexes(url: str) -> frozenset[str]:
    """Indexes of some rows only, such as of those that are ready: walking all of one reads no more than these."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT relname FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indpred IS NOT NULL"
        )
    finally:
        await connection.close()
    return frozenset(name for (name,) in rows)


def write(plans: list[Plan], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n\n".join(f"== {plan.name}\n{plan.text}" for plan in plans) + "\n")
