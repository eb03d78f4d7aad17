"""A schedule's times: which are due, what was missed, and what becomes of it."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.core.schedules.spec import (
    MOST_CATCH_UP,
    Due,
    ScheduleSpec,
    due_times,
    make_spec,
    next_after,
    times_after,
)
from dalsegno.errors import InvalidInput
from tests.rows import rows

NOW = 1_700_006_400.0
"""15 November 2023, 00:00 UTC."""
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
POLICIES = ("skip", "once", "all")


def spec(timing: str = "0 2 * * *", now: float = NOW, **fields: Any) -> ScheduleSpec:
    return make_spec(ScheduleSpec("nightly", "report", **fields), timing, now)


def after_days(timing: str, days: float, **fields: Any) -> Due:
    """What is due after nobody looked for so long."""
    return due_times(spec(timing, **fields), NOW, NOW + days * DAY)


# -- times ----------------------------------------------------------------------------------------------------


def test_interval_counts_from_its_beginning() -> None:
    assert list(islice(times_after(spec("every 15m"), NOW), 3)) == [NOW + 900, NOW + 1800, NOW + 2700]
    assert next_after(spec("every 15m"), NOW + 5 * DAY + 1) == NOW + 5 * DAY + 900


def test_interval_with_a_start_comes_at_the_start_first() -> None:
    made = spec("every 1h", start=NOW + 100)
    assert list(islice(times_after(made, NOW), 2)) == [NOW + 100, NOW + 3700]
    assert next_after(made, NOW + 100) == NOW + 3700


def test_interval_of_fractions_never_comes_twice() -> None:
    found = list(islice(times_after(spec("every 1.1s"), NOW), 1000))
    assert all(earlier < later for earlier, later in pairwise(found))
    assert all(next_after(spec("every 1.1s"), time) == later for time, later in pairwise(found))


def test_no_time_before_the_start_and_none_after_the_end() -> None:
    made = spec("0 * * * *", start=NOW + 5 * HOUR, end=NOW + 7 * HOUR)
    assert list(times_after(made, NOW)) == [NOW + 5 * HOUR, NOW + 6 * HOUR, NOW + 7 * HOUR]


def test_time_zone_decides_when_a_day_begins() -> None:
    assert next_after(spec("0 0 * * *", timezone="Asia/Kolkata"), NOW) == NOW + 18.5 * HOUR


# -- what is due ----------------------------------------------------------------------------------------------


def test_nothing_is_due_before_its_time() -> None:
    assert due_times(spec(), NOW, NOW + HOUR) == Due((), NOW, NOW + 2 * HOUR)


@pytest.mark.parametrize("missed", POLICIES)
def test_punctual_time_fires_whatever_the_policy(missed: Any) -> None:
    two = NOW + 2 * HOUR
    assert due_times(spec(missed=missed), NOW, two + 59) == Due((two,), two, two + DAY)


@pytest.mark.parametrize("missed", POLICIES)
def test_times_close_together_that_are_all_in_time_fire_each(missed: Any) -> None:
    due = due_times(spec("every 10s", missed=missed), NOW, NOW + 45)
    assert due == Due((NOW + 10, NOW + 20, NOW + 30, NOW + 40), NOW + 40, NOW + 50)


def test_missed_times_are_skipped() -> None:
    due = after_days("0 2 * * *", 3.5)
    assert due == Due((), NOW + 3 * DAY + 2 * HOUR, NOW + 4 * DAY + 2 * HOUR, passed=4)


def test_missed_times_are_skipped_but_the_one_of_just_now_is_not() -> None:
    due = due_times(spec(), NOW, NOW + 3 * DAY + 2 * HOUR + 30)
    assert (due.times, due.passed) == ((NOW + 3 * DAY + 2 * HOUR,), 3)


def test_missed_times_are_made_up_once() -> None:
    due = after_days("0 2 * * *", 3.5, missed="once")
    assert due == Due(
        (NOW + 3 * DAY + 2 * HOUR,), NOW + 3 * DAY + 2 * HOUR, NOW + 4 * DAY + 2 * HOUR, passed=3
    )


def test_missed_times_are_all_made_up() -> None:
    due = after_days("0 2 * * *", 3.5, missed="all")
    assert due.times == tuple(NOW + day * DAY + 2 * HOUR for day in range(4))
    assert (due.next, due.passed) == (NOW + 4 * DAY + 2 * HOUR, 0)


def test_grace_decides_what_is_missed() -> None:
    late = NOW + 2 * HOUR + 10 * MINUTE
    assert due_times(spec(grace=600), NOW, late).times == (NOW + 2 * HOUR,)
    assert due_times(spec(grace=599), NOW, late).times == ()
    assert due_times(spec(grace=0), NOW, NOW + 2 * HOUR).times == (NOW + 2 * HOUR,)


@pytest.mark.parametrize("timing", ["* * * * *", "every 1m"])
def test_only_the_newest_are_made_up(timing: str) -> None:
    due = after_days(timing, 30, missed="all", catch_up=10)
    assert due.times == tuple(NOW + 30 * DAY - minute * MINUTE for minute in range(9, -1, -1))
    assert due.next == NOW + 30 * DAY + MINUTE


@pytest.mark.parametrize("timing", ["* * * * *", "every 1s", "0 0 29 2 *", "* * * 1-3 *"])
@pytest.mark.parametrize("missed", POLICIES)
def test_decades_of_neglect_cost_little(timing: str, missed: Any) -> None:
    made = spec(timing, missed=missed)
    began = process_time()
    due = due_times(made, NOW, NOW + 30 * 365 * DAY)
    assert process_time() - began < 5
    assert len(due.times) <= made.catch_up
    assert due.next is not None
    assert due.next > NOW + 30 * 365 * DAY


def test_last_times_before_the_end_fire_and_nothing_follows() -> None:
    made = spec("0 * * * *", end=NOW + 2 * HOUR, missed="all")
    assert due_times(made, NOW, NOW + HOUR).next == NOW + 2 * HOUR
    assert due_times(made, NOW, NOW + 9 * DAY) == Due((NOW + HOUR, NOW + 2 * HOUR), NOW + 2 * HOUR, None)
    assert due_times(made, NOW + 2 * HOUR, NOW + 9 * DAY) == Due((), NOW + 2 * HOUR, None)


def test_clock_that_went_back_fires_nothing_again() -> None:
    two = NOW + 2 * HOUR
    assert due_times(spec(missed="all"), two, NOW - DAY) == Due((), two, two + DAY)


def test_delay_makes_times_due_later_and_keeps_their_order() -> None:
    delays = {NOW + 60: 50.0, NOW + 120: 0.0, NOW + 180: 20.0}
    made = spec("every 1m", jitter=60)
    assert due_times(made, NOW, NOW + 105, delays.__getitem__) == Due((), NOW, NOW + 60)
    assert due_times(made, NOW, NOW + 121, delays.__getitem__).times == (NOW + 60, NOW + 120)


@given(
    timing=st.sampled_from(
        ["* * * * *", "*/7 * * * *", "30 2 * * *", "0 0 1 * *", "every 45s", "every 1h30m", "every 7s"]
    ),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    missed=st.sampled_from(POLICIES),
    catch_up=st.integers(1, 40),
    grace=st.sampled_from([0.0, 60.0, 3600.0]),
    jitter=st.sampled_from([0.0, 30.0, 5000.0]),
    pauses=st.lists(st.one_of(st.floats(0, 200), st.floats(0, 400_000), st.floats(-5000, 0)), max_size=15),
    began=st.sampled_from([NOW, 1_711_800_000.0, 1_729_950_000.0, 1_730_580_000.0]),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_no_time_fires_twice_or_out_of_order_and_catching_up_is_bounded(
    timing: str, zone: str, missed: Any, catch_up: int, grace: float, jitter: float, pauses: list[float], began: float
) -> None:  # fmt: skip
    made = spec(timing, began, timezone=zone, missed=missed, catch_up=catch_up, grace=grace, jitter=jitter)

    def delay(time: float) -> float:
        return (time * 7919) % 101 / 101 * jitter

    now = settled = began
    fired: list[float] = []
    for pause in pauses:
        now += pause
        due = due_times(made, settled, now, delay)
        assert len(due.times) <= catch_up
        assert all(time + delay(time) <= now for time in due.times)
        assert due.settled >= settled
        assert due.next is not None
        assert due.next > due.settled
        assert not due.times or due.times[-1] <= due.settled
        fired += due.times
        settled = due.settled
    assert fired == sorted(set(fired))
    assert all(next_after(made, time - 0.5) == time for time in fired)


@given(steps=st.lists(st.floats(1, 50), min_size=1, max_size=60))
@settings(max_examples=50, deadline=None)
def test_whoever_looks_often_enough_fires_every_time(steps: list[float]) -> None:
    made = spec("every 20s")
    now = settled = NOW
    fired: list[float] = []
    for step in steps:
        now += step
        due = due_times(made, settled, now)
        fired += due.times
        settled = due.settled
    assert fired == [NOW + 20 * number for number in range(1, int((now - NOW) // 20) + 1)]


# -- what is refused ------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "cron": ("0 25 * * *", {}, "bad hour"),
    "interval without a unit": ("every", {}, "has 1 field"),
    "interval that is none": ("every now and then", {}, "the interval 'now and then' is not a duration"),
    "words": ("every day", {}, r"for every day at midnight write '0 0 \* \* \*' \(minute, hour, day of"),
    "an adverb": ("dayly", {}, "for an interval that counts from now write 'every 1d'"),
    "a day of the week": ("every Monday", {}, r"for every Monday at midnight write '0 0 \* \* MON'"),
    "working days": ("every weekday", {}, r"write '0 0 \* \* MON-FRI'"),
    "words without a meaning": ("every now and then", {}, "A cron line has five fields: minute, hour"),
    "a misspelt word": ("@dayly", {}, "the cron word '@dayly' is not known; did you mean '@daily'?"),
    "interval too short": ("every 500ms", {}, "the shortest is one second"),
    "interval too long": ("every 9000w", {}, "longer than a hundred years"),
    "zone": ("@daily", {"timezone": "Mars/Base"}, "no time zone 'Mars/Base'"),
    "missed": ("@daily", {"missed": "never"}, "'missed' of a schedule is one of skip, once, all, not 'never'"),
    "overlap": ("@daily", {"overlap": "queue"}, "'overlap' of a schedule is one of allow, skip"),
    "grace": ("@daily", {"grace": -1.0}, "'grace' of a schedule must be 0 to"),
    "grace that is no number": ("@daily", {"grace": math.nan}, "'grace' of a schedule"),
    "endless grace": ("@daily", {"grace": math.inf}, "'grace' of a schedule"),
    "catch_up": ("@daily", {"catch_up": MOST_CATCH_UP + 1}, "'catch_up' of a schedule must be 1 to 10,000"),
    "jitter": ("@daily", {"jitter": 1e6}, "'jitter' of a schedule must be 0 to 86,400"),
    "version": ("@daily", {"version": "St able"}, "neither a version's number nor an alias"),
    "end before now": ("@daily", {"end": NOW - 1}, "no time is left before its end"),
    "end before the next time": ("@daily", {"end": NOW + 60}, "no time is left before its end"),
    "end that is no time": ("@daily", {"end": math.inf}, "'start or end'"),
}  # fmt: skip


@rows(("timing", "fields", "message"), REFUSED.values(), ids=REFUSED)
def test_bad_schedule_is_refused(timing: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        spec(timing, **fields)


@pytest.mark.parametrize("name", ["", "  ", "a@b", "x" * 201, "a\nb"])
def test_bad_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a schedule"):
        make_spec(ScheduleSpec(name, "report"), "@daily", NOW)


def test_timing_reads_as_it_was_meant() -> None:
    assert spec("every 15m").timing == "every 900s"
    assert spec("EVERY 1h30m").every == 5400
    assert spec("@daily").timing == "0 0 * * *"
    assert spec("@daily", version="3").version == 3
    assert spec("@daily", version="latest").version is None
