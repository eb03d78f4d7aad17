"""Stores for what an engine does on any of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dalsegno.testing.clock import FakeClock
from tests.engine.schedule_fixture import ScheduleFixture
from tests.servers.sqlite import empty_sqlite


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("empty_postgres")()
        return found
    return "memory:" if request.param == "memory" else empty_sqlite(tmp_path / "engine.db")


@pytest.fixture
async def schedule_fixture(url: str) -> AsyncIterator[ScheduleFixture]:
    found = await ScheduleFixture.open(url, FakeClock())
    await found.deploy()
    yield found
    await found.stack.close()
