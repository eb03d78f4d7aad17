"""A test of real processes that fails runs once more, alone: only one that fails twice is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reruns import MOST

ROOT = Path(__file__).parents[1]

ONCE = """
import pytest
from pathlib import Path

@pytest.mark.parametrize("number", range({count}))
def test_fails_once(number):
    here = Path(__file__).with_name(f"{{number}}.seen")
    seen = here.exists()
    here.touch()
    assert seen, "the host was busy"
"""
ALWAYS = """
def test_fails_always():
    assert 1 == 2, "it is wrong"
"""
INI = """
[pytest]
addopts = ["-ra", "-m", "not soak", "-p", "tests.reruns", "-p", "xdist", "-p", "no:cacheprovider"]
markers = ["soak: for hours"]
filterwarnings = ["error"]
"""


def run(
    folder: Path, modules: dict[str, str], *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of these modules as `make test` does."""
    (folder / "pytest.toml").write_text(INI)
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DALSEGNO"))
    }
    own = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--import-mode=importlib", *(arguments or ("tests",))],
        cwd=folder,
        env=inherited | own,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2", "--dist", "worksteal")])
def test_what_passes_the_second_time_is_named_and_fails_nothing(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    done = run(tmp_path, {"tests/server/test_a.py": ONCE.format(count=2)}, "tests", *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "UNSTEADY tests/server/test_a.py::test_fails_once[0]\n" in done.stdout
    assert "UNSTEADY tests/server/test_a.py::test_fails_once[1]\n" in done.stdout
    assert "the host was busy" in done.stdout
    assert "FAILED" not in done.stdout


def test_what_fails_twice_is_a_failure_and_the_unsteady_one_beside_it_is_not(tmp_path: Path) -> None:
    modules = {"tests/server/test_a.py": ONCE.format(count=1), "tests/chaos/test_b.py": ALWAYS}
    done = run(tmp_path, modules, "tests", "-n", "2", "--dist", "worksteal")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "UNSTEADY tests/server/test_a.py::test_fails_once[0]\n" in done.stdout
    assert "FAILED tests/chaos/test_b.py::test_fails_always" in done.stdout
    assert "1 failed" in done.stdout
    assert "FAILED tests/server" not in done.stdout


def test_what_is_pure_is_not_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, {"tests/core/test_a.py": ONCE.format(count=1)})
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED tests/core/test_a.py::test_fails_once[0]" in done.stdout
    assert "UNSTEADY" not in done.stdout


@pytest.mark.parametrize(("count", "code"), [(MOST, 0), (MOST + 1, 1)])
def test_more_than_ten_are_no_noise(tmp_path: Path, count: int, code: int) -> None:
    done = run(
        tmp_path,
        {"tests/server/test_a.py": ONCE.format(count=count)},
        "tests",
        "-n",
        "2",
        "--dist",
        "worksteal",
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count("\nFAILED ") == count * code
    assert done.stdout.count("\nUNSTEADY ") == count * (1 - code)


BROKEN = """
import os
import pytest

@pytest.fixture
def leaving():
    yield
    raise OSError("not tidy")

def test_teardown(leaving):
    pass

def test_skipped_the_second_time(tmp_path_factory):
    from pathlib import Path
    seen = Path(__file__).with_name("seen")
    if seen.exists():
        pytest.skip("not now")
    seen.touch()
    assert not seen.exists()

def test_ends_the_process():
    os._exit(3)
"""


def test_an_error_of_a_fixture_a_skip_and_the_death_of_the_process_are_no_success(tmp_path: Path) -> None:
    done = run(tmp_path, {"tests/server/test_a.py": BROKEN}, "tests", "-n", "2", "--dist", "worksteal")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ERROR tests/server/test_a.py::test_teardown" in done.stdout
    assert "FAILED tests/server/test_a.py::test_skipped_the_second_time" in done.stdout
    assert "FAILED tests/server/test_a.py::test_ends_the_process" in done.stdout


@pytest.mark.parametrize("named", ["tests/server/test_a.py::test_fails_once", "-x"])
def test_who_looks_for_a_failure_sees_it_at_once(tmp_path: Path, named: str) -> None:
    done = run(tmp_path, {"tests/server/test_a.py": ONCE.format(count=1)}, named)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "UNSTEADY" not in done.stdout


def test_a_hunt_for_rare_failures_lets_none_pass(tmp_path: Path) -> None:
    done = run(tmp_path, {"tests/server/test_a.py": ONCE.format(count=1)}, DALSEGNO_RERUNS="no")
    assert done.returncode == 1, done.stdout + done.stderr


def test_an_interrupted_run_keeps_its_failures(tmp_path: Path) -> None:
    modules = {
        "tests/server/test_a.py": ALWAYS,
        "tests/server/test_b.py": "def test_b():\n    raise KeyboardInterrupt\n",
    }
    done = run(tmp_path, modules)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "FAILED tests/server/test_a.py::test_fails_always" in done.stdout
