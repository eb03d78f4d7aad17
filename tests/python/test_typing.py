"""Users who check their types keep their signatures, and are told of wrong calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.python import typed_user


def test_a_users_module_is_clean_under_mypy_strict_and_its_mistakes_are_found():
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--warn-unused-ignores",
            "--no-error-summary",
            typed_user.__file__,
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr
