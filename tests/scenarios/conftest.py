"""Every scenario runs on every stack: a new stack is one more parameter here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage

STACKS = {
    "memory": lambda folder: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder}/scenario.db",
}


@pytest.fixture(params=STACKS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STACKS[request.param](tmp_path)


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with Stage(store_url) as running:
        yield running
