"""The log is folded into the file beside the writer, and no commit waits for it."""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dalsegno.adapters.sqlite.connections import (
    CHANGES_BETWEEN,
    WRITER_PRAGMAS,
    Checkpointer,
    connect_writer,
    tune,
)

SOON = 10.0
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    connection = connect_writer(tmp_path / "store.db", create=True)
    tune(connection, WRITER_PRAGMAS)
    connection.execute("CREATE TABLE thing (number INTEGER PRIMARY KEY, text TEXT)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return tmp_path / "store.db"


def fill(connection: sqlite3.Connection, rows: int) -> None:
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO thing (text) VALUES (?)", (("x" * 500,) for _ in range(rows)))
    connection.execute("COMMIT")


def rows_in(file: Path) -> int:
    """In the file alone, as if its log were lost."""
    connection = sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)
    try:
        found: int = connection.execute("SELECT count(*) FROM thing").fetchone()[0]
        return found
    finally:
        connection.close()


def checkpointed(file: Path, rows: int) -> bool:
    waited = threading.Event()
    for _ in range(int(SOON / 0.02)):
        with contextlib.suppress(sqlite3.DatabaseError):  # it is being written just now
            if rows_in(file) == rows:
                return True
        waited.wait(0.02)
    return False


def test_log_is_folded_in_once_enough_has_changed(file: Path) -> None:
    writer, checkpointer = (
        connect_writer(file, create=False),
        Checkpointer(connect_writer(file, create=False), file),
    )
    try:
        fill(writer, CHANGES_BETWEEN - 1)
        checkpointer.notice(writer.total_changes)
        assert rows_in(file) == 0

        fill(writer, 1)
        checkpointer.notice(writer.total_changes)

        assert checkpointed(file, CHANGES_BETWEEN)
    finally:
        checkpointer.close()
        writer.close()


def test_writer_commits_while_a_reader_keeps_the_log_from_being_folded_in(file: Path) -> None:
    writer, checkpointer = (
        connect_writer(file, create=False),
        Checkpointer(connect_writer(file, create=False), file),
    )
    reader = connect_writer(file, create=False)
    try:
        fill(writer, 10)
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM thing").fetchone() == (10,)
        fill(writer, CHANGES_BETWEEN)
        checkpointer.notice(writer.total_changes)

        fill(writer, 10)
        assert rows_in(file) == 0, "what the reader does not see yet has to stay in the log"
        assert reader.execute("SELECT count(*) FROM thing").fetchone() == (10,)

        reader.execute("COMMIT")
        fill(writer, CHANGES_BETWEEN)
        checkpointer.notice(writer.total_changes)
        assert checkpointed(file, 2 * CHANGES_BETWEEN + 20)
    finally:
        reader.close()
        checkpointer.close()
        writer.close()


def test_checkpointer_says_what_it_could_not_do(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = connect_writer(file, create=False)
    checkpointer = Checkpointer(connection, file)
    connection.close()

    checkpointer.notice(CHANGES_BETWEEN)
    waited = threading.Event()
    for _ in range(int(SOON / 0.02)):
        if caplog.records:
            break
        waited.wait(0.02)
    checkpointer.close()

    assert "could not be written into its file" in caplog.text


UNWRITABLE = """
import ctypes, os, sqlite3, sys, time
from pathlib import Path
from dalsegno.adapters.sqlite import SqliteStore
from dalsegno.adapters.sqlite.connections import CHANGES_BETWEEN, Checkpointer
from dalsegno.adapters.sqlite.connections import connect_writer
from dalsegno.errors import StoreReadOnly
from dalsegno.testing.clock import FakeClock

path = Path(sys.argv[1])
store = SqliteStore.open(path, FakeClock())
writer = store._writer
store.write_blocking(lambda rows: rows.connection.execute("PRAGMA user_version").fetchone())
path.chmod(0o400)
writer._checkpointer = Checkpointer(connect_writer(path, create=False), path)
writer._checkpointer.notice(CHANGES_BETWEEN)
refused = None
until = time.monotonic() + 10
while refused is None and time.monotonic() < until:
    try:
        store.write_blocking(lambda rows: None)
        time.sleep(0.02)
    except StoreReadOnly as error:
        refused = error
print(refused)
path.chmod(0o600)
store.write_blocking(lambda rows: None)
print("writes again")
"""


def test_commits_are_refused_while_the_log_cannot_be_folded_in(tmp_path: Path) -> None:
    """As root, too: the child gives up the right to pass over permissions."""
    libc = ctypes.CDLL(None)
    child = subprocess.run(
        [sys.executable, "-c", UNWRITABLE, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        preexec_fn=lambda: libc.prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0),
    )

    refused, again = child.stdout.splitlines()
    assert "store.db cannot be written: this user has no right to do so. Check its permissions" in refused
    assert again == "writes again"
    assert child.stderr.count("the store accepts no more commits") == 1
