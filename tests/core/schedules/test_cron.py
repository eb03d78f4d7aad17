"""Cron lines: the fields, the errors, and what happens when clocks change."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.core.schedules.cron import WORDS, read_cron, read_zone, roughly_before, upcoming
from dalsegno.errors import InvalidInput
from tests.effort import examples
from tests.rows import rows


def local(line: str, zone: str, after: str, count: int) -> list[str]:
    """The next times in the zone, as one reads them."""
    place = read_zone(zone)
    start = datetime.fromisoformat(after).replace(tzinfo=place).timestamp()
    found = islice(upcoming(read_cron(line), place, start), count)
    return [datetime.fromtimestamp(time, place).isoformat(timespec="minutes") for time in found]


TIMES = {
    "every day at two": ("0 2 * * *", "UTC", "2024-01-31T03:00", ["2024-02-01T02:00", "2024-02-02T02:00"]),
    "steps": ("*/20 * * * *", "UTC", "2024-01-01T00:05", ["2024-01-01T00:20", "2024-01-01T00:40", "2024-01-01T01:00"]),
    "a range of days": ("0 9 * * MON-FRI", "UTC", "2024-03-01T10:00", ["2024-03-04T09:00", "2024-03-05T09:00"]),
    "small letters": ("0 9 * jul sun", "UTC", "2024-07-01T00:00", ["2024-07-07T09:00", "2024-07-14T09:00"]),
    "Sunday is 0 and 7": ("0 0 * * 7", "UTC", "2024-07-01T00:00", ["2024-07-07T00:00"]),
    "either day will do": ("0 0 13 * FRI", "UTC", "2024-09-01T00:00", ["2024-09-06T00:00", "2024-09-13T00:00"]),
    "both where one has a star": ("0 0 */2 * FRI", "UTC", "2024-09-01T00:00", ["2024-09-13T00:00", "2024-09-27T00:00"]),
    "the last day of a month": ("0 0 L * *", "UTC", "2024-02-01T00:00", ["2024-02-29T00:00", "2024-03-31T00:00"]),
    "the last working day": ("0 0 LW * *", "UTC", "2024-03-01T00:00", ["2024-03-29T00:00", "2024-04-30T00:00"]),
    "the last Friday": ("0 0 * * 5L", "UTC", "2024-03-01T00:00", ["2024-03-29T00:00", "2024-04-26T00:00"]),
    "the second Monday": ("0 0 * * MON#2", "UTC", "2024-03-01T00:00", ["2024-03-11T00:00", "2024-04-08T00:00"]),
    "leap days": ("0 12 29 2 *", "UTC", "2024-03-01T00:00", ["2028-02-29T12:00", "2032-02-29T12:00"]),
    "the 31st": ("0 0 31 * *", "UTC", "2024-03-31T00:00", ["2024-05-31T00:00", "2024-07-31T00:00"]),
    "@daily": ("@daily", "UTC", "2024-03-01T00:00", ["2024-03-02T00:00", "2024-03-03T00:00"]),
    "@Hourly": ("@Hourly", "UTC", "2024-03-01T00:30", ["2024-03-01T01:00"]),
    "@weekly": ("@weekly", "UTC", "2024-03-01T00:00", ["2024-03-03T00:00"]),
    "@monthly": ("@monthly", "UTC", "2024-03-01T00:00", ["2024-04-01T00:00"]),
    "@yearly": ("@yearly", "UTC", "2024-03-01T00:00", ["2025-01-01T00:00"]),
    "spaces anywhere": ("  0   2 *  * * ", "UTC", "2024-01-31T03:00", ["2024-02-01T02:00"]),
}  # fmt: skip


@rows(("line", "zone", "after", "expected"), TIMES.values(), ids=TIMES)
def test_line_comes_round(line: str, zone: str, after: str, expected: list[str]) -> None:
    assert [time.removesuffix("+00:00") for time in local(line, zone, after, len(expected))] == expected


CLOCK_CHANGES = {
    "Berlin, spring: a skipped time comes at the first moment after": (
        "30 2 * * *", "Europe/Berlin", "2024-03-30T03:00",
        ["2024-03-31T03:00+02:00", "2024-04-01T02:30+02:00"],
    ),
    "Berlin, spring: several skipped times come once": (
        "15,45 2 * * *", "Europe/Berlin", "2024-03-30T03:00",
        ["2024-03-31T03:00+02:00", "2024-04-01T02:15+02:00"],
    ),
    "Berlin, autumn: a repeated time comes once, at the first pass": (
        "30 2 * * *", "Europe/Berlin", "2024-10-26T03:00",
        ["2024-10-27T02:30+02:00", "2024-10-28T02:30+01:00"],
    ),
    "Berlin, autumn: each hour that passes": (
        "30 * * * *", "Europe/Berlin", "2024-10-27T01:00",
        ["2024-10-27T01:30+02:00", "2024-10-27T02:30+02:00", "2024-10-27T02:30+01:00", "2024-10-27T03:30+01:00"],
    ),
    "Berlin, spring: each hour that passes": (
        "30 * * * *", "Europe/Berlin", "2024-03-31T01:00",
        ["2024-03-31T01:30+01:00", "2024-03-31T03:30+02:00"],
    ),
    "New York, spring": (
        "30 2 * * *", "America/New_York", "2024-03-09T03:00",
        ["2024-03-10T03:00-04:00", "2024-03-11T02:30-04:00"],
    ),
    "New York, autumn": (
        "30 1 * * *", "America/New_York", "2024-11-02T02:00",
        ["2024-11-03T01:30-04:00", "2024-11-04T01:30-05:00"],
    ),
    "Beirut, spring: midnight is skipped": (
        "0 0 * * *", "Asia/Beirut", "2024-03-30T01:00",
        ["2024-03-31T01:00+03:00", "2024-04-01T00:00+03:00"],
    ),
    "half an hour, Lord Howe": (
        "15 2 * * *", "Australia/Lord_Howe", "2024-10-05T03:00",
        ["2024-10-06T02:30+11:00", "2024-10-07T02:15+11:00"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "zone", "after", "expected"), CLOCK_CHANGES.values(), ids=CLOCK_CHANGES)
def test_line_comes_round_when_clocks_change(line: str, zone: str, after: str, expected: list[str]) -> None:
    assert local(line, zone, after, len(expected)) == expected


def test_time_of_the_first_pass_is_over_in_the_second_pass_of_a_repeated_hour() -> None:
    berlin = read_zone("Europe/Berlin")
    second_pass = datetime(2024, 10, 27, 2, 10, tzinfo=berlin, fold=1).timestamp()
    assert next(upcoming("45 2 * * *", berlin, second_pass)) > second_pass + 86_000


BAD = {
    "nothing": ("", "write five fields"),
    "one word": ("daily", r"every day at midnight write .0 0 \* \* \*."),
    "four fields": ("0 2 * *", "has 4 fields; write five"),
    "seconds": ("0 0 2 * * *", "6 fields: there are none for seconds or years"),
    "seven fields": ("0 0 2 * * * 2030", "has 7 fields"),
    "minute": ("60 * * * *", r"bad minute \(field 1\): '60' is not possible; it takes 0 to 59"),
    "hour": ("0 24 * * *", r"bad hour \(field 2\): '24'.*0 to 23"),
    "day of the month": ("0 0 0 * *", r"bad day of the month \(field 3\): '0'.*1 to 31"),
    "month": ("0 0 1 13 *", r"bad month \(field 4\): '13'.*JAN to DEC"),
    "name of a month": ("0 0 1 JANUARY *", r"bad month \(field 4\): 'JANUARY'"),
    "day of the week": ("0 0 * * 8", r"bad day of the week \(field 5\): '8'.*Sunday"),
    "one of a list": ("0 1,2,77,3 * * *", r"bad hour \(field 2\): '77'"),
    "empty place in a list": ("1,,2 * * * *", r"bad minute \(field 1\): there is nothing before or after a ','"),
    "falling range": ("0 22-2 * * *", "a range must rise: write '22-23,0-2'"),
    "falling range of days": ("0 0 * * SAT-SUN", "write 'SAT,SUN'"),
    "falling range of months": ("0 0 1 NOV-FEB *", "write 'NOV-DEC,JAN-FEB'"),
    "step of nothing": ("*/0 * * * *", "a step is at least 1"),
    "question mark": ("0 0 ? * MON", r"field 3\): '\?' is not possible, '\?' is written '\*' here"),
    "negative": ("-5 * * * *", "bad minute"),
    "fifth weekday but one": ("0 0 * * MON#6", "bad day of the week"),
    "a word that is none": ("@reboot", "'@reboot' is not known; there are @hourly"),
    "never": ("0 0 30 2 *", "never matches"),
    "never, more hidden": ("* * */20 * 1L", "never matches"),
    "digits of another script": ("٣ * * * *", "cannot be used"),
    "far too long": ("1," * 5000 + "1 * * * *", "cannot be used"),
    "a number of many digits": ("9" * 180 + " * * * *", "bad minute"),
}  # fmt: skip


@rows(("line", "message"), BAD.values(), ids=BAD)
def test_bad_line_is_refused_with_its_field(line: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_cron(line)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("europe/berlin", "did you mean 'Europe/Berlin'"),
        ("Europe", "there is no time zone 'Europe'"),
        ("+02:00", "write its IANA name"),
        ("../../etc/passwd", "there is no time zone"),
        ("a\0b", "there is no time zone"),
        ("x" * 5000, "there is no time zone"),
        ("", "there is no time zone"),
    ],
)
def test_bad_zone_is_refused_with_advice(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_zone(name)


@given(st.one_of(st.text(max_size=40), st.text("0123456789*/,-#LWMONSUNJA@? ", max_size=40)))
@examples(400)
def test_any_text_is_a_line_or_refused_in_our_own_words(line: str) -> None:
    try:
        found = read_cron(line)
    except InvalidInput:
        return
    assert read_cron(found) == found
    assert next(upcoming(found, read_zone("UTC"), 1_700_000_000.0), None) is not None


def fields() -> st.SearchStrategy[str]:
    minute = st.sampled_from(["*", "0", "30", "*/7", "5,50", "10-20"])
    hour = st.sampled_from(["*", "2", "1-3", "*/6", "0,23"])
    day = st.sampled_from(["*", "1", "13", "L", "*/2"])
    month = st.sampled_from(["*", "3", "10,11", "2"])
    weekday = st.sampled_from(["*", "SUN", "MON-FRI", "5L", "SAT#1"])
    return st.tuples(minute, hour, day, month, weekday).map(" ".join)


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Beirut", "Asia/Kolkata"])
MOMENTS = st.floats(1_600_000_000, 1_800_000_000)


@given(fields(), ZONES, MOMENTS)
@examples(200)
def test_times_rise_and_do_not_depend_on_where_one_starts(line: str, zone: str, moment: float) -> None:
    place = read_zone(zone)
    found = list(islice(upcoming(line, place, moment), 12))
    assert all(earlier < later for earlier, later in pairwise([moment, *found]))
    for earlier, later in pairwise(found):
        between = (earlier + later) / 2
        assert next(upcoming(line, place, between)) == later
        assert next(upcoming(line, place, earlier)) == later


@given(fields(), ZONES, MOMENTS, st.integers(1, 30))
@examples(200)
def test_walking_back_leaves_enough_times_in_between(line: str, zone: str, moment: float, count: int) -> None:
    place = read_zone(zone)
    start = roughly_before(line, place, moment, count)
    assert start < moment
    between = 0
    for time in upcoming(line, place, start):
        if time > moment or between > 100_000:
            break
        between += 1
    assert between >= count


def test_words_are_lines() -> None:
    assert all(read_cron(line) == line for line in WORDS.values())


def test_beyond_the_calendar_no_time_comes() -> None:
    late = (datetime.fromisoformat("9999-12-31T23:00:00+00:00") + timedelta(minutes=58)).timestamp()
    assert list(islice(upcoming("0 0 1 1 *", read_zone("UTC"), late), 1)) == []
    assert list(islice(upcoming("* * * * *", read_zone("UTC"), 1e18), 1)) == []
