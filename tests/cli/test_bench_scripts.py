"""``bench`` of scripts and Python workflows, small: that they run and what they report."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Invoke

SMALL = ("--executions", "3", "--steps", "2")


@pytest.mark.parametrize(
    ("arguments", "workload"),
    [
        (("script", *SMALL), "script"),
        (("python", *SMALL), "python"),
        (("fanout", "--script", "--items", "20", "--rounds", "1"), "fanout of a script"),
    ],
)
def test_workloads_of_scripts_report_beside_raw_limits(
    invoke: Invoke, arguments: tuple[str, ...], workload: str
) -> None:
    told = json.loads(invoke("bench", *arguments, "--json").stdout)
    assert told["workload"] == workload
    assert told["steps_per_s"] > 0
    assert told["raw"]["batched_rows_per_s"] > 0


def test_resume_reports_both_kinds_of_machine(invoke: Invoke) -> None:
    details = json.loads(invoke("bench", "resume", "--rounds", "50", "--json").stdout)["details"]
    for kind in ("script", "python"):
        assert 900 <= details[f"{kind}_snapshot_bytes"] <= 1500
        assert 0 < details[f"{kind}_us"] < 2000  # ten times the goal


def test_script_is_an_option_of_fanout_only(invoke: Invoke) -> None:
    refused = invoke("bench", "chain", "--script")
    assert refused.exit_code == 2
    assert "only fanout takes --script" in refused.stderr


def test_suspended_scripts_are_found_and_resumed_by_a_new_process(invoke: Invoke) -> None:
    arguments = ("suspended", "--executions", "2000", "--rounds", "20", "--json")
    told = json.loads(invoke("bench", *arguments).stdout)
    assert told["details"]["suspended"] == 2000
    assert told["details"]["resumed"] == 20
    assert told["p50_ms"] < 200  # ten times the goal
    assert told["details"]["rss_mb_after_restart"] < 150
