"""One client with many calls beside a real server that is suspended, killed and started again on its port.

The long form is ``make soak-client``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.client.soak import Soak
from tests.servers.dalsegno import DalsegnoServer


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DalsegnoServer]:
    store = None if request.param == "sqlite" else request.getfixturevalue("empty_postgres")()
    with DalsegnoServer(tmp_path, store) as made:
        yield made


async def test_a_client_works_as_soon_as_its_server_does(server: DalsegnoServer) -> None:
    """Each kind of outage happens once. A plain request says when the server works again, so that a busy machine, which
    answers everybody late, is no reason for wide bounds. The patience leaves room for a slow start of the server."""
    figures = await Soak(server, callers=300, seconds=0, pause=1, patience=120).run()

    assert figures.outages == {"suspend": 1, "kill": 1, "suspend_and_kill": 1}
    assert figures.complaints() == []
    assert figures.finished >= 300
