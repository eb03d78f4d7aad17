"""One budget per step: however a node is written, its expressions end. A light step is given up before it is heavy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import Raw

from dalsegno.core.graph.step_input import Body, Context, value
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import (
    LIGHT_BYTES,
    Meters,
    StepMeter,
    evaluated_each,
    is_light,
    light_limits,
    refuse_if_light,
)
from dalsegno.engine.steps.values import Loader
from dalsegno.graph.templates import compile_template
from dalsegno.lang import ExpressionFailed, FlowProgram, Limits, Machine, RootNames, compile_expression
from dalsegno.lang import compile as compile_script
from dalsegno.lang.runtime.limits import Heavy
from tests.loop_gaps import LoopGaps

NAMES = RootNames.of().with_variables("item")
LIMITS = EngineLimits(expressions=Limits(instructions=300_000), step_instructions=400_000)
LOOP = "$json.map(a => $json.slice(0, 20).map(b => a + b).length).length"
"""About 130,000 instructions for a list of a thousand numbers: within the limits of one evaluation."""


def lookup(_root: str) -> list[int]:
    return list(range(1000))


@pytest.fixture
def light() -> Iterator[None]:
    before = is_light.set(True)
    yield
    is_light.reset(before)


def test_twelve_expressions_of_a_node_share_one_budget() -> None:
    template = compile_template([f"{{{{ {LOOP} + {number} }}}}" for number in range(12)], NAMES, "")
    alone = compile_expression(LOOP, names=NAMES)
    assert alone.evaluate(lookup, now=0, limits=LIMITS.expressions) == 1000
    with pytest.raises(ExpressionFailed, match="more than 300,000 instructions"):
        template.render(lookup, now=0, meter=StepMeter(LIMITS))


async def test_items_of_a_list_share_the_budget_of_the_step_and_leave_the_loop_alone() -> None:
    expression = compile_expression("$json.slice(0, 100).map(a => a + item).length", names=NAMES)
    meter = StepMeter(LIMITS)

    def evaluate(local: object) -> object:
        meter.renew()
        return expression.evaluate(lookup, now=0, local=local, meter=meter)  # type: ignore[arg-type]

    async with LoopGaps() as gaps:
        with pytest.raises(ExpressionFailed, match=r"more than 400,000 .* one step.*step_instructions"):
            await evaluated_each(evaluate, ({"item": number} for number in range(100_000)), lambda: None)
    assert gaps.longest < 0.1


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    "source",
    [
        LOOP,
        "'ab'.repeat(1000000).length",
        "'ab'.repeat(400000).split('').length",
        "JSON.stringify($json.map(a => ['x'.repeat(900), a])).length",
    ],
)
def test_a_light_step_is_given_up_where_it_needs_more(source: str) -> None:
    expression = compile_expression(source, names=NAMES)
    with pytest.raises(Heavy):
        expression.evaluate(lookup, now=0, meter=Meters(EngineLimits()).new())
    assert expression.evaluate(lookup, now=0, meter=StepMeter(EngineLimits())) > 0


@pytest.mark.usefixtures("light")
def test_all_evaluations_of_a_light_step_count_together() -> None:
    expression = compile_expression("$json.slice(0, 100).map(a => a + item).length", names=NAMES)
    meter = Meters(EngineLimits()).new()
    for number in range(5):
        meter.renew()
        assert expression.evaluate(lookup, now=0, local={"item": number}, meter=meter) == 100
    meter.work_left = 100
    meter.renew()
    with pytest.raises(Heavy):
        expression.evaluate(lookup, now=0, local={"item": 5}, meter=meter)


@pytest.mark.usefixtures("light")
def test_an_error_of_a_light_step_is_the_error_of_the_step() -> None:
    for source in ("$json.none.none", "'a'.repeat(99000000)"):
        expression = compile_expression(source, names=NAMES)
        with pytest.raises(ExpressionFailed) as light:
            expression.evaluate(lookup, now=0, meter=Meters(EngineLimits()).new())
        with pytest.raises(ExpressionFailed) as full:
            expression.evaluate(lookup, now=0, meter=StepMeter(EngineLimits()))
        assert str(light.value) == str(full.value)


@pytest.mark.usefixtures("light")
def test_runs_with_effects_have_the_full_limits() -> None:
    assert isinstance(Meters(EngineLimits()).new(may_be_light=False), StepMeter)


def test_a_script_cannot_catch_that_it_is_heavy() -> None:
    source = "let s = 'no'\ntry { s = 'a'.repeat(5000000) } catch (e) { s = e.message }\nreturn s.length"
    program: FlowProgram = compile_script(source, "caught")
    with pytest.raises(Heavy):
        Machine.start(program, {}, {}, now=0, limits=light_limits(Limits()))
    assert Machine.start(program, {}, {}, now=0, limits=Limits()).result == 5_000_000


@pytest.mark.usefixtures("light")
def test_large_values_are_not_read_in_a_light_step() -> None:
    refuse_if_light(LIGHT_BYTES)
    with pytest.raises(Heavy):
        refuse_if_light(LIGHT_BYTES + 1)


def test_large_values_are_read_elsewhere() -> None:
    refuse_if_light(LIGHT_BYTES + 1)


async def test_one_large_value_is_as_heavy_as_several(light: None) -> None:
    """What a node with effects has just returned stands in the context it hands on, whatever its size."""
    large = Raw(b"[" + b"[]," * (LIGHT_BYTES // 3) + b"[]]")
    loader = Loader(None, None)  # type: ignore[arg-type] - nothing is read
    body = Body(Context({"$json": value(large), "$small": value(Raw(b"1"))}))
    lookup = await loader.lookup("0" * 32, body, ["$small"], lambda execution: {})
    assert lookup("$small") == 1
    with pytest.raises(Heavy):
        await loader.lookup("0" * 32, body, ["$json"], lambda execution: {})
