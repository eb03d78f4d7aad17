"""Programs that use Dal Segno type-check, strictly: the Python examples do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.examples.commands import DEMO, EXAMPLES, TYPE_CACHE


def test_python_examples_pass_the_strict_type_checker(tmp_path: Path) -> None:
    files = [str(path) for path in sorted(EXAMPLES.rglob("*.py")) if path.name not in DEMO]
    assert files
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--config-file",
            os.devnull,
            "--cache-dir",
            str(TYPE_CACHE),
            *files,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
