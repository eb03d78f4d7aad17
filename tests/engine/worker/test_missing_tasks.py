"""Since when nobody has a task, and how long what needs it sleeps."""

from __future__ import annotations

import pytest

from dalsegno.engine.worker import capabilities
from dalsegno.engine.worker.capabilities import (
    FIRST_PAUSE,
    FRESH,
    LONGEST_PAUSE,
    MissingTasks,
    pause_before_next_try,
)
from dalsegno.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def missing(clock: FakeClock) -> MissingTasks:
    return MissingTasks(clock.now)


def test_that_nobody_has_it_is_believed_for_a_moment(missing: MissingTasks, clock: FakeClock) -> None:
    assert missing.known_for("task:price", "default") is None
    assert missing.note("task:price", "default") == 0.0
    clock.advance(FRESH / 2)
    assert missing.known_for("task:price", "default") == pytest.approx(FRESH / 2)
    assert missing.known_for("task:price", "shop") is None
    clock.advance(FRESH / 2)
    assert missing.known_for("task:price", "default") is None


def test_it_is_missing_since_it_was_missed_first(missing: MissingTasks, clock: FakeClock) -> None:
    missing.note("task:price", "default")
    clock.advance(100)
    assert missing.note("task:price", "default") == pytest.approx(100)
    missing.found("task:price", "default")
    assert missing.note("task:price", "default") == 0.0


def test_not_all_names_are_remembered(missing: MissingTasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "REMEMBERED", 2)
    for name in "abc":
        missing.note(name, "default")
    assert [missing.known_for(name, "default") for name in "abc"] == [None, 0.0, 0.0]


def test_the_longer_it_is_missing_the_longer_are_the_pauses() -> None:
    pauses = [pause_before_next_try(seconds, "t") for seconds in (0, 10, 100, 10_000)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= FIRST_PAUSE * 1.25
    assert pauses[-1] <= LONGEST_PAUSE * 1.25


def test_many_tokens_do_not_come_back_at_once() -> None:
    pauses = {round(pause_before_next_try(10_000, f"token {number}")) for number in range(1000)}
    assert len(pauses) > LONGEST_PAUSE * 0.45
