"""Child workflows below each other: as deep as the limit says; and a cancel overtakes those that go on and on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dalsegno import WorkflowFailed
from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import LimitExceeded
from tests.scenarios.children import workflow
from tests.scenarios.documents import graph
from tests.scenarios.stage import Stage

DEPTH = 3
TOLD = "'deep' was not started: child workflows that wait for each other are more than 3 deep"
SELF_CALLING = 'return await Workflow.run("deep", {n: inputs.n + 1})'


@pytest.fixture
def shallow(store_url: str) -> Iterator[Stage]:
    with Stage(store_url, limits=EngineLimits(child_depth=DEPTH)) as stage:
        yield stage


@pytest.fixture
def bottomless(store_url: str) -> Iterator[Stage]:
    with Stage(store_url, limits=EngineLimits(child_depth=1_000_000)) as stage:
        yield stage


def _states(stage: Stage) -> set[str]:
    return {one.status().state for one in stage.app.executions(limit=10_000)}


def _count(stage: Stage) -> int:
    return len(stage.app.executions(limit=10_000))


def test_a_script_that_calls_itself_fails_at_the_limit(shallow: Stage) -> None:
    ended = shallow.run_script(SELF_CALLING, {"n": 0}, name="deep")
    assert (ended.state, ended.error["code"]) == ("FAILED", "LimitExceeded")
    assert TOLD in ended.error["message"]
    assert _count(shallow) == 1 + DEPTH


def test_the_limit_itself_may_be_reached(shallow: Stage) -> None:
    shallow.app.deploy_script(
        'return inputs.n == 3 ? "bottom" : await Workflow.run("deep", {n: inputs.n + 1})', "deep"
    )
    assert shallow.app.start("deep", {"n": 0}).result(15) == "bottom"


def test_a_graph_that_calls_itself_fails_at_the_limit(shallow: Stage) -> None:
    ended = shallow.run(graph("w", {"w": workflow("deep", {})}, name="deep"))
    assert (ended.state, ended.error["code"]) == ("FAILED", "LimitExceeded")
    assert TOLD in ended.error["message"]
    assert _count(shallow) == 1 + DEPTH


def test_a_python_workflow_that_calls_itself_meets_a_limit_that_it_can_name(shallow: Stage) -> None:
    @shallow.app.workflow
    async def deep(n: int) -> list[object]:
        try:
            return await deep(n + 1)
        except LimitExceeded as error:
            return [n, str(error)]

    depth, message = shallow.app.start(deep, 0).result(15)
    assert depth == DEPTH
    assert TOLD in message


def test_the_default_is_named_in_the_error(stage: Stage) -> None:
    stage.app.deploy_script(SELF_CALLING, "deep")
    with pytest.raises(WorkflowFailed, match="more than 100 deep"):
        stage.app.start("deep", {"n": 0}).result(60)
    assert _count(stage) == 101


def test_one_that_starts_the_next_without_waiting_may_go_on(shallow: Stage) -> None:
    source = 'if (inputs.n < 10) { await Workflow.start("on", {n: inputs.n + 1}) } return inputs.n'
    handle = shallow.start_script(source, {"n": 0}, name="on")
    shallow.until("all of them", handle, lambda: _count(shallow) == 11)
    assert all(shallow.end_of(one).state == "COMPLETED" for one in shallow.app.executions(limit=100))


def test_a_cancel_overtakes_a_workflow_that_calls_itself(bottomless: Stage) -> None:
    stage = bottomless
    handle = stage.start_script(SELF_CALLING, {"n": 0}, name="deep")
    stage.until("it is on its way", handle, lambda: _count(stage) >= 30)
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    tip = stage.app.executions(limit=1)[0]
    stage.until("all have ended", tip, lambda: _states(stage) == {"CANCELLED"})


def test_what_is_cancelled_may_clean_up_with_children(stage: Stage) -> None:
    stage.app.deploy_script('return await Task.run("echo", "cleaned")', "scrub")
    stage.app.deploy_script('return await Workflow.run("scrub", {})', "undo")
    stage.app.deploy_script(
        'try { await Signal.next("never") } catch (e) { await Workflow.run("undo", {}); throw e }', "leaf"
    )
    stage.app.deploy_script('await Workflow.run("leaf", {})', "middle")
    handle = stage.start_script('await Workflow.run("middle", {})')
    stage.until("all three run", handle, lambda: _count(stage) == 3)
    handle.cancel()
    stage.until(
        "the clean-up has ended",
        handle,
        lambda: [one.status().state for one in stage.app.executions(workflow="undo")] == ["COMPLETED"],
    )
