"""Collection of 18,000 tests without Python's garbage collector.

Collecting makes millions of objects, and all of them stay: to look for garbage among them takes longer than to make
them. They are then taken out of every later collection, so that one in a test looks at what this test has made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
