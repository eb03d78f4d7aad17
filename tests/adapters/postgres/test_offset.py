"""By how much the database's clock differs: answers come late, clocks are set."""

from __future__ import annotations

import time

import pytest

from dalsegno.adapters.postgres import PostgresStore
from dalsegno.adapters.postgres.store import WINDOW, DatabaseClock

AHEAD = 100.0


class Moment:
    def __init__(self) -> None:
        self.seconds = 1000.0
        self.offset = DatabaseClock(lambda: self.seconds)

    def answer(self, after: float, ahead: float = AHEAD) -> float:
        """The database wrote it, and it arrives so many seconds later."""
        written = self.seconds + ahead
        self.seconds += after
        self.offset.saw(written)
        return self.offset.seconds


def test_one_late_answer_does_not_set_the_clock_back() -> None:
    moment = Moment()
    assert moment.answer(after=0.25) == AHEAD - 0.25

    assert moment.answer(after=0.0) == AHEAD
    assert moment.answer(after=0.5) == AHEAD
    assert moment.answer(after=0.125) == AHEAD


def test_a_good_look_counts_beyond_its_window_and_not_for_ever() -> None:
    moment = Moment()
    moment.answer(after=0.0)

    moment.seconds += WINDOW
    assert moment.answer(after=0.5) == AHEAD
    moment.seconds += WINDOW
    assert moment.answer(after=0.5) == AHEAD - 0.5


def test_a_look_from_long_ago_counts_for_nothing() -> None:
    moment = Moment()
    moment.answer(after=0.0)
    moment.seconds += 5 * WINDOW

    assert moment.answer(after=0.25) == AHEAD - 0.25


def test_a_clock_that_is_set_back_is_followed() -> None:
    moment = Moment()
    moment.answer(after=0.0)

    moment.seconds += WINDOW
    moment.answer(after=0.0, ahead=-5.0)
    moment.seconds += WINDOW
    assert moment.answer(after=0.0, ahead=-5.0) == -5.0


def test_a_clock_that_is_set_forward_is_followed_at_once() -> None:
    moment = Moment()
    moment.answer(after=0.0)

    assert moment.answer(after=0.0, ahead=3 * AHEAD) == 3 * AHEAD


def test_between_answers_the_clock_goes_on() -> None:
    moment = Moment()
    moment.answer(after=0.0)
    moment.seconds += 7.0

    assert moment.offset.now() == moment.seconds + AHEAD


@pytest.mark.parametrize("by", [3600.0, -3600.0])
async def test_setting_this_machines_clock_changes_nothing(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, by: float
) -> None:
    store = await PostgresStore.open(postgres_url)
    for _ in range(10):
        [(seen,)] = await store.fetch("look.now")
        store.saw(seen)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + by)

    at_once = store.now()
    [(seen,)] = await store.fetch("look.now")
    store.saw(seen)

    assert abs(at_once - seen) < 10
    assert abs(store.now() - seen) < 10
    await store.close()
