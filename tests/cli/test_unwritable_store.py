"""A store on a full disk, and one that cannot be written: each command says what is wrong and what to do."""

from __future__ import annotations

import ctypes
import json
import resource
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, write
from tests.cli.programs import Programs

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
LIBC = ctypes.CDLL(None)


def no_space() -> None:
    """No file of this process may grow: what a full disk does, on every file system."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def no_superuser() -> None:
    """Permissions count for root, too; without effect for other users, for whom they do anyway."""
    LIBC.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.fixture
def store(folder: Path, invoke: Invoke) -> Path:
    write(folder, hello_yaml=HELLO)
    assert invoke("run", "hello.yaml").exit_code == 0
    return folder / "dalsegno.db"


def test_doctor_reports_every_part_on_a_full_disk(programs: Programs, store: Path) -> None:
    reader = sqlite3.connect(store)  # another process has it open, as mostly
    reader.execute("SELECT count(*) FROM execution").fetchone()
    doctor = programs.bound(no_space, "doctor", "--json")

    code, out, err = doctor.finish()

    reader.close()
    found = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1, err
    assert found["disk sync"]["status"] == "fail"
    assert "Free some space" in found["disk sync"]["cure"]
    assert found["content"]["status"] == found["schema"]["status"] == "ok"
    assert {"python", "store", "disk", "permissions", "journal", "workers", "executions"} <= {*found}


def test_doctor_reports_what_it_can_where_not_even_the_store_opens(programs: Programs, store: Path) -> None:
    doctor = programs.bound(no_space, "doctor", "--json")

    code, out, err = doctor.finish()

    found = {check["name"]: check["status"] for check in json.loads(out)["checks"]}
    assert code == 1, err
    assert found["python"] == found["store"] == "ok"
    assert found["disk sync"] == "fail"


@pytest.mark.parametrize("command", ["worker", "scheduler", "server"])
def test_process_does_not_start_on_a_file_that_cannot_be_written(
    programs: Programs, store: Path, command: str
) -> None:
    store.chmod(0o400)
    options = ("--port", "0") if command == "server" else ()

    code, _, err = programs.bound(no_superuser, command, *options).finish()

    assert code == 2
    assert "dalsegno.db cannot be written: this user has no right to do so. Check its permissions" in err


def test_run_says_why_the_first_write_fails(programs: Programs, store: Path) -> None:
    store.chmod(0o400)

    code, out, _ = programs.bound(no_superuser, "run", "hello.yaml", "--json").finish()

    error = json.loads(out)["error"]
    assert code == 2
    assert error["code"] == "DS-230"
    assert "Check its permissions (chmod, chown)" in error["message"]


def test_doctor_fails_on_a_file_that_cannot_be_written_and_looks_at_the_rest(
    programs: Programs, store: Path
) -> None:
    store.chmod(0o400)

    code, out, _ = programs.bound(no_superuser, "doctor", "--json").finish()

    found = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1
    assert found["store"]["status"] == "fail"
    assert "cannot be written" in found["store"]["detail"]
    assert found["executions"]["status"] == "ok"
