"""Fixtures of tests that type what the documentation shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.forking import program_server


@pytest.fixture(scope="session")
def launchers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with a ``dalsegno`` that is forked."""
    folder = tmp_path_factory.mktemp("launchers")
    program_server().write_launcher(folder / "dalsegno", "dalsegno")
    return folder
