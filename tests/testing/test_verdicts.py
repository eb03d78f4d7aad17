"""What a mock says about the test reaches the test; everything else that is raised is a failed task."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dalsegno import App, RetryPolicy, WorkflowFailed, sleep
from dalsegno.testing import TestKit

_FAILED = pytest.fail.Exception
_CATCHES_ALL = "try { await Task.run('effect', 1) } catch (e) { return 'caught' }"


def _forbidden(_: Any) -> None:
    pytest.fail("must not be called")


def _retrying_app() -> App:
    app = App("memory:")

    @app.task(retries=RetryPolicy(max_attempts=5), timeout="1m")
    def effect(x: int) -> int:
        return x

    @app.workflow
    async def stubborn(x: int) -> str:
        try:
            await effect(x)
        except BaseException:  # noqa: BLE001 - a workflow may catch what it likes
            return "caught"
        return "done"

    return app


@pytest.mark.parametrize("how", ["function", "raises"])
def test_a_mock_that_fails_the_test_fails_it_at_once(workflows: TestKit, how: str) -> None:
    given: dict[str, Any] = (
        {"side_effect": _forbidden} if how == "function" else {"raises": _FAILED("must not be called")}
    )
    workflows.mock("effect", **given)
    with pytest.raises(_FAILED, match="must not be called"):
        workflows.run(_CATCHES_ALL)


def test_retries_and_except_clauses_do_not_hide_it() -> None:
    with TestKit(_retrying_app()) as kit:
        mock = kit.mock("effect", side_effect=_forbidden)
        with pytest.raises(_FAILED, match="must not be called"):
            kit.run("stubborn", 1)
        assert mock.call_count == 1


def test_a_skip_inside_a_task_skips(workflows: TestKit) -> None:
    workflows.mock("effect", raises=pytest.skip.Exception("not today"))
    with pytest.raises(pytest.skip.Exception, match="not today"):
        workflows.run(_CATCHES_ALL)


def test_a_mocked_node_fails_the_test_too(workflows: TestKit) -> None:
    workflows.mock_node("http", side_effect=_forbidden)
    with pytest.raises(_FAILED, match="must not be called"):
        workflows.run("await Node.run('http', {url: 'https://example.com'})")


def test_who_does_not_wait_hears_it_at_the_next_call(workflows: TestKit) -> None:
    workflows.mock("effect", side_effect=_forbidden)
    with pytest.raises(_FAILED, match="must not be called"):  # noqa: PT012 - either of the two may come to it
        workflows.start(_CATCHES_ALL)
        workflows.idle()
    workflows.idle()  # it is told once


def test_who_asks_nothing_more_hears_it_at_the_end() -> None:
    with pytest.raises(_FAILED, match="must not be called"):
        _ask_nothing_more()


def _ask_nothing_more() -> None:
    came = threading.Event()

    def forbidden(given: Any) -> None:
        came.set()
        _forbidden(given)

    with TestKit() as kit:
        kit.mock("effect", side_effect=forbidden)
        kit.app.start(kit.deploy(_CATCHES_ALL, "s").name)
        assert came.wait(10)


async def test_async_tests_hear_it() -> None:
    async with TestKit(_retrying_app()) as kit:
        kit.mock("effect", side_effect=_forbidden)
        with pytest.raises(_FAILED, match="must not be called"):
            await kit.arun("stubborn", 1)


def test_a_trial_beside_the_test_hears_it() -> None:
    with TestKit(_retrying_app()) as kit:
        kit.mock("effect", side_effect=_forbidden)
        with pytest.raises(_FAILED, match="must not be called"):
            kit.assert_resumable("stubborn", 1)


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
def test_whatever_else_a_mock_raises_is_a_failed_task(workflows: TestKit, error: type[BaseException]) -> None:
    workflows.mock("effect", raises=error)
    with pytest.raises(WorkflowFailed, match=error.__name__):
        workflows.run("return await Task.run('effect', 1)")


def test_a_workflow_that_raises_keyboard_interrupt_fails_alone() -> None:
    app = App("memory:")

    @app.workflow
    async def interrupted() -> None:
        await sleep(1)
        raise KeyboardInterrupt

    with TestKit(app) as kit:
        with pytest.raises(WorkflowFailed, match="KeyboardInterrupt"):
            kit.run(interrupted)
        assert kit.run("return 1") == 1
