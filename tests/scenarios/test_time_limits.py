"""What `why` says of a Python workflow that waits inside ``with timeout(…)``."""

from __future__ import annotations

from dalsegno import gather, signal, sleep, timeout
from tests.scenarios.stage import Stage


def test_a_signal_has_the_time_limit_around_it(stage: Stage) -> None:
    @stage.app.workflow
    async def approval() -> None:
        with timeout("1h"), timeout("2h"):
            await signal("go")

    handle = stage.app.start(approval)
    stage.until_event(handle, "Suspended", "signal go, with a time limit")
    (wait,) = handle.why()
    assert (wait.kind, wait.node) == ("signal", "go")
    assert wait.due is not None
    assert "timer" not in wait.sentence


def test_other_waits_have_it_beside_them(stage: Stage) -> None:
    @stage.app.workflow
    async def job() -> None:
        with timeout("1h"):
            await gather(sleep("3h"), signal("go"))

    handle = stage.app.start(job)
    stage.until_event(handle, "Suspended", "all of 2, with a time limit")
    waits = {wait.kind: wait for wait in handle.why()}
    assert sorted(waits) == ["deadline", "signal", "timer"]
    assert waits["signal"].due == waits["deadline"].due
    assert "gives up when the timeout() around it expires" in waits["deadline"].sentence
