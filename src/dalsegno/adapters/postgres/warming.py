"""What a new connection plans before it is used.

PostgreSQL plans a statement when a session runs it for the first time, which takes ten times as long as running it. A
process opens its further connections when much happens at once: then nobody should wait for plans. So the statements
of the hot path are run once with nothing to do.

A server that takes no writes refuses them, after it has planned them. Whoever only reads is not concerned, and whoever
writes is told by the statement itself.
"""

from __future__ import annotations

import contextlib
from typing import Any

import asyncpg

from dalsegno.adapters.postgres import births, runs
from dalsegno.adapters.postgres.statements import SQL
from dalsegno.adapters.postgres.steps import Steps, rests

NO_STEPS = Steps().parameters()
NONE_SEEN = "{}", "{}"
NO_ENDINGS: tuple[list[Any], ...] = ([], [], [], [], [])
NO_RESTS = rests({})
NO_RUNS = runs.parameters({}, {}, ())
NOTHING: dict[str, tuple[Any, ...]] = {
    "write.steps": (*NO_STEPS,),
    "write.held_steps": (*NO_STEPS, *NONE_SEEN),
    "write.held_stops": (*NO_STEPS, *NONE_SEEN, *NO_ENDINGS, *NO_RESTS),
    "write.held_runs": (*NO_STEPS, *NONE_SEEN, *NO_ENDINGS, *NO_RESTS, *NO_RUNS),
    "write.starts": (*births.starts(()),),
    "leases.claim": ("", [], 0, None),
    "leases.wake_plain": (None, 0, 0.0, "", [], 0),
    "load.locked": ("{}", "{}", "{}", "{}"),
}
"""Parameters with which a statement changes nothing."""
REFUSALS = (asyncpg.ReadOnlySQLTransactionError, asyncpg.InsufficientPrivilegeError)


async def warm(connection: Any) -> None:
    for name, parameters in NOTHING.items():
        with contextlib.suppress(*REFUSALS):
            await connection.fetch(SQL[name], *parameters)
