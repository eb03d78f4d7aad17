"""The datetime node."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.ports.node import NodeError
from tests.nodes.fakes import run_node


async def iso(**parameters: Any) -> str:
    text: str = (await run_node("datetime", parameters))["iso"]
    return text


async def test_now_in_all_shapes() -> None:
    assert await run_node("datetime", {}) == {
        "iso": "2023-11-14T22:13:20.000Z",
        "unix": 1_700_000_000,
        "parts": {
            "year": 2023, "month": 11, "day": 14, "hour": 22, "minute": 13, "second": 20, "millisecond": 0,
            "weekday": 2, "day_of_year": 318, "week": 46,
        },
        "timezone": "UTC",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"operation": "now", "timezone": "Europe/Berlin"}, "2023-11-14T23:13:20.000+01:00"),
        ({"operation": "now", "timezone": "-05:30"}, "2023-11-14T16:43:20.000-05:30"),
        (
            {"operation": "add", "date": "2024-01-31", "amount": 1, "unit": "month"},
            "2024-02-29T00:00:00.000Z",
        ),
        (
            {"operation": "add", "date": "2024-02-29", "amount": 1, "unit": "years"},
            "2025-02-28T00:00:00.000Z",
        ),
        (
            {"operation": "subtract", "date": "2024-03-31", "amount": 1, "unit": "months"},
            "2024-02-29T00:00:00.000Z",
        ),
        (
            {"operation": "subtract", "date": "2024-01-15", "amount": 13, "unit": "months"},
            "2022-12-15T00:00:00.000Z",
        ),
        (
            {"operation": "add", "date": "2024-01-01", "amount": "1.5", "unit": "days"},
            "2024-01-02T12:00:00.000Z",
        ),
        (
            {"operation": "add", "date": "2024-01-01", "amount": 2, "unit": "weeks"},
            "2024-01-15T00:00:00.000Z",
        ),
        ({"operation": "add", "date": 0, "amount": 1500, "unit": "milliseconds"}, "1970-01-01T00:00:01.500Z"),
        ({"operation": "add", "amount": 90, "unit": "minutes"}, "2023-11-14T23:43:20.000Z"),
        # Clocks in Berlin went forward on 31 March 2024 at 2:00.
        (
            {
                "operation": "add",
                "date": "2024-03-30T12:00",
                "amount": 1,
                "unit": "day",
                "timezone": "Europe/Berlin",
            },
            "2024-03-31T12:00:00.000+02:00",
        ),
        (
            {
                "operation": "add",
                "date": "2024-03-30T12:00",
                "amount": 24,
                "unit": "hours",
                "timezone": "Europe/Berlin",
            },
            "2024-03-31T13:00:00.000+02:00",
        ),
        (
            {
                "operation": "add",
                "date": "2024-03-30T02:30",
                "amount": 1,
                "unit": "day",
                "timezone": "Europe/Berlin",
            },
            "2024-03-31T03:30:00.000+02:00",
        ),
        ({"operation": "parse", "date": "2024-05-01T10:00:00+02:00"}, "2024-05-01T10:00:00.000+02:00"),
        ({"operation": "parse", "date": 1_700_000_000_000}, "2023-11-14T22:13:20.000Z"),
        (
            {"operation": "parse", "date": "01.02.2024 08:30", "format": "%d.%m.%Y %H:%M"},
            "2024-02-01T08:30:00.000Z",
        ),
        (
            {"operation": "parse", "date": "01.02.2024", "format": "%d.%m.%Y", "timezone": "Asia/Tokyo"},
            "2024-02-01T00:00:00.000+09:00",
        ),
        (
            {"operation": "format", "date": "2024-05-01T00:00:00Z", "timezone": "UTC"},
            "2024-05-01T00:00:00.000Z",
        ),
    ],
)
async def test_operations(parameters: dict[str, Any], expected: str) -> None:
    assert await iso(**parameters) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%d/%m/%Y", "01/05/2024"),
        ("%H:%M %Z", "02:00 CEST"),
        (None, "2024-05-01T02:00:00+0200"),
        ("100%%", "100%"),
    ],
)
async def test_format(pattern: str | None, expected: str) -> None:
    parameters = {"operation": "format", "date": "2024-05-01T00:00:00Z", "timezone": "Europe/Berlin"}
    output = await run_node("datetime", parameters | ({"format": pattern} if pattern else {}))
    assert output["formatted"] == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"operation": "parse", "date": "soon"}, "'date' should be a point in time"),
        ({"operation": "parse", "date": None}, "'date' should be a point in time"),
        ({"operation": "parse", "date": "x", "format": "%Y"}, "does not fit 'format'"),
        ({"operation": "parse", "date": "x" * 500, "format": "%Y"}, "up to 200 characters"),
        ({"operation": "parse", "date": "2024", "format": "%Q"}, "does not fit 'format'"),
        ({"operation": "add", "amount": 1.5, "unit": "months"}, "whole number"),
        ({"operation": "add", "amount": 9000, "unit": "years"}, "outside the years"),
        ({"operation": "subtract", "amount": 1e15, "unit": "days"}, "outside the years"),
        ({"operation": "add", "amount": 1e300, "unit": "seconds"}, "outside the years"),
        ({"operation": "format", "format": "%999999999d"}, "field width"),
        ({"operation": "format", "format": "%_99999999d"}, "field width"),
        (
            {"operation": "add", "date": "9999-12-31T23:59:59Z", "amount": 1, "timezone": "Asia/Tokyo"},
            "outside",
        ),
    ],
)
async def test_what_cannot_be_done_fails_for_good(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(NodeError, match=message) as caught:
        await run_node("datetime", parameters)
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("INVALID_TIME", False)
