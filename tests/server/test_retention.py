"""Retention by state: what is told to go goes, in chunks; everything else stays."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.app import App
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.upkeep import reconciler
from dalsegno.engine.upkeep.reconciler import read_retention
from dalsegno.errors import BadConfiguration
from dalsegno.model.execution import EndState
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.testing import FakeClock

FAILS = {
    "name": "fails",
    "nodes": [{"id": "f", "type": "task", "parameters": {"task": "nowhere to be found"}}],
}


def test_seconds_for_all_or_by_state() -> None:
    assert read_retention(None) == {}
    assert read_retention(60) == {60.0: ("CANCELLED", "COMPLETED", "FAILED")}
    assert read_retention({"COMPLETED": 60, "FAILED": 3600, "CANCELLED": 60}) == {
        60.0: ("COMPLETED", "CANCELLED"),
        3600.0: ("FAILED",),
    }


@pytest.mark.parametrize("wrong", [-1, {"RUNNING": 5}, {"FAILED": "a day"}, {"FAILED": True}, float("inf")])
def test_what_makes_no_sense_is_told(wrong: object) -> None:
    with pytest.raises(BadConfiguration, match="retention"):
        read_retention(wrong)  # type: ignore[arg-type]


async def test_each_state_is_kept_for_its_own_time(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "CHUNK", 2)
    clock = FakeClock()
    kept: dict[EndState, float] = {"COMPLETED": 60, "CANCELLED": 3600}
    settings = EngineSettings(retention=kept, reconcile_every=0.02)
    app = App(store_url, settings=settings, clock=clock)

    async with app.running():
        await app.adeploy_script("return 1", "completes")
        await app.adeploy_script('throw "no luck"', "fails")
        await app.adeploy_script('await Signal.next("go")', "waits")
        for name in ("completes",) * 5 + ("fails",):
            await app.client.wait(await app.client.start(name))
        cancelled = await app.client.start("waits")
        await app.client.cancel(cancelled)
        await app.client.wait(cancelled)
        await app.client.start("waits")

        clock.advance(120)
        assert await _left(app, 3) == ["fails", "waits", "waits"]
        clock.advance(7200)
        assert await _left(app, 2) == ["fails", "waits"]


async def _left(app: App, count: int) -> list[str]:
    for _ in range(500):
        found = [view.workflow for view in await app.client.executions(ExecutionFilter())]
        if len(found) <= count:
            break
        await asyncio.sleep(0.01)
    return sorted(found)
