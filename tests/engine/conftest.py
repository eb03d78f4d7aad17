"""Stores for what an engine does on any of them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("empty_postgres")()
        return found
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/engine.db"
