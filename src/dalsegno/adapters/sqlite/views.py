"""Rows of the cold tables as the ports show them."""

from __future__ import annotations

import json
from typing import Any

from dalsegno.model.execution import ExecutionView

TAGS = 12
"""Position of the tags in ``execution_view``, whose columns are ExecutionView's."""


def execution_view(row: tuple[Any, ...]) -> ExecutionView:
    columns: list[Any] = list(row)
    columns[TAGS] = tuple((name, value) for name, value in json.loads(row[TAGS]))
    return ExecutionView(*columns)
