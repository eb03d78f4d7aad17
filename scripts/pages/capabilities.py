"""``capabilities.md``: which topics of the contract suite each adapter is bound to."""

from __future__ import annotations

from importlib import import_module

from dalsegno.testing.contract import TOPICS, Topic
from scripts.pages.markdown import NOTICE, table

ADAPTERS = {"memory": "memory", "SQLite": "sqlite", "PostgreSQL": "postgres", "Redis": "redis"}
STACKS = (
    ("`memory:`", "in this process, gone with it", "in this process", "in this process"),
    (
        "`sqlite:///relative.db`, `sqlite:////absolute.db`",
        "one file in WAL mode, one writer thread per process, group commit",
        "in this process; other processes' commits are noticed by watching the write-ahead log",
        "the same file",
    ),
    (
        "`postgresql://user@host/database`",
        "rows locked in the database, settled in the process; batches of transitions in one statement",
        "claims that pass over what others hold; other processes are woken by `NOTIFY`",
        "the same database, history in partitions by day",
    ),
)
UNFINISHED = """
Redis has a ledger under construction. It is not reachable by a URL yet; the table shows how far it has come.
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
    matrix = table(("topic", "guarantees", *bound), rows)
    return (
        f"# Capability matrix\n\n{NOTICE}{INTRODUCTION}\n{stacks}{UNFINISHED}\n## Contract topics\n\n{matrix}"
    )


def _bound(adapter: str) -> set[str]:
    return {name for name in vars(import_module(f"tests.contract.test_{adapter}")) if name.startswith("Test")}


def _name(topic: type[Topic]) -> str:
    return f"Test{topic.__name__}"


def _title(topic: type[Topic]) -> str:
    """``LedgerSkippedSlots`` → ``ledger skipped slots``."""
    return "".join(f" {sign.lower()}" if sign.isupper() else sign for sign in topic.__name__).strip()
