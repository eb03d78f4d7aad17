"""``bench remote``, small: every task goes through the API once, and the report says so."""

from __future__ import annotations

import json

from tests.cli.conftest import Invoke


def test_every_task_is_taken_and_answered(invoke: Invoke) -> None:
    ended = invoke("bench", "remote", "--tasks", "12", "--workers", "2", "--batch", "3", "--json")
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert told["workload"] == "remote"
    assert (told["details"]["completed"], told["details"]["lost"]) == (12, 0)
    assert told["steps_per_s"] > 0
    assert told["p50_ms"] <= told["p99_ms"]
