"""``snapshots`` and what ``doctor`` says of the seals of a store."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from dalsegno import App, signal
from dalsegno.engine.secrets.keys import KEY_VARIABLE, new_key
from tests.cli.conftest import Invoke
from tests.waiting import until


async def waits(name: str) -> str:
    return f"{name} {await signal('word')}"


@pytest.fixture
def unsealed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An execution that was stored without a key; from now on there is one."""
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    app = App(f"sqlite:///{folder / 'dalsegno.db'}")
    app.workflow(waits)
    with app.running():
        handle = app.start("waits", "a")
        until(handle.picture, "it waits")
    monkeypatch.setenv(KEY_VARIABLE, new_key())
    return handle.id


def seals_check(invoke: Invoke) -> dict[str, str]:
    told = json.loads(invoke("doctor", "--json").stdout)
    [check] = [check for check in told["checks"] if check["name"] == "snapshots"]
    return check


def test_doctor_shows_the_date_and_what_is_left(invoke: Invoke, unsealed: str) -> None:
    check = seals_check(invoke)
    assert (check["status"], check["detail"].partition(":")[0]) == ("ok", "not sealed")
    assert "2030-01-01 00:00 UTC" in invoke("snapshots", "accept-until", "2030-01-01").stdout
    check = seals_check(invoke)
    assert check["status"] == "warn"
    assert check["detail"].endswith("unsealed ones are accepted until 2030-01-01 00:00 UTC: 1 left")
    assert invoke("snapshots", "accept-until", "now").exit_code == 0
    assert seals_check(invoke)["status"] == "fail"
    told = json.loads(invoke("snapshots", "status", "--json").stdout)
    assert (told["unsealed"], told["sealed"]) == ([unsealed], {})

    assert invoke("snapshots", "seal").stdout == "sealed 1 snapshots, and the code of 1 versions\n"
    check = seals_check(invoke)
    assert (check["status"], check["detail"].rpartition(": ")[2]) == ("ok", "0 left")


def test_doctor_sees_that_the_date_was_deleted(invoke: Invoke, unsealed: str, folder: Path) -> None:
    assert invoke("snapshots", "seal").exit_code == 0
    with sqlite3.connect(folder / "dalsegno.db") as store:
        assert store.execute("DELETE FROM record WHERE kind = 'snapshot-sealing'").rowcount == 1
    check = seals_check(invoke)
    assert check["status"] == "fail"
    assert "is missing" in check["detail"]


def test_a_date_must_be_one_and_sealing_needs_a_key(
    invoke: Invoke, unsealed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "is not a date" in invoke("snapshots", "accept-until", "soon").stderr
    monkeypatch.delenv(KEY_VARIABLE)
    assert "there is no key" in invoke("snapshots", "seal").stderr
    assert "this process has none" in invoke("snapshots", "accept-until", "30d").stderr
