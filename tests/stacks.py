"""The stacks on which scenarios and calls of the HTTP API run: stores, alone and with a broker beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

from tests.servers.sqlite import empty_sqlite

STORES = ("memory", "sqlite", "postgres")
WITH_BROKERS = ("postgres_rabbitmq", "postgres_redis", "sqlite_rabbitmq")
EVERY = 24
"""Of so many test functions, one runs on one stack with a broker in a build; on all of them with the full matrix."""


def is_full() -> bool:
    return os.environ.get("DALSEGNO_MATRIX") == "full"


def stacks_of(function: str) -> Sequence[str]:
    """Return the stacks on which a test function runs. Stores that take turns are left out later, test by test."""
    if is_full():
        return STORES + WITH_BROKERS
    chosen = crc32(function.encode())
    return STORES if chosen % EVERY else (*STORES, WITH_BROKERS[chosen // EVERY % len(WITH_BROKERS)])


def url_of(stack: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """Return the URL of an empty store; its broker is named by the environment, as in a deployment."""
    store, _, broker = stack.partition("_")
    if broker:
        environment: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
        environment.setenv("DALSEGNO_BROKER", request.getfixturevalue(f"{broker}_url"))
    match store:
        case "memory":
            return "memory:"
        case "sqlite":
            return empty_sqlite(folder / "store.db")
    found: str = request.getfixturevalue("empty_postgres")()
    return found
