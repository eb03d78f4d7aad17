"""A workflow that measures its waits by the local clock is warned of at import; one that only writes it down is not."""

from __future__ import annotations

import datetime as dt
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dalsegno import DalSegnoWarning, now, race, signal, sleep
from dalsegno.lang.python import DurableTask, compile_workflow


@DurableTask
async def mail(text: str) -> None:
    return None


async def deadline_in_a_loop(patience: float) -> str:
    end = datetime.now(UTC) + timedelta(seconds=patience)
    while True:
        if await race(signal("decision"), sleep(end)) is not None:
            return "decided"
        if datetime.now(UTC) >= end:
            return "expired"
        await mail("please decide")


async def loop_head(end: float) -> None:
    while time.time() < end:
        await sleep(1)


async def elapsed(limit: float) -> bool:
    began = time.monotonic()
    await mail("slow")
    return time.monotonic() - began > limit


async def in_a_variable(end: dt.datetime) -> bool:
    await sleep(1)
    at = dt.datetime.now(dt.UTC)
    left = (end - at).total_seconds()
    return left <= 0


async def imported_inside(end: float) -> bool:
    from time import time as seconds

    await sleep(1)
    return end < seconds()


async def nested(end: float) -> None:
    async def remind() -> bool:
        await mail("remind")
        return time.time() > end

    await remind()


WARNED: list[tuple[Callable[..., Any], str]] = [
    (deadline_in_a_loop, "datetime.now()"),
    (loop_head, "time.time()"),
    (elapsed, "time.monotonic()"),
    (in_a_variable, "dt.datetime.now()"),
    (imported_inside, "seconds()"),
    (nested, "time.time()"),
]


async def only_logged() -> dict[str, Any]:
    began = datetime.now(UTC)
    await mail(f"began at {began}")
    took = datetime.now(UTC) - began
    await mail(f"took {took} until {datetime.now(UTC):%H:%M}")
    return {"took": took.total_seconds(), "at": time.time()}


async def compared_before_any_await(end: datetime) -> str:
    if datetime.now(UTC) > end:
        return "too late"
    await mail("in time")
    return "sent"


async def moment_of_before(end: datetime) -> bool:
    began = datetime.now(UTC)
    await mail("began")
    return began > end


async def part_of_a_date() -> bool:
    await sleep(1)
    return datetime.now(UTC).hour < 9


async def own_clock(end: datetime) -> bool:
    await sleep(1)
    return now() > end


class Clock:
    def now(self) -> float:
        return 0.0


async def another_now(end: float) -> bool:
    datetime = Clock()
    await sleep(1)
    return datetime.now() > end


SILENT = [only_logged, compared_before_any_await, moment_of_before, part_of_a_date, own_clock, another_now]


@pytest.mark.parametrize(("workflow", "clock"), WARNED, ids=lambda value: getattr(value, "__name__", ""))
def test_a_comparison_of_the_local_clock_after_an_await_is_warned_of(
    workflow: Callable[..., Any], clock: str
) -> None:
    with pytest.warns(DalSegnoWarning, match="compares") as caught:
        compile_workflow(workflow)
    [told] = caught
    assert f"workflow '{workflow.__name__}' compares '{clock}' after an await" in str(told.message)
    assert "now() of dalsegno" in str(told.message)
    assert Path(told.filename) == Path(__file__)
    line = Path(__file__).read_text().splitlines()[told.lineno - 1]
    assert any(sign in line for sign in ("<", ">")), line


@pytest.mark.parametrize("workflow", SILENT, ids=lambda value: value.__name__)
def test_other_uses_of_the_time_are_not(workflow: Callable[..., Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compile_workflow(workflow)
    assert caught == []


def test_it_is_told_once_and_can_be_silenced() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            compile_workflow(elapsed)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DalSegnoWarning)
        compile_workflow(elapsed)
