"""Ids of adopted executions are known for 48 hours after the end, also where retention has removed the execution."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.wire.intake import ADOPTED_IDS_KEPT
from dalsegno.testing.clock import FakeClock
from tests.servers.sqlite import empty_sqlite
from tests.wire.documents import LINEAR, WAIT
from tests.wire.master import Master, message

SETTINGS = EngineSettings(lease_seconds=1e9, heavy_processes=0, grace=1.0)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_adopted_id_outlives_its_execution(store: str, tmp_path: Path) -> None:
    clock = FakeClock()
    url = "memory:" if store == "memory" else empty_sqlite(tmp_path / "store.db")
    master = await Master.open(url, SETTINGS, clock)
    first = message("e1", "start", LINEAR)
    await master.send(first)
    await master.completion("e1")
    archive, ids = master.engine.stack.archive, master.engine.intake.ids

    await ids.forget_old()  # notes the end
    clock.advance(3600)
    await master.until_removed(archive, clock.now() + 1)
    assert await archive.outline("e1") is None

    assert (await master.send(first)).outcome == "duplicate"
    assert (await master.send(message("e1", "b", LINEAR, from_node="a"))).outcome == "duplicate"

    clock.advance(ADOPTED_IDS_KEPT - 3600)
    assert await ids.forget_old() == 0
    clock.advance(1)
    assert await ids.forget_old() == 1
    assert (await master.send(first)).outcome == "applied"
    await master.close()


async def test_an_id_is_kept_as_long_as_its_execution_runs() -> None:
    clock = FakeClock()
    master = await Master.open("memory:", SETTINGS, clock)
    await master.send(message("e1", "start", WAIT))
    ids = master.engine.intake.ids
    await ids.forget_old()
    clock.advance(10 * ADOPTED_IDS_KEPT)
    assert await ids.forget_old() == 0
    assert await ids.has("e1")
    await master.close()


async def test_an_ended_execution_takes_no_message(tmp_path: Path) -> None:
    master = await Master.open(empty_sqlite(tmp_path / "store.db"))
    execution = "e1"
    await master.send(message(execution, "start", LINEAR))
    await master.completion(execution)
    told = len(master.publisher.messages)
    for fields in ({}, {"from_node": "a"}, {"accumulated_context": None}):
        assert (await master.send(message(execution, "b", LINEAR, **fields))).outcome == "duplicate"
    assert len(master.publisher.messages) == told
    await master.close()
