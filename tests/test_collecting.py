"""Of a test that runs on three stores, a build tries two; nothing else is left out."""

from __future__ import annotations

from tests.collecting import left_to_others

STORES = ("memory", "sqlite", "postgres")


def on_each(test: str, *stores: str) -> list[str]:
    return [f"{test}[{store}]" for store in stores]


def test_sqlite_is_never_left_out_and_the_others_take_turns() -> None:
    tests = [f"tests/scenarios/test_a.py::test_{number}" for number in range(100)]
    left = left_to_others([node for test in tests for node in on_each(test, *STORES)])
    assert len(left) == 100
    counts = {store: sum(node.endswith(f"[{store}]") for node in left) for store in STORES}
    assert counts["sqlite"] == 0
    assert min(counts["memory"], counts["postgres"]) > 30


def test_other_parameters_take_turns_on_their_own() -> None:
    nodes = [f"tests/server/test_a.py::test[{store}-{case}]" for store in STORES for case in range(50)]
    left = left_to_others(nodes)
    assert len(left) == 50
    assert {node.split("[")[1].split("-")[0] for node in left} == {"memory", "postgres"}


def test_what_runs_on_two_stores_or_belongs_elsewhere_is_kept() -> None:
    nodes = [
        *on_each("tests/scenarios/test_a.py::test_kill", "sqlite", "postgres"),
        *on_each("tests/contract/test_a.py::test_rule", *STORES),
        "tests/scenarios/test_a.py::test_of_two[memory-sqlite]",
        "tests/scenarios/test_a.py::test_plain",
    ]
    assert left_to_others(nodes) == set()
