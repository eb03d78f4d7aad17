"""``bench timers``, small, on a server: what was parked is counted, and everything that came due has woken."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from dalsegno.cli.main import app


def test_timers_are_parked_and_wake_on_a_server(postgres_url: str) -> None:
    arguments = ["bench", "timers", "--parked", "1000", "--due", "100", "--store", postgres_url, "--json"]
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert (told["details"]["parked"], told["details"]["due"]) == (1000, 100)
    assert told["details"]["parked_per_s_last_tenth"] > 0
    assert 0 < told["p50_ms"] <= told["p99_ms"]
