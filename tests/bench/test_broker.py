"""``dalsegno bench --broker``: the same workload with a broker over the store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dalsegno.cli.main import app


def test_chain_over_redis_names_the_broker_without_its_password(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DALSEGNO_BROKER", raising=False)
    url = redis_url.replace("redis://", "redis://default:sekret@")  # who has no password accepts any
    result = CliRunner().invoke(
        app, ["bench", "chain", "--executions", "3", "--steps", "2", "--json", "--broker", url]
    )
    report = json.loads(result.stdout)
    assert report["details"]["broker"] == url.replace("sekret", "***")
    assert report["details"]["executions"] == 3
    assert "sekret" not in result.output
    assert "DALSEGNO_BROKER" not in os.environ
