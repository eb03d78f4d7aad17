"""On the stores that have transactions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.stage import Stage
from tests.scenarios.transactions.own_table import OwnTable
from tests.servers.sqlite import empty_sqlite


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_sqlite(tmp_path / "scenario.db")
    url: str = request.getfixturevalue("empty_postgres")()
    return url


@pytest.fixture
def own_table(stage: Stage, store_url: str) -> OwnTable:
    return OwnTable(stage, store_url)
