"""Reading how executions ended: many at once, none forgotten, and each fault told to those whom it concerns."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from dalsegno.engine.operations import endings as ending_reader
from dalsegno.engine.operations.endings import Answer, EndingReader
from dalsegno.engine.process import in_background
from dalsegno.errors import NotFound, StoreCorrupt, Unavailable
from dalsegno.model.execution import Ending, ExecutionState
from tests.waiting import come_about

NAMES = [f"run-{number}" for number in range(23)]
DONE = Ending("COMPLETED", b"1", None)


class ScriptedArchive:
    """Of everything it knows whether it has ended; ``faults`` are raised by whoever reads that execution."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ended = set(NAMES)
        self.running: set[str] = set()
        self.faults: dict[str, Exception] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def endings(self, executions: Sequence[str]) -> dict[str, Ending]:
        self.asked.append(list(executions))
        await self.gate.wait()
        for execution in executions:
            if execution in self.faults:
                raise self.faults[execution]
        return {execution: DONE for execution in executions if execution in self.ended}

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        return {execution: "RUNNING" for execution in executions if execution in self.running}


class Scene:
    def __init__(self) -> None:
        self.archive = ScriptedArchive()
        self.awaited = set(NAMES)
        self.told: dict[str, Answer] = {}
        archive: Any = self.archive
        self.reader = EndingReader(archive, self.awaited.__contains__, self._tell)

    def _tell(self, execution: str, answer: Answer) -> None:
        self.awaited.discard(execution)
        self.told[execution] = answer

    def ask(self, *executions: str) -> None:
        for execution in executions:
            self.reader.ask(execution)

    async def all_are_told(self) -> None:
        await come_about(lambda: not self.awaited, "everybody was told")


async def test_a_few_at_a_time_until_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending_reader, "READ_AT_ONCE", 5)
    scene = Scene()

    scene.ask(*NAMES)
    await scene.all_are_told()

    assert [len(asked) for asked in scene.archive.asked] == [5, 5, 5, 5, 3]
    assert set(scene.told.values()) == {DONE}


async def test_what_is_named_during_a_reading_is_read_next() -> None:
    scene = Scene()
    scene.archive.gate.clear()
    scene.ask(*NAMES[:2])
    await come_about(lambda: scene.archive.asked, "a reading")

    scene.ask(*NAMES)
    scene.archive.gate.set()
    await scene.all_are_told()

    assert scene.archive.asked == [NAMES[:2], NAMES[2:]]  # nobody waits any more for the first two


async def test_nobody_is_asked_about_what_nobody_waits_for() -> None:
    scene = Scene()
    scene.awaited.clear()

    scene.ask("run-1")
    await asyncio.sleep(0)

    assert scene.archive.asked == []


@pytest.mark.parametrize("fault", [StoreCorrupt("a page is broken"), ValueError("no such thing")])
async def test_what_cannot_be_read_is_told_those_alone_who_wait_for_it(fault: Exception) -> None:
    scene = Scene()
    scene.archive.faults["run-7"] = fault

    scene.ask(*NAMES)
    await scene.all_are_told()

    assert scene.told == {name: fault if name == "run-7" else DONE for name in NAMES}
    assert len(scene.archive.asked) < len(NAMES) / 2


async def test_a_store_that_is_away_tells_nobody_anything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "dalsegno.endings")
    scene = Scene()
    scene.archive.faults["run-7"] = Unavailable("the store is away")
    scene.ask(*NAMES)
    await come_about(
        lambda: "cannot read the endings of executions (the store is away)" in caplog.text, "a warning"
    )
    assert not scene.told

    scene.archive.faults.clear()
    scene.ask(*NAMES)
    await scene.all_are_told()

    assert set(scene.told.values()) == {DONE}


async def test_one_that_is_gone_is_told_apart_from_one_that_has_not_ended() -> None:
    """As after a failover to a standby that had not heard of everything."""
    scene = Scene()
    scene.archive.ended -= {"run-1", "run-2"}
    scene.archive.running = {"run-2"}

    scene.ask(*NAMES)
    await come_about(lambda: len(scene.awaited) == 1, "all but one were told")

    assert scene.awaited == {"run-2"}
    assert isinstance(scene.told["run-1"], NotFound)
    assert "there is no execution run-1 in this store" in str(scene.told["run-1"])


async def test_a_reading_that_was_called_off_does_not_keep_others_from_it() -> None:
    scene = Scene()
    scene.ask("run-1")
    await scene.reader.close()  # before its first step

    scene.ask("run-2")
    await come_about(lambda: len(scene.told) == 2, "both were told")


async def test_background_work_does_not_belong_to_who_began_it() -> None:
    mine: contextvars.ContextVar[str] = contextvars.ContextVar("mine", default="nobody's")
    mine.set("the caller's")
    seen: list[str] = []

    async def look() -> None:
        seen.append(mine.get())

    await in_background(look())

    assert seen == ["nobody's"]
