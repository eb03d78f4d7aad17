"""``capabilities.md``: which topics of the contract suite each adapter is bound to."""

from __future__ import annotations

from importlib import import_module

from dalsegno.testing.contract import TOPICS, Topic
from scripts.pages.markdown import NOTICE, table

ADAPTERS = {"memory": "memory", "SQLite": "sqlite", "PostgreSQL": "postgres"}
STACKS = (
    ("`memory:`", "in this process, lost when it ends", "in this process", "in this process"),
    (
        "`sqlite:///relative.db`, `sqlite:////absolute.db`",
        "one file in WAL mode, one writer thread per process, group commit",
        "in this process; other processes' commits are noticed within 30 ms",
        "the same file",
    ),
    (
        "`postgresql://user@host/database`",
        """rows locked in the database, settled in the process; a batch is one transaction, one of plain steps of chains
        a single statement ([round trips](#a-distant-postgresql))""",
        "claims that skip locked tokens; other processes are woken by `NOTIFY`",
        "the same database, history in partitions by day",
    ),
)
ROUND_TRIPS = (
    (
        "only plain steps and endings of chains, as this process knows them from its own claims and commits",
        "1: a single statement",
    ),
    (
        """anything else: starts, scripts, nodes inside a split, merges, limits, waits, executions that another
        process has changed meanwhile""",
        "at least 4, in one transaction for the whole batch",
    ),
)
BEFORE_ROUND_TRIPS = """
### A distant PostgreSQL

Transitions that a process has ready at the same moment go to the database as one batch. The number of round trips
depends on the kinds of transitions in the batch, not on their number:
"""
AFTER_ROUND_TRIPS = """
A batch with both runs the statement first, then the transaction, and all of it is answered after both.

So with 10 ms to the database a step of a chain takes 10 ms or more, and a start, a task of a script or an arrival at
a merge 40 ms or more; for two of those round trips its execution is locked. Many executions at once share their
batches, up to 500 transitions each and two batches at a time per process, so throughput suffers much less than
latency. A single execution is as slow as its round trips: run workers close to the database rather than close to the
callers, or make one task of several small ones. Through a pooler the single statement takes four, too
([Behind PgBouncer](../deploy.md#behind-pgbouncer)). For the reasons see
[decision 25](../adr/0025-postgresql-locks-rows-and-settles-in-python.md).
"""
INTRODUCTION = """
An adapter is bound to the topics of the contract suite that it claims to support, and passes all their tests; see
[how to bind one](../architecture.md#write-an-adapter). A topic that is not ticked is not tested there,
and not promised.

## Stacks
"""


def page() -> str:
    bound = {title: _bound(name) for title, name in ADAPTERS.items()}
    rows = [
        (
            _title(topic),
            ", ".join(sorted(topic.guarantees)),
            *("✓" if _name(topic) in names else "" for names in bound.values()),
        )
        for topic in TOPICS
    ]
    stacks = table(("URL", "ledger", "broker", "archive, blobs"), STACKS)
    round_trips = table(("in the batch", "round trips"), ROUND_TRIPS)
    matrix = table(("topic", "guarantees", *bound), rows)
    return (
        f"# Capability matrix\n\n{NOTICE}{INTRODUCTION}\n{stacks}"
        f"{BEFORE_ROUND_TRIPS}\n{round_trips}{AFTER_ROUND_TRIPS}"
        f"\n## Contract topics\n\n{matrix}"
    )


def _bound(adapter: str) -> set[str]:
    return {name for name in vars(import_module(f"tests.contract.test_{adapter}")) if name.startswith("Test")}


def _name(topic: type[Topic]) -> str:
    return f"Test{topic.__name__}"


def _title(topic: type[Topic]) -> str:
    """``LedgerSkippedSlots`` → ``ledger skipped slots``."""
    return "".join(f" {sign.lower()}" if sign.isupper() else sign for sign in topic.__name__).strip()
