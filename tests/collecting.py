"""Collection of 18,000 tests: without Python's garbage collector, the ones that wait a lot first, and those that run on
each store on two of three.

Collecting makes millions of objects, and all of them stay: to look for garbage among them takes longer than to make
them. They are then taken out of every later collection, so that one in a test looks at what this test has made.

pytest-xdist gives each worker one stretch of the list to begin with. Tests that mostly wait (for servers that were
killed, for a load to end, for a lease to run out) come first: the first worker waits, and the others use the
processors meanwhile.

A scenario, a call of the HTTP API and what the engine does are tried on SQLite and on one other store, PostgreSQL or
memory: of three tests one has this, two that, for a test takes ten times as long on PostgreSQL. The rules are the same
code on each, and the contract suite holds for each whole. Some run on a store with a broker, too. With
``DALSEGNO_MATRIX=full``, as `make soak` has it, all of them run on all stacks. What is named by its node id runs on all
three stores.
"""

from __future__ import annotations

import gc
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from zlib import crc32

import pytest

from tests.stacks import STORES, is_full, stacks_of


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


CROSSED = ("tests/scenarios/", "tests/server/", "tests/engine/")
"""Folders whose tests run on stores that take turns."""
STORE = re.compile(r"(?<=[\[-])(memory|sqlite|postgres)(?=[\]-])")
"""A store among the parameters in a node id."""
BROKER = re.compile(r"_(?:rabbitmq|redis)(?=[\]-])")
"""A stack with a broker."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test that runs on all stores run on its stacks."""
    definition = metafunc.definition
    fixtures = metafunc._arg2fixturedefs.get("store_url", ())
    if not fixtures or fixtures[-1].params is not STORES or not definition.nodeid.startswith(CROSSED):
        return
    names = [mark.args[0] for mark in definition.iter_markers("parametrize")]
    if not any("store_url" in (each.split(",") if isinstance(each, str) else each) for each in names):
        stacks = stacks_of(definition.nodeid)
        definition.add_marker(pytest.mark.parametrize("store_url", stacks, indirect=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(WAITING))
    if is_full() or any("::" in name for name in config.args):
        return
    nodes = [item.nodeid for item in items]
    left = left_to_others(nodes) | beyond_two(nodes)
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
        nodes_by_store["postgres" if crc32(test.encode()) % 3 else "memory"]
        for test, nodes_by_store in stores.items()
        if len(nodes_by_store) == 3
    }


def beyond_two(nodes: Iterable[str]) -> set[str]:
    """The node ids of a test function with a broker beside the store, but for two of its parameters."""
    found: set[str] = set()
    counts: Counter[str] = Counter()
    for node in nodes:
        if BROKER.search(node):
            function = node.partition("[")[0]
            counts[function] += 1
            if counts[function] > 2:
                found.add(node)
    return found
