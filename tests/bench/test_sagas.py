"""The soak of sagas in short: what befalls them, beside a provider that cannot refund for some seconds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.sagas.run import soak


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/sagas.db"
    url: str = request.getfixturevalue("empty_postgres")()
    return url


def test_no_charge_is_lost_in_thirty_sagas(store_url: str, tmp_path: Path) -> None:
    found = asyncio.run(
        soak(store_url, tmp_path, 30, down=3.0, seed=3, kill_every=0.5, look_every=0.1, kills=2, lease=5.0)
    )
    assert found["wrong"] == []
    assert found["kills"] == 2
    assert found["charged"] > 0
    if found["refunded"]:  # on a slow machine all cancels may come before the charges
        assert found["refunds_refused"] > 0
        assert found["dead_letters_retried"] > 0
