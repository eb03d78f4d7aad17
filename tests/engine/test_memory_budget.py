"""The memory budget: what steps hold together, who waits, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from dalsegno.engine.memory_budget import (
    MemoryBudget,
    StepMemory,
    claim_memory,
    is_heavy,
    is_light,
    keep_memory,
    step_memory,
)

MB = 2**20


async def until_waiting(budget: MemoryBudget, count: int) -> None:
    for _ in range(100):
        if budget.waiting >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{budget.waiting} of {count} claims wait")


def test_steps_hold_no_more_than_the_budget_together() -> None:
    async def scenario() -> int:
        budget, most = MemoryBudget(100), 0

        async def step() -> None:
            nonlocal most
            held = await budget.claim(40, "a")
            most = max(most, budget.held)
            await asyncio.sleep(0)
            budget.release(held)

        await asyncio.gather(*(step() for _ in range(20)))
        assert (budget.held, budget.waiting) == (0, 0)
        return most

    assert asyncio.run(scenario()) == 80


def test_workflows_take_turns() -> None:
    async def scenario() -> list[str]:
        budget, order = MemoryBudget(1), list[str]()
        await budget.claim(1, "first")

        async def step(workflow: str) -> None:
            await budget.claim(1, workflow)
            order.append(workflow)
            budget.release(1)

        tasks = [asyncio.create_task(step(each)) for each in ("hog", "hog", "hog", "honest")]
        await until_waiting(budget, 4)
        budget.release(1)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(scenario()) == ["hog", "honest", "hog", "hog"]


def test_a_claim_larger_than_the_budget_is_granted_alone() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(100)
        small = await budget.claim(10, "a")
        large = asyncio.create_task(budget.claim(1_000, "b"))
        await until_waiting(budget, 1)
        budget.release(small)
        assert await large == 100
        budget.release(100)
        assert budget.held == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_cancelled_claim_holds_nothing(is_granted: bool) -> None:
    async def scenario() -> None:
        budget = MemoryBudget(1)
        await budget.claim(1, "a")
        waiting = asyncio.create_task(budget.claim(1, "b"))
        await until_waiting(budget, 1)
        if is_granted:
            budget.release(1)  # granted, but the task has not gone on yet
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        if not is_granted:
            budget.release(1)
        assert (budget.held, budget.waiting) == (0, 0)

    asyncio.run(scenario())


def test_a_step_claims_anew_what_is_larger_and_releases_all() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(100 * MB)
        memory = StepMemory(budget)
        step_memory.set(memory)
        await claim_memory(60 * MB)
        await claim_memory(60 * MB)  # would wait for ever, if it were counted twice
        assert budget.held == 60 * MB
        await claim_memory(90 * MB)
        assert (budget.held, is_heavy(90 * MB), is_light(91 * MB)) == (90 * MB, True, True)
        keep_memory(10 * MB)
        assert budget.held == 10 * MB
        memory.release()
        memory.release()
        assert budget.held == 0

    asyncio.run(scenario())


def test_code_outside_of_a_step_is_not_held_up() -> None:
    asyncio.run(claim_memory(10**12))


def test_small_claims_are_free() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(1)
        step_memory.set(StepMemory(budget))
        await claim_memory(MB)
        assert budget.held == 0

    asyncio.run(scenario())


def test_a_claim_that_is_cancelled_while_memory_is_released_is_passed_over() -> None:
    async def scenario() -> None:
        budget = MemoryBudget(1)
        await budget.claim(1, "a")
        gone, next_one = (asyncio.create_task(budget.claim(1, "b")) for _ in range(2))
        await until_waiting(budget, 2)
        gone.cancel()  # it has not withdrawn yet
        budget.release(1)
        assert await next_one == 1
        await asyncio.wait({gone})
        budget.release(1)
        assert gone.cancelled()
        assert (budget.held, budget.waiting) == (0, 0)

    asyncio.run(scenario())
