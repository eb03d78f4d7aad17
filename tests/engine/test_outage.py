"""What a process says of a store that is away: that it is, now and then that it still is, and that it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from dalsegno import App
from dalsegno.adapters.memory import MemoryBroker, MemoryLedger
from dalsegno.engine import committer, engine
from dalsegno.engine.committer import MIN_QUIET, REMIND_AFTER, SHORT, Committer, Outage, Pause
from dalsegno.engine.upkeep import outbox, timers
from dalsegno.engine.upkeep.timers import Timers
from dalsegno.errors import StoreFull, Unavailable
from dalsegno.model.token import NewToken
from dalsegno.model.transition import Applied, Outcome, Transition
from dalsegno.ports.ledger import Woken
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract.builders import start
from tests.waiting import until

AWAY = Unavailable("nobody answers")


class Told:
    """An outage, its clock, and the lines that it wrote."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "dalsegno.outage")
        self.now = 1000.0
        self.outage = Outage(lambda: self.now)
        self._caplog = caplog

    def fail(self, who: str = "timers", error: Unavailable | StoreFull = AWAY) -> None:
        self.outage.failed(who, f"{who} wait for the store", error)

    def lines(self) -> list[tuple[str, str]]:
        lines = [(record.levelname, record.getMessage()) for record in self._caplog.records]
        self._caplog.clear()
        return lines


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


def test_outage_is_told_once_whoever_waits_and_its_end_too(told: Told) -> None:
    for _ in range(8):
        told.fail("timers")
        told.fail("commits")
        told.now += 1
    assert told.lines() == [("WARNING", "timers wait for the store: nobody answers")]

    told.outage.answered("timers")
    assert told.lines() == [], "commits wait still"
    told.now += 0.2
    told.outage.answered("commits")

    assert told.lines() == [("INFO", "the store answers again, after 8.2 s")]


def test_long_outage_is_called_to_mind_once_a_minute(told: Told) -> None:
    for _ in range(int(2.5 * REMIND_AFTER)):
        told.fail()
        told.now += 1

    assert [line for _, line in told.lines()] == [
        "timers wait for the store: nobody answers",
        "timers wait for the store (for 60 s): nobody answers",
        "timers wait for the store (for 120 s): nobody answers",
    ]


def test_other_reason_is_told_at_once(told: Told) -> None:
    told.fail()
    told.fail(error=StoreFull("no space"))
    told.fail()

    assert [line.rpartition(": ")[2] for _, line in told.lines()] == ["nobody answers", "no space"]


def test_what_fails_again_and_again_while_the_rest_goes_on_does_not_fill_the_log(told: Told) -> None:
    for _ in range(int(REMIND_AFTER)):
        told.fail()
        told.now += 0.1
        told.outage.answered("timers")
        told.now += 0.8

    assert [level for level, _ in told.lines()] == ["WARNING", "INFO"]


@pytest.mark.parametrize("calm", [MIN_QUIET / 2, MIN_QUIET * 2])
def test_another_outage_is_told_as_well(told: Told, calm: float) -> None:
    told.fail()
    told.outage.answered("timers")
    told.lines()
    told.now += calm

    told.fail()
    told.now += SHORT
    told.fail()
    told.outage.answered("timers")

    assert [level for level, _ in told.lines()] == ["WARNING", "INFO"]


def test_nobody_says_that_it_is_over_when_whoever_waited_has_given_up(told: Told) -> None:
    told.fail()
    told.outage.gave_up("timers")
    told.outage.answered("timers")

    assert [level for level, _ in told.lines()] == ["WARNING"]


def test_pauses_grow_and_are_short_again_after_an_answer() -> None:
    pause = Pause(1, 5)
    assert [pause.next() for _ in range(5)] == [1, 2, 4, 5, 5]

    pause.reset()

    assert pause.next() == 1


class FailingLedger(MemoryLedger):
    """Away for so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__(FakeClock())
        self.calls = calls
        self.tries: list[float] = []

    def answer(self) -> None:
        self.tries.append(asyncio.get_running_loop().time())
        if len(self.tries) <= self.calls:
            raise AWAY

    async def wake(self, limit: int = 500) -> Woken:
        self.answer()
        return await super().wake(limit)

    async def commit(self, batch: Sequence[Transition]) -> list[Outcome]:
        self.answer()
        return await super().commit(batch)


async def test_timers_try_again_after_growing_pauses(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    monkeypatch.setattr(timers, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(timers, "LONGEST_PAUSE", 0.2)
    ledger = FailingLedger(4)
    waiting = Timers(ledger, MemoryBroker(ledger))
    waiting.outage = told.outage

    running = asyncio.create_task(waiting.run())
    while len(ledger.tries) < 5:  # noqa: ASYNC110 - a ledger tells nobody
        await asyncio.sleep(0.01)
    running.cancel()

    apart = [after - before for before, after in zip(ledger.tries, ledger.tries[1:], strict=False)]
    at_least = [0.05, 0.1, 0.2, 0.2]
    assert all(found > wanted - 0.01 for found, wanted in zip(apart, at_least, strict=True)), apart
    assert told.lines() == [
        ("WARNING", "timers wait for the store: nobody answers"),
        ("INFO", "the store answers again, after 0.0 s"),
    ]


def test_timers_never_sleep_long_beside_a_store_that_may_be_back() -> None:
    assert timers.LONGEST_PAUSE <= 2


async def test_batch_that_waits_says_so(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    monkeypatch.setattr(committer, "FIRST_PAUSE", 0.01)
    ledger = FailingLedger(3)
    waiting = Committer(ledger, MemoryBroker(ledger), lambda transition, applied: None)
    waiting.outage = told.outage

    outcome = await waiting.commit(start("run", NewToken("t", "", "node", "n", b"")))

    assert isinstance(outcome, Applied)
    assert told.lines() == [
        ("WARNING", "a batch of 1 waits for the store: nobody answers"),
        ("INFO", "the store answers again, after 0.0 s"),
    ]


class Switch:
    """In front of a ledger: nobody answers while it is off."""

    def __init__(self, app: App, patch: pytest.MonkeyPatch) -> None:
        self.is_off = False
        self.asked = {"wake": 0, "outbox": 0}
        ledger = app.engine.stack.ledger
        for name in self.asked:
            patch.setattr(ledger, name, self._before(name, getattr(ledger, name)))

    def _before(self, name: str, call: object) -> object:
        async def switched(*given: object, **named: object) -> object:
            if self.is_off:
                self.asked[name] += 1
                raise AWAY
            return await call(*given, **named)  # type: ignore[operator]

        return switched


def test_whole_process_tells_of_an_outage_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dalsegno")
    for module in (timers, outbox, engine):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)
    app = App("memory:")
    with app.running():
        switch = Switch(app, monkeypatch)
        switch.is_off = True
        app.host.call(look(app))
        until(lambda: switch.asked["wake"] > 2 and switch.asked["outbox"] > 2, "they try again")
        switch.is_off = False

        until(lambda: "answers again" in caplog.text, "the end is told")
    lines = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "dalsegno.outage"
    ]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert "broke" not in caplog.text


async def look(app: App) -> None:
    app.engine.timers.look()
    app.engine.outbox.notice()


async def test_role_that_only_lost_the_store_did_not_break(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("memory:")
    app.engine.outage = told.outage
    tries: list[Exception | None] = [None, ValueError("a bug"), AWAY]
    is_back = False

    async def role() -> None:
        error = tries.pop()
        if error is not None:
            raise error

    supervised = asyncio.create_task(app.engine._supervise("worker", role, lambda: is_back))
    await asyncio.sleep(0.4)
    assert told.lines() == [("WARNING", "the worker waits for the store: nobody answers")]
    is_back = True
    await supervised

    assert [line for _, line in told.lines()] == [
        "the store answers again, after 0.0 s",
        "the worker failed and is restarted",
    ]
