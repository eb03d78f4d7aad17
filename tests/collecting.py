"""Collection of 18,000 tests: without Python's garbage collector, the ones that wait a lot first, and those that run on
each store on SQLite and few of them on another.

Collecting makes millions of objects, and all of them stay: to look for garbage among them takes longer than to make
them. They are then taken out of every later collection, so that one in a test looks at what this test has made.

pytest-xdist gives each worker one stretch of the list to begin with. Tests that mostly wait (for servers that were
killed, for a load to end, for a lease to run out) come first: the first worker waits, and the others use the
processors meanwhile.

A scenario, a call of the HTTP API and what the engine does are tried on SQLite with all their parameters. Of four test
functions one runs on PostgreSQL, too, and one on memory, with one of its parameters; those that need a store that lasts
all run on PostgreSQL in this way. A test takes several times as long there. The rules are the same code on each, and
the contract suite holds for each whole. Some run on a store with a broker, too. With
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

THRESHOLDS = (20_000, 20, 100)
"""Of Python's garbage collector while tests run: its own ones let it take a twentieth of their time."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
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
BESIDE = ("postgres", "memory", None, None)
"""The stores beside SQLite on which test functions run, by turns."""
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
    """The node ids of tests that SQLite tries, too, on the stores that are left out this time."""
    functions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for node in nodes:
        if node.startswith(CROSSED) and (found := STORE.findall(node)) and len(found) == 1:
            functions[node.partition("[")[0]][found[0]].append(node)
    left: set[str] = set()
    for function, by_store in functions.items():
        if (on_sqlite := by_store.pop("sqlite", None)) is None:
            continue
        turn = crc32(function.encode())
        beside = BESIDE[turn % len(BESIDE)] if len(by_store) == 2 else next(iter(by_store), None)
        for store, found in by_store.items():
            kept = found[turn % len(on_sqlite) % len(found)] if store == beside else None
            left.update(node for node in found if node != kept)
    return left


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
