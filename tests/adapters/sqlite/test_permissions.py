"""Who may read a store's files: their owner alone, whatever the umask of the process that made them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.testing.clock import FakeClock


@pytest.fixture(params=[0o022, 0o000, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {each.name: stat.S_IMODE(each.stat().st_mode) for each in sorted(folder.iterdir())}


def test_a_new_store_is_its_owners_alone(tmp_path: Path, clock: FakeClock, umask: int) -> None:
    store = SqliteStore.open(tmp_path / "own.db", clock)
    found = modes(tmp_path)
    store.close()
    assert found == {"own.db": 0o600, "own.db-shm": 0o600, "own.db-wal": 0o600}


def test_a_new_store_behind_a_link_is_its_owners_alone(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "target.db")
    SqliteStore.open(tmp_path / "link.db", clock).close()
    assert modes(tmp_path)["target.db"] == 0o600


def test_the_mode_of_an_existing_store_is_left_alone(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "shared.db"
    SqliteStore.open(path, clock).close()
    path.chmod(0o660)
    store = SqliteStore.open(path, clock)
    found = modes(tmp_path)
    store.close()
    assert set(found.values()) == {0o660}


def test_those_who_create_it_at_the_same_time_all_open_it(tmp_path: Path, clock: FakeClock) -> None:
    opened: list[SqliteStore] = []
    together = threading.Barrier(4)

    def open_it() -> None:
        together.wait()
        opened.append(SqliteStore.open(tmp_path / "one.db", clock))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for store in opened:
        store.close()
    assert len(opened) == 4
    assert modes(tmp_path)["one.db"] == 0o600
