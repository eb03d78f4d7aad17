"""Several evaluations that share a meter may together use what one alone may use."""

from __future__ import annotations

import pytest

from dalsegno.graph.templates import compile_template
from dalsegno.lang import (
    Expression,
    ExpressionFailed,
    Limits,
    Meter,
    compile_condition,
    compile_expression,
    compile_string,
)
from dalsegno.lang.runtime.limits import Span
from tests.lang.evaluation import DATA, NAMES, NOW

LIMITS = Limits(instructions=4_000, allocated_bytes=1_000_000)
COUNTS = "[1,2,3,4,5,6,7,8,9,10].map(x => [1,2,3,4,5,6,7,8,9,10].reduce((s, y) => s + y, x)).length"
SORTS = (
    "$fetch.list.concat(['a', 'b', 'c'].map(x => 1)).slice(0, 3).length + 'x,'.repeat(400).split(',').length"
)
KEEPS = "'x'.repeat(150000).length"


def expressions(source: str) -> list[Expression]:
    """Twelve of them, in every form that graphs have."""
    plain = compile_expression(source, names=NAMES)
    text = compile_string(f"it is {{{{ {source} }}}}", NAMES)
    condition = compile_condition(source, None, NAMES)
    tests = compile_condition([{"op1": f"{{{{ {source} }}}}", "operator": ">", "op2": 0}], None, NAMES)
    assert isinstance(text, Expression)
    return [plain, text, condition, tests] * 3


def evaluate_all(together: list[Expression], meter: Meter) -> None:
    for expression in together:
        expression.evaluate(DATA.__getitem__, now=NOW, meter=meter)


@pytest.mark.parametrize("source", [COUNTS, SORTS, KEEPS])
def test_twelve_expressions_that_fit_alone_do_not_fit_together(source: str) -> None:
    together = expressions(source)
    for alone in together:
        alone.evaluate(DATA.__getitem__, now=NOW, limits=LIMITS)
    meter = Meter(LIMITS, Span("the expressions of one step", "compute less"))
    with pytest.raises(ExpressionFailed, match="the expressions of one step") as caught:
        evaluate_all(together, meter)
    assert caught.value.code == "LimitExceeded"


def test_an_evaluation_that_fails_is_charged_too() -> None:
    meter = Meter(LIMITS)
    failing = compile_expression(f"{COUNTS} + $fetch.missing", names=NAMES)
    for _ in range(2):
        with pytest.raises(ExpressionFailed, match="missing"):
            failing.evaluate(DATA.__getitem__, now=NOW, meter=meter)
    assert 1_000 < LIMITS.instructions - meter.work_left < 3_000


def test_the_expressions_of_a_template_share_a_meter_if_one_is_given() -> None:
    template = compile_template([f"{{{{ {COUNTS} }}}}"] * 12, NAMES, "")
    assert template.render(DATA.__getitem__, now=NOW, limits=LIMITS) == [10] * 12
    with pytest.raises(ExpressionFailed) as caught:
        template.render(DATA.__getitem__, now=NOW, meter=Meter(LIMITS))
    assert caught.value.code == "LimitExceeded"
    assert caught.value.pointer.startswith("/")
