"""Who waits for executions that other processes end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dalsegno.engine import endings
from dalsegno.engine.endings import Endings
from dalsegno.model.execution import ExecutionState
from dalsegno.testing.contract.build import cancel, start, token
from dalsegno.wiring import open_stack
from tests.waiting import come_about

MANY = 23


async def test_looking_costs_the_same_however_many_wait_and_finds_everyone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "ASKED_AT_ONCE", 5)
    monkeypatch.setattr(endings, "GLANCE", 0.02)
    stack = await open_stack(url)
    names = [f"run-{number}" for number in range(MANY)]
    await stack.ledger.commit([start(name, token(f"token-{name}")) for name in names])
    asked: list[int] = []
    states = stack.archive.states

    async def counting(executions: Sequence[str]) -> dict[str, ExecutionState]:
        asked.append(len(executions))
        return await states(executions)

    monkeypatch.setattr(stack.archive, "states", counting)
    waiting = Endings(stack.archive)
    everyone = [asyncio.create_task(waiting.ending(name)) for name in names]
    await come_about(lambda: len(asked) > 1, "two looks")
    assert not any(each.done() for each in everyone)

    await stack.ledger.commit([cancel(name) for name in names])

    async with asyncio.timeout(20):
        assert {(await each).state for each in everyone} == {"CANCELLED"}
    assert max(asked) == 5
    await waiting.close()
    await stack.close()
