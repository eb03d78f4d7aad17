"""A file that is deleted, moved or replaced under a process: nothing is confirmed after that, and nothing else is
harmed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.errors import StoreLost
from dalsegno.testing.clock import FakeClock
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import start, token

SOON = 30.0


def delete(path: Path) -> None:
    path.unlink()


def move(path: Path, name: str = "elsewhere.db") -> None:
    path.rename(path.with_name(name))


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def replace(path: Path) -> None:
    other = path.with_name("other.db")
    SqliteStore.open(other, FakeClock()).close()
    other.replace(path)


def delete_log(path: Path) -> None:
    path.with_name(path.name + "-wal").unlink()


LOSSES: dict[str, tuple[Callable[[Path], None], str]] = {
    "deleted": (delete, "was deleted or moved"),
    "moved": (move, "was deleted or moved"),
    "its folder moved": (move_folder, "was deleted or moved"),
    "replaced": (replace, "was replaced by another file"),
    "its log deleted": (delete_log, "store.db-wal, a part of the store, was deleted"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "store.db"


@pytest.mark.parametrize(("lose", "words"), LOSSES.values(), ids=LOSSES.keys())
async def test_no_commit_and_no_read_is_answered_after_the_file_is_lost(
    path: Path, stack: ContractStack, lose: Callable[[Path], None], words: str
) -> None:
    await stack.apply(start("before", token("a")))
    lose(path)

    with pytest.raises(StoreLost, match=words):
        await stack.commit(start("after", token("a")))
    with pytest.raises(StoreLost, match=words):
        await stack.ledger.inspect("before")


async def test_a_file_that_comes_back_is_not_trusted_again(path: Path, stack: ContractStack) -> None:
    move(path)
    with pytest.raises(StoreLost):
        await stack.commit(start("lost", token("a")))
    move(path.with_name("elsewhere.db"), path.name)

    with pytest.raises(StoreLost):
        await stack.commit(start("lost", token("a")))


async def test_a_commit_under_way_when_the_file_goes_is_not_confirmed(path: Path, store: SqliteStore) -> None:
    """The job runs inside the transaction: the file goes before its COMMIT."""
    with pytest.raises(StoreLost):
        await store.write(lambda rows: path.unlink())


async def test_an_idle_process_notices_within_seconds(path: Path, store: SqliteStore) -> None:
    told = threading.Event()
    store.file.listen(lambda error: told.set())

    delete(path)

    assert told.wait(SOON)


def test_index_file_deleted_is_noticed(path: Path, store: SqliteStore) -> None:
    told: list[StoreLost] = []
    store.file.listen(told.append)

    path.with_name(path.name + "-shm").unlink()

    began = time.monotonic()
    while not told and time.monotonic() - began < SOON:
        time.sleep(0.02)
    assert "store.db-shm" in str(told[0])


async def test_one_who_listens_late_is_told(path: Path, store: SqliteStore) -> None:
    delete(path)
    with pytest.raises(StoreLost):
        await store.read(lambda connection: None)
    told: list[StoreLost] = []

    store.file.listen(told.append)

    assert len(told) == 1


async def test_log_deleted_alone_loses_nothing_that_was_committed(
    path: Path, store: SqliteStore, stack: ContractStack, clock: FakeClock
) -> None:
    await stack.apply(start("before", token("a")))
    delete_log(path)
    with pytest.raises(StoreLost):
        await stack.commit(start("after", token("a")))
    store.close()

    again = SqliteStore.open(path, clock)
    found = await again.read(
        lambda connection: connection.execute("SELECT count(*) FROM execution").fetchone()
    )
    again.close()
    assert found[0] >= 1


LOSER = dedent(
    """
    import os, sys
    from pathlib import Path
    from dalsegno.adapters.sqlite import SqliteStore
    from dalsegno.errors import StoreLost
    from dalsegno.testing.clock import FakeClock

    path = Path(sys.argv[1])
    store = SqliteStore.open(path, FakeClock())
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    print("gone", flush=True)
    sys.stdin.readline()
    try:
        store.write_blocking(lambda rows: None)
    except StoreLost:
        store.close()
        print("lost", flush=True)
    """
)


async def test_process_that_lost_its_file_leaves_the_new_one_alone(
    path: Path, clock: FakeClock, stack_of: Callable[[SqliteStore], ContractStack]
) -> None:
    """Closing the last connection deletes the log by its name; SQLite looks at the inode of the file before."""
    loser = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop
        [sys.executable, "-c", LOSER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert loser.stdin is not None
    assert loser.stdout is not None
    assert loser.stdout.readline() == "gone\n"
    store = SqliteStore.open(path, clock)
    await stack_of(store).apply(start("new", token("a")))
    log = path.with_name(path.name + "-wal")
    before = os.stat(log).st_ino  # noqa: PTH116 - its identity

    said, _ = loser.communicate("go on\n", timeout=30)

    assert (said, loser.returncode) == ("lost\n", 0)
    assert os.stat(log).st_ino == before  # noqa: PTH116 - as above
    await stack_of(store).apply(start("newer", token("a")))
    store.close()
