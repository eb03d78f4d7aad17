"""Rows as the ports show them."""

from __future__ import annotations

from dalsegno.adapters.postgres.store import Row
from dalsegno.model.execution import ExecutionView


def execution_view(row: Row) -> ExecutionView:
    """From ``look.execution``, where the tags are two columns: names and values."""
    fields = {**row, "tags": tuple(zip(row["tag_names"], row["tag_values"], strict=True))}
    del fields["tag_names"], fields["tag_values"]
    return ExecutionView(**fields)
