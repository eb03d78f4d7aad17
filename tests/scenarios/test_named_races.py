"""Races with names, and what a handle says when the time is over."""

from __future__ import annotations

import pytest

from dalsegno import App, WorkflowFailed, gather, log, race, signal, sleep
from dalsegno.testing import TestKit
from tests.scenarios.stage import Stage


def test_a_race_with_names_tells_who_won(stage: Stage) -> None:
    @stage.app.workflow
    async def either() -> list[object]:
        documents = signal("documents")
        first = await race(docs=documents, late=sleep(0))
        second = await race(docs=documents, late=sleep("1h"))
        return [first, second]

    handle = stage.app.start(either)
    stage.until("waits for it", handle, lambda: any(wait.kind == "signal" for wait in handle.why()))
    handle.signal("documents", {"pages": 3})
    assert handle.result(10) == [["late", None], ["docs", {"pages": 3}]]


def test_its_names_are_stored_and_it_may_stand_in_a_group() -> None:
    """A promise that is kept across awaits is read from the store at each of them, whatever crashed."""
    app = App("memory:")

    @app.task
    async def price(sku: str) -> int:
        return len(sku)

    @app.workflow
    async def nested() -> object:
        kept = race(slow=sleep("2h"), fast=sleep("1h"))
        await price("abc")
        both = await gather(kept, race(price=price("ab"), never=signal("never")))
        return [both, await kept]

    with TestKit(app) as kit:
        assert kit.run(nested) == [[["fast", None], ["price", 2]], ["fast", None]]
        for point in kit.crashes(nested):
            kit.crash(point)
            assert kit.run(nested) == [[["fast", None], ["price", 2]], ["fast", None]]


def test_a_failure_of_a_race_with_names_is_raised(stage: Stage) -> None:
    @stage.app.task
    async def breaks() -> None:
        raise ValueError("broken")

    @stage.app.workflow
    async def raises() -> None:
        await race(a=breaks(), b=sleep("1h"))

    with pytest.raises(WorkflowFailed, match="broken"):
        stage.app.start(raises).result(10)


def test_what_is_no_race_with_names_is_refused(stage: Stage) -> None:
    @stage.app.workflow
    async def refused() -> list[str]:
        said = []
        for make in (
            lambda: race(sleep(0), late=sleep(0)),  # type: ignore[call-overload]
            lambda: race(late=3),  # type: ignore[arg-type]
            race,
        ):
            try:
                make()
            except (TypeError, ValueError) as error:
                said.append(str(error))
        await sleep(0)
        return said

    mixed, number, nothing = stage.app.start(refused).result(10)
    assert mixed == "race(): name all promises or none of them"
    assert number.startswith("race(): argument 'late' is not a promise")
    assert nothing.startswith("race() needs at least one promise")


def test_log_takes_its_level_by_position(caplog: pytest.LogCaptureFixture) -> None:
    app = App("memory:")

    @app.workflow
    async def talks() -> None:
        log("careful", "warning")
        log("by name", level="error")
        await sleep(0)

    with app.running():
        app.start(talks).result(10)
    told = [(record.levelname, record.message.rpartition(": ")[2]) for record in caplog.records]
    assert told == [("WARNING", "careful"), ("ERROR", "by name")]


def test_a_result_that_does_not_come_says_why(stage: Stage) -> None:
    @stage.app.workflow
    async def waits() -> None:
        await signal("approved")

    handle = stage.app.start(waits)
    stage.until("waits", handle, lambda: handle.why() and handle.why()[0].kind == "signal")
    for ask in (handle.result, handle.wait):
        with pytest.raises(TimeoutError, match=r"did not end within 0\.05 s: .*signal 'approved'"):
            ask(0.05)


async def test_the_twin_of_wait_is_named_like_the_others() -> None:
    app = App("memory:")

    @app.workflow
    async def nothing() -> int:
        return 1

    async with app.running():
        handle = await app.astart(nothing)
        assert (await handle.await_(10)).state == "COMPLETED"
        with pytest.warns(DeprecationWarning, match="await_ now"):
            assert (await handle.await_end(10)).state == "COMPLETED"


def test_an_application_filters_executions_as_a_client_does(stage: Stage) -> None:
    @stage.app.workflow
    async def waits(number: int) -> None:
        await signal("go")

    first, second = stage.app.start(waits, 1), stage.app.start(waits, 2)
    first.signal("go")
    first.result(10)
    found = stage.app.executions
    assert [one.id for one in found("waits", states=("COMPLETED",))] == [first.id]
    assert [one.id for one in found(states=("RUNNING",), kinds=("python",))] == [second.id]
    assert found(kinds=("graph",)) == []
    assert [one.id for one in found(text=second.id[:31], limit=1)] == [second.id]
    assert found(created_since="2100-01-01") == []
