"""Every scenario runs on every stack: a new stack is one more parameter here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage
from tests.servers.sqlite import empty_sqlite

STACKS = ("memory", "sqlite", "postgres")
LASTING = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
"""For tests with several processes: a store that outlives the one that opened it."""
ONE_STACK = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""For what a store does not see: it keeps values as bytes, which the contract suite and test_round_trips check."""


@pytest.fixture(params=STACKS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory:"
        case "sqlite":
            return empty_sqlite(tmp_path / "scenario.db")
        case _:
            url: str = request.getfixturevalue("empty_postgres")()
            return url


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with Stage(store_url) as running:
        yield running
