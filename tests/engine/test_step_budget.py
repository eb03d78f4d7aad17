"""One budget per step: however a node is written, its expressions end, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import time

import pytest

from dalsegno.engine.budget import StepMeter, evaluated, evaluated_each
from dalsegno.engine.heavy_work import FairQueue, heavy_work
from dalsegno.engine.settings import EngineLimits
from dalsegno.graph.templates import compile_template
from dalsegno.lang import ExpressionFailed, Limits, RootNames, compile_expression
from tests.loop_gaps import LoopGaps

NAMES = RootNames.of().with_variables("item")
LIMITS = EngineLimits(expressions=Limits(instructions=300_000), step_instructions=400_000)
LOOP = "$json.map(a => $json.slice(0, 20).map(b => a + b).length).length"
"""About 130,000 instructions for a list of a thousand numbers: within the limits of one evaluation."""


def lookup(_root: str) -> list[int]:
    return list(range(1000))


async def test_twelve_expressions_of_a_node_share_one_budget_and_leave_the_loop_alone() -> None:
    template = compile_template([f"{{{{ {LOOP} + {number} }}}}" for number in range(12)], NAMES, "")
    alone = compile_expression(LOOP, names=NAMES)
    assert alone.evaluate(lookup, now=0, limits=LIMITS.expressions) == 1000
    meter = StepMeter(LIMITS)
    async with LoopGaps() as gaps:
        with pytest.raises(ExpressionFailed, match="more than 300,000 instructions"):
            await evaluated(meter, "hostile", lambda: template.render(lookup, now=0, meter=meter))
    assert gaps.longest < 0.1


async def test_items_of_a_list_share_the_budget_of_the_step() -> None:
    expression = compile_expression("$json.slice(0, 100).map(a => a + item).length", names=NAMES)
    meter = StepMeter(LIMITS)

    def evaluate(local: object) -> object:
        meter.renew()
        return expression.evaluate(lookup, now=0, local=local, meter=meter)  # type: ignore[arg-type]

    async with LoopGaps() as gaps:
        with pytest.raises(ExpressionFailed, match=r"more than 400,000 .* one step.*step_instructions"):
            await evaluated_each(
                meter, "hostile", evaluate, ({"item": number} for number in range(100_000)), lambda: None
            )
    assert gaps.longest < 0.1


async def test_a_long_evaluation_has_the_same_value_as_a_short_one() -> None:
    expression = compile_expression("$json.map(a => a * 2).filter(a => a % 3 === 0).length", names=NAMES)
    meter = StepMeter(EngineLimits())
    found = await evaluated(meter, "honest", lambda: expression.evaluate(lookup, now=0, meter=meter))
    assert found == 334
    assert meter.work_left < meter.limits.instructions


async def test_slices_take_turns_by_workflow() -> None:
    order: list[str] = []

    async def work(workflow: str, slices: int) -> None:
        for _ in range(slices):
            await heavy_work().turn(workflow)
            order.append(workflow)
            time.sleep(0.002)  # noqa: ASYNC251 - a slice of work

    hostile = [asyncio.create_task(work("hostile", 4)) for _ in range(10)]
    await asyncio.sleep(0)
    async with LoopGaps() as gaps:
        await work("honest", 3)
        done_after = len(order)
        await asyncio.gather(*hostile)
    assert done_after <= 8
    assert gaps.longest < 0.05


async def test_jobs_in_the_thread_take_turns_and_outlive_those_who_left() -> None:
    order: list[str] = []

    def job(workflow: str) -> None:
        time.sleep(0.005)
        order.append(workflow)

    heavy = heavy_work()
    tasks = [asyncio.create_task(heavy.in_thread("hostile", lambda: job("hostile"))) for _ in range(6)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await heavy.in_thread("honest", lambda: job("honest"))
    assert order.index("honest") <= 2
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order.count("hostile") == 5


async def test_a_fair_queue_forgets_those_who_left() -> None:
    queue = FairQueue()
    gone, stays = queue.join("a"), queue.join("a")
    gone.cancel()
    assert queue.next() is stays
    assert queue.next() is None
    assert not queue
