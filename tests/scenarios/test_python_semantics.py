"""Python workflows on a whole engine: cancelling, time, values across awaits, missing code."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import io
import math
import uuid
from typing import Any

import pytest

from dalsegno import App, WorkflowCancelled, first, gather, race, signal, sleep, start, timeout
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    sku: str
    colour: Colour
    when: dt.datetime
    id: uuid.UUID


def _waits_for(stage: Stage, handle: Handle, kind: str) -> None:
    stage.until(f"it waits for a {kind}", handle, lambda: any(wait.kind == kind for wait in handle.why()))


# -- exceptions -----------------------------------------------------------------------------------------------
# -- cancelling and time --------------------------------------------------------------------------------------


def test_cancel_raises_cancelled_error_at_the_await(stage: Stage) -> None:
    @stage.app.workflow
    async def told() -> str:
        try:
            await signal("never")
        except asyncio.CancelledError:
            return "told"
        return "not told"

    handle = stage.app.start(told)
    _waits_for(stage, handle, "signal")
    handle.cancel("enough")
    with pytest.raises(WorkflowCancelled):
        handle.result(10)
    assert stage.end_of(handle).output == "told"


def test_the_execution_timeout_is_a_timeout_error(stage: Stage) -> None:
    @stage.app.workflow(timeout="1h")
    async def limited() -> None:
        try:
            await signal("never")
        except TimeoutError:
            stage.seen.append("timed out")
            raise

    handle = stage.app.start(limited)
    _waits_for(stage, handle, "signal")
    stage.pass_time(3601)
    assert stage.end_of(handle).error["type"] == "TimeoutError"
    assert stage.seen == ["timed out"]


def test_a_signal_with_a_limit_raises_timeout_error(stage: Stage) -> None:
    @stage.app.workflow
    async def impatient() -> str:
        try:
            return await signal("never", timeout="1m")
        except TimeoutError:
            return "nobody came"

    handle = stage.app.start(impatient)
    _waits_for(stage, handle, "signal")
    stage.pass_time(61)
    assert handle.result(10) == "nobody came"


def test_timeouts_inside_each_other(stage: Stage) -> None:
    @stage.app.workflow
    async def nested() -> list[str]:
        seen = []
        async with timeout("1h"):
            try:
                async with timeout("1m"):
                    await signal("never")
            except TimeoutError:
                seen.append("inner")
            await sleep("2m")
            seen.append("slept")
        return seen

    handle = stage.app.start(nested)
    _waits_for(stage, handle, "signal")
    stage.pass_time(61)
    stage.until("it sleeps", handle, lambda: handle.why()[0].kind == "timer" and not _signals(handle))
    stage.pass_time(121)
    assert handle.result(10) == ["inner", "slept"]


def _signals(handle: Handle) -> bool:
    return any(wait.kind == "signal" for wait in handle.why())


# -- values ---------------------------------------------------------------------------------------------------


def test_rich_values_survive_an_await_and_a_restart(stage: Stage) -> None:
    @stage.app.task
    async def same(line: Line) -> Line:
        return line

    @stage.app.workflow
    async def carrying() -> list[Any]:
        line = Line("a", Colour.RED, dt.datetime(2026, 1, 2, tzinfo=dt.UTC), uuid.UUID(int=7))
        numbers = {1, 2}
        pair = (1, [2])
        table = {(1, "a"): line, 2: math.inf}
        await signal("go")
        back = await same(line)
        return [
            back == line,
            table[1, "a"] is line,
            numbers == {1, 2},
            isinstance(pair, tuple),
            table[2] == math.inf,
            line.colour is Colour.RED,
        ]

    handle = stage.app.start(carrying)
    _waits_for(stage, handle, "signal")
    stage.app.engine.scripts.hot.take(handle.id)
    handle.signal("go")
    assert handle.result(10) == [True] * 6


def test_a_result_changed_by_the_workflow_is_the_same_warm_and_cold(stage: Stage) -> None:
    """What a promise gave is not what the program made of it."""

    @stage.app.task
    async def give() -> dict[str, list[int]]:
        return {"n": [1]}

    @stage.app.workflow
    async def changing() -> list[Any]:
        promise = give()
        mine = await promise
        mine["n"].append(2)
        await signal("go")
        again = await promise
        return [mine["n"], again["n"]]

    found = []
    for forget in (False, True):
        handle = stage.app.start(changing)
        _waits_for(stage, handle, "signal")
        if forget:
            stage.app.engine.scripts.hot.take(handle.id)
        handle.signal("go")
        found.append(handle.result(10))
    assert found[0] == found[1] == [[1, 2], [1]]


def test_what_cannot_be_stored_is_named_with_its_line(stage: Stage) -> None:
    @stage.app.workflow
    async def holding() -> int:
        stream = io.StringIO()
        await signal("go")
        return 1 if stream else 0

    ended = stage.end_of(stage.app.start(holding))
    assert ended.state == "FAILED"
    assert "stream" in ended.error["message"]


def test_a_large_value_lives_across_an_await(stage: Stage) -> None:
    @stage.app.workflow
    async def large() -> int:
        text = "x" * 900_000
        await signal("go")
        return len(text)

    handle = stage.app.start(large)
    _waits_for(stage, handle, "signal")
    stage.app.engine.scripts.hot.take(handle.id)
    handle.signal("go")
    assert handle.result(10) == 900_000


def test_first_and_race_go_by_time(stage: Stage) -> None:
    @stage.app.workflow
    async def joins() -> list[Any]:
        a, b = signal("a"), signal("b")
        await signal("go")
        return [await first(a, b), await race(b, a), await gather(a, b)]

    handle = stage.app.start(joins)
    _waits_for(stage, handle, "signal")
    handle.signal("b", "B")
    handle.signal("a", "A")
    handle.signal("go")
    assert handle.result(10) == ["B", "B", ["A", "B"]]


def test_a_started_workflow_lives_on_after_a_failure(stage: Stage) -> None:
    @stage.app.workflow
    async def child() -> str:
        return await signal("go")

    @stage.app.workflow
    async def parent() -> None:
        raise ValueError(start(child))

    ended = stage.end_of(stage.app.start(parent))
    assert ended.state == "FAILED"
    handle = stage.app.handle(ended.error["message"])
    stage.until("the child exists", ended.handle, lambda: len(stage.app.executions()) == 2)
    handle.signal("go", "alive")
    assert handle.result(10) == "alive"


# -- code that is not here ------------------------------------------------------------------------------------


@LASTING
def test_a_workflow_whose_module_is_missing_waits_for_a_process_that_has_it(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage(store_url) as stage:
        handle = stage.app.start(_offered(stage))
        _waits_for(stage, handle, "signal")
    with monkeypatch.context() as elsewhere, Stage(store_url) as stage:
        elsewhere.setattr("dalsegno.engine.definitions.imported", lambda name: None)
        known, other = stage.app.handle(handle.id), stage.app.start("offered", {})
        assert [(wait.kind, wait.node) for wait in known.why()] == [("signal", "go")]
        known.signal("go", 1)
        for one in (known, other):
            stage.until("it is put off", one, lambda one=one: "has the code" in one.why()[0].sentence)
            assert one.status().state == "RUNNING"
        assert stage.run_script("return 1").output == 1
    with Stage(store_url) as stage:
        _offered(stage)
        stage.app.handle(other.id).signal("go", 2)
        stage.pass_time(60)
        assert [stage.app.handle(one.id).result(20) for one in (handle, other)] == [1, 2]


def _offered(stage: Stage) -> Any:
    @stage.app.workflow
    async def offered() -> int:
        return await signal("go")

    return offered


def test_with_options_names_the_execution(stage: Stage) -> None:
    @stage.app.workflow
    async def once(n: int) -> int:
        return n

    app: App = stage.app
    options = app.with_options(idempotency_key="o-1", tags={"team": "blue"})
    one, two = options.start(once, 1), options.start(once, 2)
    assert one.id == two.id
    assert two.result(10) == 1
    assert [handle.id for handle in app.executions(tags={"team": "blue"})] == [one.id]
