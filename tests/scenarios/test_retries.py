"""Retries: delays as documented, the same idempotency key, filters, per-attempt timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.handle import Handle
from tests.scenarios.documents import error_object, graph, merge, task
from tests.scenarios.stage import Ended, Stage


def flaky(failures: int, retry: dict[str, Any], **plan: Any) -> dict[str, Any]:
    return graph("f", {"f": task("flaky", {"failures": failures, **plan}, retry=retry)})


def through_retries(stage: Stage, handle: Handle, step: float = 1000.0) -> Ended:
    """Lets time pass after every retry until the execution ends."""
    for retries in range(1, 20):
        stage.until(
            "retried or ended",
            handle,
            lambda seen=retries: (
                handle.status().ended_at is not None
                or sum(event.kind == "NodeRetrying" for event in handle.events()) >= seen
            ),
        )
        if handle.status().ended_at is not None:
            break
        stage.pass_time(step)
    return stage.end_of(handle)


def delays(ended: Ended) -> list[float]:
    """From the end of each failed attempt to the next."""
    found = zip(ended.of("NodeRetrying", "f"), ended.data("NodeRetrying", "f"), strict=True)
    return [round(data["retry_at"] - event.at, 6) for event, data in found]


def test_backoff_grows_by_its_factor_up_to_its_limit_and_then_succeeds(stage: Stage) -> None:
    retry = {"max_attempts": 6, "initial_delay": 2, "factor": 3, "max_delay": 20}
    ended = through_retries(stage, stage.start(flaky(4, retry)))
    assert ended.state == "COMPLETED"
    assert delays(ended) == [2, 6, 18, 20]
    assert ended.output["attempt"] == 5
    assert ended.nodes["f"] == ("COMPLETED", 1)
    assert [data.get("attempt", 1) for data in ended.data("NodeRetrying", "f")] == [1, 2, 3, 4]


def test_every_attempt_sees_the_same_idempotency_key(stage: Stage) -> None:
    ended = through_retries(stage, stage.start(flaky(3, {"max_attempts": 4})))
    assert stage.attempts == {ended.output["key"]: 4}


def test_when_all_attempts_fail_the_strategy_applies(stage: Stage) -> None:
    ended = through_retries(stage, stage.start(flaky(9, {"max_attempts": 3, "initial_delay": "1s"})))
    assert ended.state == "FAILED"
    assert ended.plain_error == error_object("attempt 3 failed", "FLAKY", "f")
    assert delays(ended) == [1, 2]
    assert ended.nodes["f"] == ("FAILED", 1)


def test_jitter_stays_within_its_bounds_and_differs(stage: Stage) -> None:
    retry = {"max_attempts": 8, "initial_delay": 10, "factor": 1, "jitter": 0.5}
    found = delays(through_retries(stage, stage.start(flaky(7, retry))))
    assert len(found) == 7
    assert all(5 <= delay <= 10 for delay in found)
    assert len(set(found)) > 1


@pytest.mark.parametrize(("on", "attempts"), [(["FLAKY"], 3), (["OTHER"], 1), (["OTHER", "FLAKY"], 3)])
def test_only_the_named_errors_are_retried(stage: Stage, on: list[str], attempts: int) -> None:
    ended = through_retries(stage, stage.start(flaky(9, {"max_attempts": 3, "on": on})))
    assert ended.state == "FAILED"
    assert list(stage.attempts.values()) == [attempts]


def test_a_server_that_asks_for_more_patience_gets_it(stage: Stage) -> None:
    retry = {"max_attempts": 3, "initial_delay": 1, "factor": 1}
    ended = through_retries(stage, stage.start(flaky(2, retry, retry_after=77)))
    assert delays(ended) == [77, 77]


def test_the_token_sleeps_until_its_retry_and_not_a_moment_less(stage: Stage) -> None:
    handle = stage.start(flaky(1, {"max_attempts": 2, "initial_delay": 10}))
    stage.until_event(handle, "NodeRetrying", "f")
    [waiting] = handle.why()
    assert (waiting.kind, waiting.node, waiting.due) == ("retry", "f", stage.clock.now() + 10)
    stage.pass_time(9.9)
    assert handle.nodes()["f"].state == "WAITING"
    stage.pass_time(0.2)
    assert stage.end_of(handle).state == "COMPLETED"


def test_a_timeout_is_per_attempt(stage: Stage) -> None:
    node = task("hold", "never", timeout=0.05, retry={"max_attempts": 2, "initial_delay": 1})
    ended = through_retries(stage, stage.start(graph("f", {"f": node})))
    assert ended.state == "FAILED"
    assert ended.error == error_object(
        "node 'f' did not end within its timeout of 0.05 s", "TIMEOUT", "f", type="TimeoutError"
    )
    assert len(stage.door("never").comers) == 2
    assert len(set(stage.door("never").comers)) == 1


def test_a_task_brings_its_own_policy_and_the_document_wins_over_it(stage: Stage) -> None:
    attempts: list[str] = []

    @stage.app.task(retries=2)
    def weak(name: str) -> None:
        attempts.append(name)
        raise ValueError("weak")

    through_retries(stage, stage.start(graph("f", {"f": task("weak", "own")})))
    through_retries(
        stage, stage.start(graph("f", {"f": task("weak", "document", retry={"max_attempts": 2})}))
    )
    assert attempts == ["own"] * 3 + ["document"] * 2


def test_a_join_node_is_retried_with_the_payloads_it_met(stage: Stage) -> None:
    calls: list[Any] = []

    @stage.app.node("meeting", needs=("$payload",))
    async def meeting(ctx, parameters):  # type: ignore[no-untyped-def]
        calls.append(ctx.payload)
        if len(calls) == 1:
            raise ValueError("once")
        return {"met": ctx.payload}

    document = {
        "name": "scenario",
        "dag": {
            "nodes": [
                {"id": "x", "handler": "task", "config": {"task": "echo", "input": 1}},
                {"id": "y", "handler": "task", "config": {"task": "echo", "input": 2}},
                {"id": "f", "handler": "meeting", "dependencies": ["x", "y"], "retry": {"max_attempts": 2}},
            ]
        },
    }
    ended = through_retries(stage, stage.start(document))
    assert ended.output == {"met": [1, 2]}
    assert calls == [[1, 2], [1, 2]]


def test_a_retried_node_inside_a_merge_keeps_the_merge_waiting(stage: Stage) -> None:
    nodes = {"f": task("flaky", {"failures": 1}, retry={"max_attempts": 2}), "m": merge(timeout=5000)}
    ended = through_retries(stage, stage.start(graph("a > f > m, a > b > m", nodes)))
    assert ended.state == "COMPLETED"
    assert ended.output[1] == "b"
    assert ended.output[0]["attempt"] == 2
