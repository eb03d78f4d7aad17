"""Which promise came first: as recorded, and among timers by their times."""

from __future__ import annotations

import pytest

from dalsegno.engine.scripts.advance import Job, follow
from dalsegno.lang import Machine, Ok, compile

LATE, EARLY, TASK = "p0", "p1", "p2"
SOURCE = """
const late = Timer.delay(30), early = Timer.delay(10), task = Task.run("any", null)
const seen = []
{}
return seen
"""
BOTH_TIMERS = "seen.push((await Promise.race_kv({late, early})).key)"
LATE_OR_TASK = "seen.push((await Promise.race_kv({late, task})).key)"
ALL_THREE = "seen.push((await Promise.race_kv({late, early, task})).key)"


def _seen(awaits: str, recorded: tuple[str, ...], *, now: float = 60.0) -> list[str]:
    machine = Machine.start(compile(SOURCE.replace("{}", awaits), "test"), None, now=0.0)
    assert machine.status == "suspended"
    follow(machine, Job("e", 1, len(recorded), now, {name: Ok(name) for name in recorded}), None)
    assert machine.status == "completed", machine.error
    return machine.result  # type: ignore[no-any-return]


@pytest.mark.parametrize("recorded", [(), (LATE,), (EARLY,), (LATE, EARLY), (EARLY, LATE)])
def test_a_race_of_timers_is_decided_by_their_times_and_not_by_who_was_recorded_first(
    recorded: tuple[str, ...],
) -> None:
    assert _seen(BOTH_TIMERS, recorded) == ["early"]


def test_of_timers_due_at_the_same_moment_the_one_made_first_wins() -> None:
    awaits = BOTH_TIMERS.replace("late, early", "a: Timer.delay(5), b: Timer.delay(5)")
    assert _seen(awaits, ("p4", "p3")) == ["a"]


def test_tasks_keep_their_place_between_timers() -> None:
    assert _seen(ALL_THREE, (TASK, LATE, EARLY)) == ["task"]
    assert _seen(ALL_THREE, (LATE, TASK, EARLY)) == ["early"]


def test_the_order_of_timers_in_one_await_is_none_of_the_next_ones_business() -> None:
    """Else a machine that stayed in memory would see another order than one that was stored between the two."""
    recorded = (LATE, TASK, EARLY)
    assert _seen(LATE_OR_TASK, recorded) == ["late"]
    assert _seen(f"{BOTH_TIMERS}\n{LATE_OR_TASK}\n" * 3, recorded) == ["early", "late"] * 3
