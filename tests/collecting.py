"""Collection of 18,000 tests: without Python's garbage collector, and the ones that wait a lot first.

Collecting makes millions of objects, and all of them stay: to look for garbage among them takes longer than to make
them. They are then taken out of every later collection, so that one in a test looks at what this test has made.

pytest-xdist gives each worker one stretch of the list to begin with. Tests that mostly wait (for servers that were
killed, for a load to end, for a lease to run out) come first: the first worker waits, and the others use the
processors meanwhile.
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


WAITING = (
    "tests/bench/",
    "tests/chaos/",
    "tests/client/test_outages.py",
    "tests/adapters/postgres/test_idle_cost.py",
    "tests/adapters/postgres/test_losses_told_once.py",
    "tests/server/test_alerts_kill.py",
    "tests/cli/test_waiting_for_store.py",
    "tests/cli/test_two_applications.py",
    "tests/cli/test_keeping.py",
    "tests/cli/test_demo.py",
    "tests/nodes/http/test_http_idempotency.py",
    "tests/server/test_endings.py",
)
"""Folders and files whose tests wait for most of their time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))
