"""How an execution's ending is told."""

from __future__ import annotations

import json

import pytest

from dalsegno.core.graph.ending import IN_HISTORY, completion_event


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (b"null", {"output": None}),
        (b'{"a":1}', {"output": {"a": 1}}),
        (b'"%b"' % (b"a" * (IN_HISTORY - 2)), {"output": "a" * (IN_HISTORY - 2)}),
        (b'"%b"' % (b"a" * (IN_HISTORY - 1)), {"output_bytes": IN_HISTORY + 1}),
    ],
    ids=["null", "small", "largest", "larger"],
)
def test_the_history_tells_small_outputs_and_the_size_of_large_ones(output: bytes, told: object) -> None:
    event = completion_event(5.0, output)
    assert (event.kind, event.at) == ("ExecutionCompleted", 5.0)
    assert json.loads(event.data or b"") == told
