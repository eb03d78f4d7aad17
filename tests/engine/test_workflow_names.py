"""Two workflows of one program cannot have one name: both places are told."""

from __future__ import annotations

import pytest

from dalsegno.engine.workflows import Workflows
from dalsegno.errors import InvalidInput
from dalsegno.lang.python import compile_workflow


async def first() -> int:
    return 1


async def second() -> int:
    return 2


def test_a_name_that_is_taken_is_refused_with_both_places() -> None:
    workflows = Workflows()
    workflows.register(compile_workflow(first, "pay"), first)
    with pytest.raises(InvalidInput) as caught:
        workflows.register(compile_workflow(second, "pay"), second)
    lines = [function.__code__.co_firstlineno for function in (second, first)]
    assert str(caught.value) == (
        f"{__file__}:{lines[0]}: a workflow named 'pay' is registered already, from {__file__}:{lines[1]}; "
        "give one of them another name"
    )
