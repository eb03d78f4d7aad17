"""The timeout of a workflow is checked where it is written."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno import App
from dalsegno.errors import InvalidInput


@pytest.mark.parametrize(
    ("timeout", "problem"),
    [("soon", "'soon' is not a duration; write seconds"), (-1, "-1 is negative"), ([1], "is not a duration")],
)
def test_a_timeout_that_makes_no_sense_is_refused_where_the_workflow_is_defined(
    timeout: Any, problem: str
) -> None:
    app = App("memory:")
    with pytest.raises(InvalidInput, match="workflow 'hurried': the timeout ") as caught:

        @app.workflow(timeout=timeout)
        async def hurried() -> None:
            return None

    assert problem in str(caught.value)


@pytest.mark.parametrize("timeout", [None, 5, 0.5, "1h30m"])
def test_a_timeout_may_be_seconds_or_a_text_with_units(timeout: Any) -> None:
    app = App("memory:")

    @app.workflow(timeout=timeout)
    async def hurried() -> None:
        return None

    assert hurried.program.front_matter.get("timeout") == timeout
