"""Collection of 18,000 tests: without Python's garbage collector, the ones that wait a lot first, and those that run on
each store on two of three.

Collecting makes millions of objects, and all of them stay: to look for garbage among them takes longer than to make
them. They are then taken out of every later collection, so that one in a test looks at what this test has made.

pytest-xdist gives each worker one stretch of the list to begin with. Tests that mostly wait (for servers that were
killed, for a load to end, for a lease to run out) come first: the first worker waits, and the others use the
processors meanwhile.

A scenario, and a call of the HTTP API, is tried on SQLite and on one other store, PostgreSQL or memory: of two tests
one has this, one that. The rules are the same code on each, and the contract suite holds for each whole. With
``DALSEGNO_MATRIX=full``, as `make soak` has it, all of them run, and so does what is named by its node id.
"""

from __future__ import annotations

import gc
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from zlib import crc32

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
    "tests/adapters/postgres/test_outage_logs.py",
    "tests/server/test_alerts_kill.py",
    "tests/cli/test_waiting_for_store.py",
    "tests/cli/test_two_applications.py",
    "tests/cli/test_retention_options.py",
    "tests/cli/test_demo.py",
    "tests/nodes/http/test_http_idempotency.py",
    "tests/server/test_endings.py",
)
"""Folders and files whose tests wait for most of their time."""


CROSSED = ("tests/scenarios/", "tests/server/")
"""Folders whose tests run on stores that take turns."""
STORE = re.compile(r"(?<=[\[-])(memory|sqlite|postgres)(?=[\]-])")
"""A store among the parameters in a node id."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))
    if os.environ.get("DALSEGNO_MATRIX") == "full" or any("::" in name for name in config.args):
        return
    left = left_to_others(item.nodeid for item in items)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


def left_to_others(nodes: Iterable[str]) -> set[str]:
    """The node ids of tests that run on all three stores, on the one that is left out this time."""
    stores: dict[str, dict[str, str]] = defaultdict(dict)
    for node in nodes:
        if node.startswith(CROSSED) and (found := STORE.findall(node)) and len(found) == 1:
            stores[STORE.sub("*", node)][found[0]] = node
    return {
        nodes_by_store[("memory", "postgres")[crc32(test.encode()) % 2]]
        for test, nodes_by_store in stores.items()
        if len(nodes_by_store) == 3
    }
