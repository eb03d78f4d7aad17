"""Steps that break a number of times before they go on, and what is seen of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dalsegno import App, NodeContext
from dalsegno.core.scripts import tasks
from dalsegno.engine.worker.capabilities import NotRunnableHere
from dalsegno.errors import BadConfiguration
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition

NOT_HERE = BadConfiguration("the plugin is not here")
"""What a process says of a step that it cannot run."""
ELSEWHERE = NotRunnableHere("another worker has it")


def break_steps(app: App, times: int, error: BaseException, patch: pytest.MonkeyPatch) -> list[int]:
    """So many do, all with this error. Returns the numbers of all that were tried, which become more."""
    steps = app.engine.steps
    run = steps.step
    tries: list[int] = []

    async def step(*given: object) -> object:
        tries.append(len(tries) + 1)
        if len(tries) <= times:
            raise error
        return await run(*given)  # type: ignore[arg-type]

    patch.setattr(steps, "step", step)
    return tries


def flaky(app: App, failures: int) -> list[int]:
    """A task that fails so often, and what it has seen of its attempts."""
    attempts: list[int] = []

    @app.task(name="flaky", retries=RetryPolicy(max_attempts=failures + 1, initial_delay=0))
    async def task_that_fails(ctx: NodeContext) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) <= failures:
            raise RuntimeError("not yet")
        return "done"

    return attempts


def noting_pauses(app: App, pauses: list[float]) -> Callable[..., Transition]:
    def put_off(lease: Lease, due: float) -> Transition:
        pauses.append(due - app.engine.stack.ledger.now())
        return tasks.put_off(lease, due)

    return put_off


def leased(token: str, attempt: int = 1) -> Lease:
    return Lease(token, "e", 1, "", "node", "n", b"", "default", 0, attempt, 0, "", 0.0, "d", 0)
