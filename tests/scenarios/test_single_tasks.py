"""Single tasks, each an execution of its own: a retry runs them as they ran."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.core.values import decode_value
from dalsegno.engine.starting.start import StartOptions
from dalsegno.handle import Handle
from dalsegno.model.token import TokenView
from tests.scenarios.stage import Stage


def start(stage: Stage, options: StartOptions | None = None, queue: str | None = "gpu") -> Handle:
    """As a process would that knows the task; no worker here serves its queue."""
    started = stage.app.client.start_task("render", {"n": 1}, options, queue)
    return stage.app.handle(stage.app.host.call(started))


def token_of(stage: Stage, handle: Handle) -> TokenView:
    inspection = stage.app.host.call(stage.app.client.stack.ledger.inspect(handle.id))
    assert inspection is not None
    (token,) = [each for each in inspection.tokens if each.kind == "task"]
    return token


@pytest.mark.parametrize("delay", [None, "1h"])
def test_a_retry_waits_in_the_queue_of_the_first_try(stage: Stage, delay: str | None) -> None:
    handle = start(stage, StartOptions(delay=delay))
    for _ in range(3):
        handle.cancel()
        handle = handle.retry()
        assert token_of(stage, handle).queue == "gpu"
        assert decode_value(handle.status().input) == {"n": 1}


def test_a_retry_keeps_the_limit_of_the_first_try(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    limit: dict[str, Any] = {"key": "cards", "limit": 1}
    with monkeypatch.context() as here:  # a process that has the task
        here.setattr(stage.app.client, "task_limit", lambda name: limit)
        first = start(stage)
    first.cancel()
    again = first.retry()
    assert (token_of(stage, again).queue, token_of(stage, again).limit_key) == ("gpu", "cards")


def test_a_task_of_every_worker_is_retried_by_every_worker(stage: Stage) -> None:
    @stage.app.task
    async def shaky(n: int) -> int:
        stage.seen.append(n)
        if len(stage.seen) == 1:
            raise ValueError("not yet")
        return n

    failed = stage.app.start(shaky, 4)
    assert failed.wait(20).state == "FAILED"
    assert failed.retry().result(20) == 4
