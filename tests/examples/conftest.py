"""A reader's desk: an empty directory with the examples in it, and the installed program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Program, Programs
from tests.examples.commands import EXAMPLES


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Programs]:
    (tmp_path / "examples").symlink_to(EXAMPLES)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DALSEGNO_")}
    running: list[Program] = []
    yield Programs(tmp_path, kept, running)
    for program in running:
        program.end()
