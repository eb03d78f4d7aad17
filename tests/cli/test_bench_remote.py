"""``bench remote``, small: every task goes through the API once, and the report says so."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from dalsegno.bench import server_process
from tests.cli.conftest import Invoke


def test_every_task_is_taken_and_answered(invoke: Invoke) -> None:
    ended = invoke("bench", "remote", "--tasks", "12", "--workers", "2", "--batch", "3", "--json")
    assert ended.exit_code == 0, ended.output
    told = json.loads(ended.stdout)
    assert told["workload"] == "remote"
    assert (told["details"]["completed"], told["details"]["lost"]) == (12, 0)
    assert told["steps_per_s"] > 0
    assert told["p50_ms"] <= told["p99_ms"]


async def test_a_port_that_is_taken_before_the_server_has_it_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        free = server_process._free_port()
        ports = iter((taken.getsockname()[1], free))
        monkeypatch.setattr(server_process, "_free_port", lambda: next(ports))
        async with server_process.served(f"sqlite:///{tmp_path / 'store.db'}") as port:
            assert port == free
