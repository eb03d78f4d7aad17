"""Durations as documents write them."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.lang.durations import BadDuration, duration_text, parse_duration
from tests.rows import rows


@rows(
    ("written", "seconds"),
    [
        (3, 3.0),
        (0.25, 0.25),
        (0, 0.0),
        ("30", 30.0),
        ("30s", 30.0),
        ("500ms", 0.5),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("7d", 604_800.0),
        ("1.5 hours", 5400.0),
        ("2 Minutes", 120.0),
        ("1 week, 1 day", 691_200.0),
        (" 5 sec ", 5.0),
    ],
)
def test_durations(written: Any, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


@rows(
    "written",
    [
        None,
        True,
        [],
        {},
        "",
        " ",
        "s",
        "-1s",
        -1,
        "1x",
        "1h30",
        "1e3s",
        "٣s",
        "1..5s",
        "x" * 1000,
        "9" * 50,
        10**400,
    ],
)
def test_no_durations(written: Any) -> None:
    with pytest.raises(BadDuration):
        parse_duration(written)


@pytest.mark.parametrize(
    "text", ["0s", "20ms", "1s", "1.5s", "1m", "1m30s", "1h", "1h30m", "1d", "7d", "1d1h1m1.001s"]
)
def test_text_of_a_duration_is_read_as_the_same(text: str) -> None:
    assert duration_text(parse_duration(text)) == text


def test_text_of_a_duration_is_rounded_to_milliseconds() -> None:
    assert duration_text(59.99996) == "1m"
    assert duration_text(3.9999) == "4s"
