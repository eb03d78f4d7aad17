"""``now()``: the clock that durable timers run on."""

from __future__ import annotations

import datetime as dt

import pytest

from dalsegno import App, now, race, signal, sleep, timeout
from dalsegno.engine.scripts.advance import Job, follow
from dalsegno.lang import Machine, Ok, compile
from dalsegno.lang.runtime.effects import Err, ErrorValue
from dalsegno.testing import TestKit
from tests.scenarios.stage import Stage

app = App("memory:")
mails: list[str] = []


@app.task
async def mail(who: str, text: str) -> None:
    mails.append(f"to {who}: {text}")


@app.workflow
async def approval(who: str, remind_every: float, patience: float) -> str:
    """As in the how-to about signals."""
    decision = signal("decision")
    try:
        with timeout(patience):
            while True:
                came, answer = await race(decision=decision, reminder=sleep(remind_every))
                if came == "decision":
                    return str(answer)
                await mail(who, "please decide")
    except TimeoutError:
        return "expired"


@app.workflow
async def two_days() -> list[dt.datetime]:
    began = now()
    await sleep("2d")
    return [began, now()]


def test_a_workflow_sees_the_store_s_clock(stage: Stage) -> None:
    @stage.app.workflow
    async def times() -> list[dt.datetime]:
        began = now()
        until = began + dt.timedelta(hours=1)
        await sleep(until)
        assert now() >= until
        return [began, now()]

    start = dt.datetime.fromtimestamp(stage.clock.now(), dt.UTC)
    handle = stage.app.start(times)
    stage.until("waits", handle, lambda: handle.why() and handle.why()[0].kind == "timer")
    stage.pass_time(3600)
    began, ended = handle.result(10)
    assert (began, ended) == (start, start + dt.timedelta(hours=1))
    assert began.tzinfo is dt.UTC


def test_a_test_that_skips_time_moves_it() -> None:
    day = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    with TestKit(app, now=day) as kit:
        assert kit.run(two_days) == [day, day + dt.timedelta(days=2)]


@pytest.mark.parametrize(("patience", "reminders"), [(10.0, 3), (2.0, 0)])
def test_reminders_end_with_the_deadline_whatever_the_local_clock_says(
    patience: float, reminders: int
) -> None:
    """The local clock stands still beside the skipped time: a loop that asked it would never end."""
    mails.clear()
    with TestKit(app, patience=20) as kit:
        assert kit.run(approval, "ann", 3.0, patience) == "expired"
    assert len(mails) == reminders


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        ("await Timer.delay(30)\nreturn Date.now()", Ok(None)),
        ("await Timer.delay(30)\nreturn now()", Ok(None)),
        (
            'try { await Signal.when("never", {timeout: 30}) } catch (e) { }\nreturn Date.now()',
            Err(ErrorValue("TimeoutError", "no signal")),
        ),
    ],
)
def test_the_time_is_never_before_a_timer_that_has_fired(source: str, outcome: Ok | Err) -> None:
    """The scheduler that fired it may be a little ahead of the worker that goes on."""
    machine = Machine.start(compile(source, "test"), None, now=0.0)
    follow(machine, Job("e", 1, 1, 29.5, {"p0": outcome}), None)
    assert (machine.status, machine.result) == ("completed", 30_000)


def test_a_timer_that_was_called_off_moves_no_clock() -> None:
    source = "try { await Timer.delay(30) } catch (e) { }\nreturn Date.now()"
    machine = Machine.start(compile(source, "test"), None, now=0.0)
    follow(machine, Job("e", 1, 1, 1.0, {"p0": Err(ErrorValue("CancelledError", "off"))}), None)
    assert machine.result == 1_000
