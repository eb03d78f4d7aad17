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
    """The distance of two moments that are tried: five times as far in a build."""
    return step if IS_SEARCHING else 5 * step


def first(number: int, of: Iterable[T]) -> list[object]:
    """Parameters of a test, a tuple for several: the first ones in a build, the others in ``make soak``."""
    return [each if place < number else _long(each) for place, each in enumerate(of)]


def _long(each: object) -> object:
    return pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.soak)
