"""Every scenario runs on every stack: a new one is one more in `tests.stacks`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.scenarios.stage import Stage
from tests.stacks import STORES, url_of

LASTING = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
"""For tests with several processes: a store that outlives the one that opened it."""
ONE_STACK = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
"""For what a store does not see: it keeps values as bytes, which the contract suite and test_round_trips check."""


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with Stage(store_url) as running:
        yield running
