"""The client's schedules and approvals against a real server: both sides mean the same."""

from __future__ import annotations

import time

import pytest

from dalsegno import Client
from dalsegno.errors import Conflict
from tests.server.approvals.test_approvals import graph
from tests.server.conftest import LiveServer
from tests.server.test_definitions import GRAPH


def test_schedules(live: LiveServer) -> None:
    with Client(live.url) as client:
        client.deploy(GRAPH)
        made = client.schedules.add("night/ly", "0 2 * * *", "sum", input={"n": 2}, timezone="Europe/Rome")
        assert client.schedules.list() == [client.schedules.get("night/ly", 1)]
        assert (made.spec.timezone, len(client.schedules.get("night/ly", 3).next)) == ("Europe/Rome", 3)
        client.schedules.pause("night/ly")
        assert client.schedules.get("night/ly").state == "PAUSED"
        client.schedules.resume("night/ly")
        started = client.schedules.trigger("night/ly")
        started.result(timeout=30)
        assert started.status().relation == "schedule"
        client.schedules.remove("night/ly")
        assert client.schedules.list() == []


def test_approvals(live: LiveServer) -> None:
    with Client(live.url) as client:
        client.deploy(graph())
        run = client.start("refund", amount=80)
        while not (asked := run.approvals()):
            time.sleep(0.01)
        assert asked[0].message == "Refund 80 EUR?"
        run.decide("gate", "approved", {"comment": "fine"}, by="ann")
        assert run.result(timeout=30)["data"] == {"comment": "fine"}
        with pytest.raises(Conflict):
            run.decide("gate", "approved")
