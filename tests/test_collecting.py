"""A test that runs on several stores runs on SQLite, and now and then on another one; nothing else is left out."""

from __future__ import annotations

import pytest

from tests.collecting import beyond_two, left_to_others
from tests.stacks import WITH_BROKERS, stacks_of

STORES = ("memory", "sqlite", "postgres")


def on_each(test: str, *stores: str) -> list[str]:
    return [f"{test}[{store}]" for store in stores]


def test_sqlite_is_never_left_out_and_the_others_take_turns() -> None:
    tests = [f"tests/scenarios/test_a.py::test_{number}" for number in range(100)]
    left = left_to_others([node for test in tests for node in on_each(test, *STORES)])
    counts = {store: 100 - sum(node.endswith(f"[{store}]") for node in left) for store in STORES}
    assert counts["sqlite"] == 100
    assert 15 < counts["memory"] < 35
    assert 15 < counts["postgres"] < 35


def test_one_of_many_parameters_runs_on_another_store() -> None:
    functions = [f"tests/server/test_a.py::test_{number}" for number in range(40)]
    nodes = [f"{test}[{store}-{case}]" for test in functions for store in STORES for case in range(5)]
    kept = [node for node in nodes if node not in left_to_others(nodes)]
    assert sum("sqlite" in node for node in kept) == 200
    others = [node for node in kept if "sqlite" not in node]
    assert len(others) == len({node.partition("[")[0] for node in others})
    assert len({node.partition("-")[2] for node in others}) > 1, "not always the same one"


def test_what_needs_a_store_that_lasts_runs_on_both_with_one_parameter() -> None:
    nodes = [f"tests/engine/test_a.py::test[{store}-{case}]" for store in STORES[1:] for case in range(5)]
    left = left_to_others(nodes)
    assert len(left) == 4
    assert not [node for node in left if "sqlite" in node]


def test_what_runs_on_two_stores_or_belongs_elsewhere_is_kept() -> None:
    nodes = [
        *on_each("tests/scenarios/test_a.py::test_kill", "sqlite", "postgres"),
        *on_each("tests/contract/test_a.py::test_rule", *STORES),
        "tests/scenarios/test_a.py::test_of_two[memory-sqlite]",
        "tests/scenarios/test_a.py::test_elsewhere[memory-1]",
        "tests/scenarios/test_a.py::test_elsewhere[memory-2]",
        "tests/scenarios/test_a.py::test_plain",
    ]
    assert left_to_others(nodes) == set()


def test_some_functions_run_with_a_broker_in_a_build_and_all_with_the_full_matrix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    functions = [f"tests/scenarios/test_a.py::test_{number}" for number in range(1_000)]
    found = [stack for function in functions for stack in stacks_of(function) if stack in WITH_BROKERS]
    assert 20 < len(found) < 80
    assert set(found) == set(WITH_BROKERS)
    monkeypatch.setenv("DALSEGNO_MATRIX", "full")
    assert stacks_of(functions[0]) == (*STORES, *WITH_BROKERS)


def test_two_parameters_of_a_function_run_with_a_broker() -> None:
    nodes = [f"tests/server/test_a.py::test[postgres_redis-{case}]" for case in range(5)]
    assert beyond_two([*nodes, "tests/server/test_a.py::test[postgres-1]"]) == set(nodes[2:])
