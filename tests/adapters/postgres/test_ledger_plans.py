"""Plans of the ledger's statements: whatever runs for every step goes by indexes, however much history there is."""

from __future__ import annotations

import itertools
import re

import asyncpg

from dalsegno.adapters.postgres import PostgresLedger
from dalsegno.adapters.postgres.statements import SQL
from tests.adapters.postgres.test_archive_plans import plan_of

TOPICS = ("load", "write", "leases", "limits", "sweep", "look")
STATEMENTS = sorted(name for name in SQL if name.split(".")[0] in TOPICS)
ALL_WORKERS = {"leases.gone", "leases.known_workers", "leases.workers"}
"""They look at all workers: one row for each process."""
IN_ORDER = (
    "leases.claim",
    "leases.plain",
    "leases.heads",
    "leases.due",
    "leases.wake_plain",
    "sweep.ended",
    "load.first_in_lines",
)
"""They take the first few of a line."""
NEVER_WALKED = {
    "leases.due": "token_due",
    "leases.wake_plain": "token_due",
    "leases.claim": "token_ready",
    "leases.heads": "token_in_line",
}

BY_NAME = (
    "write.steps",
    "write.held_steps",
    "write.held_stops",
    "write.tokens",
    "load.locked",
    "load.tokens",
    "leases.named",
    "leases.named_in_line",
    "leases.give",
)
MANY_TOKENS = """
INSERT INTO token (execution, id, state, scope, kind, node, queue, priority, live, ready_at, data, owner)
SELECT number % 20, number::text, CASE WHEN number < 5 THEN 'leased' WHEN number < 9 THEN 'ready' ELSE 'consumed' END,
       '', 'node', 'a', 'default', 0, true, 0, '', 'w1'
FROM generate_series(1, 5000) AS number
"""


async def plans(ledger: PostgresLedger, names: tuple[str, ...] | list[str]) -> dict[str, list[str]]:
    found = {}
    async with ledger.store.transaction() as tx:
        for name in names:
            found[name] = await plan_of(tx.connection, name)
            await tx.connection.execute("DEALLOCATE planned")
    return found


async def test_statements_go_by_indexes_only(ledger: PostgresLedger) -> None:
    """Within one transaction, so that one database serves them all."""
    walks = {
        name: [line for line in plan if "Seq Scan" in line]
        for name, plan in (await plans(ledger, STATEMENTS)).items()
    }

    assert {name for name, lines in walks.items() if lines} <= ALL_WORKERS
    assert all("on worker" in line for lines in walks.values() for line in lines)


async def test_lines_are_walked_in_their_order(ledger: PostgresLedger) -> None:
    """Nothing is sorted before it is locked or limited: a claim must not depend on how many tokens wait."""
    for name, plan in (await plans(ledger, IN_ORDER)).items():
        locked = [plan[place + 1] for place, line in enumerate(plan) if "LockRows" in line]
        assert locked or name == "load.first_in_lines", name
        assert not [line for line in locked if "Sort" in line], "\n".join(plan)


async def test_tokens_are_looked_up_by_their_names_however_few_are_leased(ledger: PostgresLedger) -> None:
    """With few leased tokens among many, the planner is tempted to walk those for every token that is named."""
    async with ledger.store.transaction() as tx:
        await tx.connection.execute(MANY_TOKENS)
    async with ledger.store.transaction() as tx:
        await tx.connection.execute("ANALYZE token")

    for name, plan in (await plans(ledger, BY_NAME)).items():
        used = {found.group(1) for line in plan if (found := re.search(r"using (token_\w+) on token", line))}
        assert used <= {"token_pkey", "token_using"}, f"{name}: " + "\n".join(plan)


WHOLE_KEYS = re.compile(r"Join Filter: .*\b(token\.id|token\.awaits|barrier\.id|scope\.path|first\.id)\b")


async def test_rows_are_looked_up_by_their_whole_keys_however_empty_the_tables_are(
    ledger: PostgresLedger,
) -> None:
    """A plan that is made on the first day, or in a quiet hour, also serves the fan-out of ten thousand that comes
    next. By half a key, each of its tokens would be sought among all of them."""
    for name, plan in (await plans(ledger, STATEMENTS)).items():
        assert not [line for line in plan if WHOLE_KEYS.search(line)], f"{name}: " + "\n".join(plan)
        for scan, condition in itertools.pairwise(plan):
            if re.search(r"(left_context_pkey|token_awaiting) ", scan) and "Conflict" not in scan:
                assert "execution = " in condition, f"{name}: " + "\n".join(plan)


HOT = (
    "write.steps",
    "write.held_steps",
    "write.held_stops",
    "write.tokens",
    "write.joins",
    "write.machines",
    "load.locked",
    "load.tokens",
    "load.scopes",
    "load.barriers",
    "load.gates",
    "load.slots",
    "load.left",
    "load.machines",
    "load.signals",
    "load.waiting_signals",
    "leases.claim",
    "leases.named",
    "leases.due",
    "leases.wake_plain",
)
IN_ORDER_OF_TIME = re.compile(r"using (token_due|line_opening) ")
"""The first few of these are taken, whatever they are."""


async def test_nothing_is_walked_although_the_tables_were_found_empty(
    ledger: PostgresLedger, postgres_url: str
) -> None:
    """Autovacuum tells the planner that there is nothing, in the quiet hour before the rush. A walk over a table seems
    to be as good as a look then, and all rows of a batch are compared with all of it."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("VACUUM (ANALYZE)")
    await connection.close()

    for name, plan in (await plans(ledger, HOT)).items():
        for scan, condition in itertools.pairwise(plan):
            if re.search(r"Index (Only )?Scan using", scan) and not IN_ORDER_OF_TIME.search(scan):
                assert "Index Cond" in condition, f"{name}: {scan}\n" + "\n".join(plan)
            assert "Seq Scan" not in scan, f"{name}: {scan}"
        walks = [line for line in plan if "Join Filter" in line]
        assert not walks, f"{name}: " + "\n".join(plan)


async def test_times_and_lines_are_looked_up_in_the_index_itself(ledger: PostgresLedger) -> None:
    """A condition that is only checked on the way would walk past everything that is not due."""
    for name, index in NEVER_WALKED.items():
        plan = (await plans(ledger, [name]))[name]
        [place, *_] = [place for place, line in enumerate(plan) if f"using {index} " in line]
        assert "Index Cond" in plan[place + 1], "\n".join(plan)
