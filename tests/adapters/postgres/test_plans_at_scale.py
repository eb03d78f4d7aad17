"""Every statement on a database with much history goes by indexes, whether or not the planner may read whole tables.

Programs run with ``enable_seqscan = off``, so the plans are judged as they are then. But that alone could hide a
missing index, where another one is walked from end to end: so they are judged with it on, too, and the planner takes an
index because it is the better way. ``make test`` has 100,000 events, ``make soak`` 10,000,000 (DALSEGNO_PLAN_EVENTS).
The plans are written to build/plans-<events>.txt.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import md5
from pathlib import Path

import pytest

from dalsegno.adapters.postgres.statements import SQL
from tests.adapters.postgres.plans_at_scale import (
    CATALOGUE,
    TINY,
    Plan,
    Size,
    fill,
    partial_indexes,
    partitions_read,
    plans_of,
    write,
)
from tests.servers.postgres import PostgresServer

BUILD = Path(__file__).parents[3] / "build"
OTHERS = sorted(name for name in SQL if not name.startswith("listing."))
LISTING = sorted(name for name in SQL if name.startswith("listing."))
FREE = {"enable_seqscan": "on"}
IN_ORDER = {"enable_bitmapscan": "off", "enable_sort": "off"}
"""As snapshot.py sets them for lists: a page is walked in its order."""
GUESSED = {
    "leases.claim": {"line"},
    "limits.forget_stale_starts": {"limit_start"},
    "removal.outdated": {"publication"},
}
"""What the planner would read if it were free: it takes a span of time that it does not know for a third of a table,
and hopes to find a row soon. That is one reason why programs forbid it."""
SOMEBODY = f"{7:012x}{md5(b'7', usedforsecurity=False).hexdigest()[:20]}"
"""The seventh execution that plans_crowd.sql writes."""
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_wal_size": "8GB",
    "shared_buffers": "512MB",
    "maintenance_work_mem": "256MB",
}
"""Nobody will look at this data again, so it is written as fast as possible. Plans do not depend on these."""

Factory = Callable[..., PostgresServer]


async def test_statements_go_by_indexes_among_100_000_events(postgres_factory: Factory) -> None:
    await judge(postgres_factory(**FAST), Size(100_000))


@pytest.mark.soak
async def test_statements_go_by_indexes_among_10_000_000_events(postgres_factory: Factory) -> None:
    await judge(postgres_factory(**FAST), Size(int(os.environ.get("DALSEGNO_PLAN_EVENTS", "10000000"))))


async def judge(server: PostgresServer, size: Size) -> None:
    url = server.create_database("crowded")
    await fill(url, size)
    as_run, free = await all_plans(url, {}), await all_plans(url, FREE)
    write(as_run, BUILD / f"plans-{size.events}.txt")
    partial = await partial_indexes(url)

    assert {plan.name: read for plan in as_run if (read := read_whole(plan))} == {}
    assert {plan.name: walks for plan in as_run if (walks := plan.endless_walks(partial))} == {}
    assert {
        plan.name: read for plan in free if (read := read_whole(plan) - GUESSED.get(plan.name, set()))
    } == {}
    assert {plan.name: walks for plan in free if (walks := plan.endless_walks(partial))} == {}
    assert len(await partitions_read(url, "archive.events_of", SOMEBODY, 0, 100)) == 1


async def all_plans(url: str, settings: dict[str, str]) -> list[Plan]:
    return [
        *await plans_of(url, OTHERS, settings=settings),
        *await plans_of(url, LISTING, settings={**settings, **IN_ORDER}),
    ]


def read_whole(plan: Plan) -> set[str]:
    return {name for name in plan.whole_tables() if name not in TINY and not name.startswith(CATALOGUE)}
