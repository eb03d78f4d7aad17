"""The same function as a workflow and as an ordinary coroutine: result, exception and calls of tasks must agree,
whether the machine stays in memory, is stored at every await, or at every single instruction."""

from __future__ import annotations

import pytest

from tests.python import cleaning_up, expressions, failures, functions, loops, statements, tasks
from tests.python.driving import MODES, drive, natively, outcome
from tests.rows import rows

KINDS = (expressions, statements, loops, functions, failures, cleaning_up)
CASES = [case for kind in KINDS for case in kind.CASES]


@pytest.mark.parametrize("mode", MODES)
@rows("function", CASES, ids=lambda function: function.__name__)
@pytest.mark.parametrize("argument", [3])
def test_workflow_does_what_cpython_does(function, argument, mode):
    tasks.calls.clear()
    expressions.trail.clear()
    expected = natively(function, argument)
    expected_calls = list(tasks.calls)
    tasks.calls.clear()
    expressions.trail.clear()
    assert outcome(drive(function, argument, mode)) == expected
    assert tasks.calls == expected_calls
