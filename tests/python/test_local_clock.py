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


def is_over(end: float) -> bool:
    return time.time() >= end


def is_far_over(end: float) -> bool:
    return is_over(end - 60) or is_far_over(end + 1)


def local_now() -> datetime:
    at = datetime.now(UTC)
    return at.replace(microsecond=0)


async def by_a_function(end: float) -> None:
    while not is_over(end):
        await sleep(1)


async def by_a_function_of_a_function(end: float) -> bool:
    await sleep(1)
    return is_far_over(end)


async def by_a_nested_function(end: float) -> None:
    async def remind() -> bool:
        await mail("remind")
        return is_over(end)

    await remind()


async def by_a_function_that_returns_it(end: datetime) -> bool:
    await sleep(1)
    return local_now() > end


WARNED: list[tuple[Callable[..., Any], str]] = [
    (deadline_in_a_loop, "datetime.now()"),
    (loop_head, "time.time()"),
    (elapsed, "time.monotonic()"),
    (in_a_variable, "dt.datetime.now()"),
    (imported_inside, "seconds()"),
    (nested, "time.time()"),
    (by_a_function, "time.time()"),
    (by_a_function_of_a_function, "time.time()"),
    (by_a_nested_function, "time.time()"),
    (by_a_function_that_returns_it, "local_now()"),
]


def measured(limit: float) -> str:
    began = time.monotonic()
    found = ",".join(map(str, range(10)))
    return found if time.monotonic() - began < limit else "slow"


def stamped(text: str) -> str:
    return f"{datetime.now(UTC):%H:%M} {text}"


async def a_function_before_any_await(end: float) -> str:
    if is_over(end):
        return "too late"
    await mail("in time")
    return "sent"


async def a_function_that_measures_itself() -> str:
    await mail("slow")
    return measured(5)


async def a_function_that_writes_it_down() -> bool:
    await mail("slow")
    return stamped("done") > "12:00"


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


SILENT = [
    only_logged,
    compared_before_any_await,
    moment_of_before,
    part_of_a_date,
    own_clock,
    another_now,
    a_function_before_any_await,
    a_function_that_measures_itself,
    a_function_that_writes_it_down,
]


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
