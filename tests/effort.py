"""How much is tried in a build, where it is the same every time. ``make soak`` tries all of it: property tests take
other examples every time, and what only carries the marker ``soak`` here is run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

IS_SEARCHING = os.environ.get("DALSEGNO_EXAMPLES") == "searching"


def examples(number: int) -> settings:
    """Of a property test: an eighth of them in a build."""
    return settings(max_examples=number if IS_SEARCHING else number // 8, deadline=None)


def every(step: int) -> int:
    """The distance of two moments that are tried: three times as far in a build."""
    return step if IS_SEARCHING else 3 * step


def first(number: int, of: Iterable[T]) -> list[object]:
    """Parameters of a test: the first ones in a build, the others in ``make soak``."""
    return [
        each if place < number else pytest.param(each, marks=pytest.mark.soak)
        for place, each in enumerate(of)
    ]
