"""What scripts have and expressions of graphs refuse, with a reason."""

from __future__ import annotations

import pytest

from dalsegno.lang import ExpressionError
from tests.lang.evaluation import run

REFUSED = [
    ("await $fetch", "an expression cannot await: only scripts can", 1),
    ("[1].map(x => await x)", "an expression cannot await: only scripts can", 14),
    ("x = 1", "an expression cannot assign; compare with ==", 3),
    ("$a += 1", "an expression cannot assign; compare with ==", 4),
    ("[1].map(x => { return x })", "an expression has no statements", 16),
    ("[1].map(x => { let y = x })", "an expression has no statements", 16),
    ("[1].map(function (x) { return x })", "an expression has no blocks of statements", 22),
    ("let x = 1", "an expression has no statements", 1),
    ("if ($a) { 1 }", "an expression has no blocks of statements", 9),
    ("1; 2", "unexpected character ';'", 2),
]


@pytest.mark.parametrize(("source", "message", "column"), REFUSED)
def test_refused_in_expressions(source: str, message: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(source)
    assert message in caught.value.message
    assert caught.value.column == column


def test_an_object_is_still_the_body_of_an_arrow_function() -> None:
    assert run("[1, 2].map(x => {a: x})") == [{"a": 1}, {"a": 2}]
    assert run("[1].map(x => {})") == [{}]
