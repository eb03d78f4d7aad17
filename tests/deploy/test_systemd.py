"""The units are understood by systemd, and leave a process little to harm."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, PROGRAM, UNITS, settings

WORST = 20
"""Of 100: systemd's own judgement of what a process could reach."""


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """As installed: the program is where it is here, and of the template there is one."""
    if shutil.which("systemd-analyze") is None:
        pytest.fail("systemd-analyze is not installed; tests/servers/ensure tells how")
    program = Path(sys.executable).parent / "dalsegno"
    for path in (*UNITS, *(DEPLOY / "systemd").glob("*.target")):
        text = path.read_text(encoding="utf-8").replace(PROGRAM, str(program))
        (tmp_path / path.name.replace("@.", "@1.")).write_text(text, encoding="utf-8")
    return sorted(tmp_path.iterdir())


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_systemd_understands_the_units(units: list[Path]) -> None:
    done = analyze("verify", *units)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_a_fault_would_be_found(units: list[Path]) -> None:
    [server] = [path for path in units if path.name == "dalsegno-server.service"]
    server.write_text(server.read_text(encoding="utf-8").replace("KillMode=mixed", "KillMood=mixed"))
    assert "KillMood" in analyze("verify", *units).stderr


def test_units_leave_little_to_harm(units: list[Path]) -> None:
    for path in units:
        if path.suffix == ".service":
            done = analyze("security", "--offline=true", f"--threshold={WORST}", path)
            assert done.returncode == 0, done.stdout[-2000:]


def test_a_machine_that_boots_before_its_database_comes_up(units: list[Path]) -> None:
    """``Restart=`` does not repair a failed dependency: who requires the migration would stay down for ever."""
    for path in units:
        if path.suffix == ".service":
            found = settings(path)
            assert "Requires" not in found, path.name
            assert found["Restart"] == ["on-failure" if "migrate" in path.name else "always"]
            assert found["StartLimitIntervalSec"] == ["0"], f"{path.name} gives up after a few tries"


def test_the_migration_still_goes_first(units: list[Path]) -> None:
    for path in units:
        if path.suffix == ".service" and "migrate" not in path.name:
            found = settings(path)
            assert "dalsegno-migrate.service" in found["Wants"][0].split(), path.name
            assert "dalsegno-migrate.service" in found["After"][0].split(), path.name
