"""The size of a value's JSON is known before it is encoded, also where its texts take more bytes than characters."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.core.values import Survey, encode_value
from dalsegno.errors import LimitExceeded


@pytest.mark.parametrize(
    "value",
    [
        ["\x01" * 60_000] * 20,
        ["\x01" * 100 + str(number) for number in range(2_000)],
        [{"\x01" * 100 + str(number): 1} for number in range(2_000)],
        ["é€" * 30_000] * 20,
    ],
)
def test_texts_count_as_they_are_written(value: list[Any]) -> None:
    written = len(encode_value(value))
    survey = Survey(None)
    for _ in survey.measure(value, "the value"):
        pass
    assert 0.9 * written <= survey.size <= written + 10 * len(value)
    with pytest.raises(LimitExceeded):
        encode_value(value, limit=written // 2)


def test_many_references_to_a_text_are_measured_quickly() -> None:
    text = "\x01" * 50_000
    with pytest.raises(LimitExceeded):
        encode_value([text] * 2_000_000, limit=1_000_000)
