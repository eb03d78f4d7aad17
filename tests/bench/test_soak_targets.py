"""The soaks of the Makefile run on both stores, whatever comes out on the first, and fail if one of them fails."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["soak-hostile", "soak-sagas", "soak-client"])
@pytest.mark.parametrize(
    ("failing", "status", "said"),
    [
        ("none", 0, ""),
        ("sqlite", 2, "failed on: sqlite\n"),
        ("postgres", 2, "failed on: postgres\n"),
        ("sqlite postgres", 2, "failed on: sqlite postgres\n"),
    ],
)
def test_every_store_is_run_and_every_failure_counts(
    tmp_path: Path, target: str, failing: str, status: int, said: str
) -> None:
    ran = tmp_path / "ran"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$4" >> {ran}\ncase " $FAILING " in *" $4 "*) exit 1;; esac\n')
    python.chmod(0o755)
    environment = {**os.environ, "FAILING": failing}
    environment.pop("MAKEFLAGS", None)
    command = ("make", target, f"PYTHON={python}", f"DEV={ran.parent}", "-o", "servers")
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert ran.read_text().split() == ["sqlite", "postgres"]
