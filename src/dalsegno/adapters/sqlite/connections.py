"""The database file, its connections, and the threads that own them: jobs in, results out, in order.

- A file that is deleted or replaced stays open for the process that has it: SQLite continues to commit to a file that
  cannot be opened again. So the path is compared with the open file after every commit and at least once a second.
- The writer makes every change of the file, in transactions that waiting jobs share.
- The reader has a connection and thread of its own, so that no read waits for a commit.
- The checkpointer copies the log into the file concurrently, so that no commit has to wait for it.
- The writer also detects commits of other processes, by the version of the file that its connection sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

from dalsegno.adapters.sqlite.commit.workspace import SqliteWorkspace
from dalsegno.adapters.sqlite.errors import explain, why_not_writable
from dalsegno.errors import StoreLost, StoreReadOnly, Unavailable

BUSY_SECONDS = 10.0
"""How long a statement waits for another process's lock before the store counts as unavailable."""

PAGE_SIZE = 4096
CACHED_STATEMENTS = 512

WRITER_PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # a reported commit is on disk
    "PRAGMA wal_autocheckpoint = 12000",  # only a safety net: the checkpointer comes first
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA secure_delete = FAST",  # Debian's library overwrites deleted content in extra writes by default
)
READER_PRAGMAS = ("PRAGMA query_only = ON", "PRAGMA cache_size = -8192", "PRAGMA temp_store = MEMORY")


OWNER_ONLY = 0o600


def connect_writer(path: Path, *, create: bool) -> sqlite3.Connection:
    if create:
        _create_for_owner(path)
    connection = _connect(path, "rwc" if create else "rw")
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    return connection


def _create_for_owner(path: Path) -> None:
    """Create the file for its owner only, whatever the umask: it holds inputs and outputs of all workflows.

    SQLite gives its ``-wal`` and ``-shm`` the same mode. A file that exists is not opened: closing any descriptor
    of a file drops all locks that this process holds on it.
    """
    with contextlib.suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY))


def connect_reader(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "ro")
    tune(connection, READER_PRAGMAS)
    return connection


def tune(connection: sqlite3.Connection, pragmas: tuple[str, ...]) -> None:
    for pragma in pragmas:
        connection.execute(pragma)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect. Transactions are controlled here, not by the driver; so is the use by one thread at a time."""
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=CACHED_STATEMENTS,
    )


Identity: TypeAlias = tuple[int, int]
"""Device and inode."""

CHECK_EVERY = 1.0
"""Seconds between two checks of the path by a process that commits nothing."""
DESCRIPTORS = Path("/proc/self/fd")

RESTORE = (
    "commits since then are lost. Stop all processes that use it, restore a backup or put the file back,"
    " then start them again"
)
RESTART = (
    "this process accepts no more commits. Start it again; SQLite writes the committed changes into the "
    "store when the last process that has it open ends"
)


class StoreFile:
    """``expect`` may be called from every thread.

    A file that was lost once counts as lost, even if it comes back: it is unknown what was written where in
    between.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.lost: StoreLost | None = None
        self._lock = threading.Lock()
        self._listeners: list[Callable[[StoreLost], None]] = []
        self._looked_at = 0.0
        beside = str(self.path.resolve())
        self._main = str(self.path)
        self._log, self._index = f"{beside}-wal", f"{beside}-shm"
        self._identity = _identity(self._main)
        self._log_identity, self._index_identity = _identity(self._log), _identity(self._index)
        if self._identity is None or not _is_open(self._identity):
            raise self._lose(f"the store {path} was deleted or replaced while it was opened: try again")

    def listen(self, listener: Callable[[StoreLost], None]) -> None:
        """Register a callback; it is called in the thread that notices the loss."""
        with self._lock:
            self._listeners.append(listener)
        if self.lost is not None:
            listener(self.lost)

    def expect(self) -> None:
        """Raise StoreLost if the path no longer leads to the open file. Two system calls."""
        if self.lost is not None:
            raise self.lost
        if not self._is_there():
            raise self._lose(self._what_happened())

    def look(self) -> None:
        """Check while nothing is committed. Nothing is raised: listeners are called."""
        now = time.monotonic()
        if self.lost is not None or now - self._looked_at < CHECK_EVERY:
            return
        self._looked_at = now
        if not self._is_there() or not _is_same(self._index, self._index_identity):
            self._lose(self._what_happened())

    def _is_there(self) -> bool:
        return _is_same(self._main, self._identity) and _is_same(self._log, self._log_identity)

    def _what_happened(self) -> str:
        if _identity(self._main) is None:
            return f"the store {self.path} was deleted or moved while this process had it open: {RESTORE}"
        if not _is_same(self._main, self._identity):
            return f"the store {self.path} was replaced by another file while this process had it open: {RESTORE}"
        what = self._index if _is_same(self._log, self._log_identity) else self._log
        return f"{what}, a part of the store, was deleted or replaced while it was in use: {RESTART}"

    def _lose(self, reason: str) -> StoreLost:
        with self._lock:
            if self.lost is not None:
                return self.lost
            self.lost = StoreLost(reason)
            listeners = list(self._listeners)
        for listener in listeners:
            listener(self.lost)
        return self.lost


def _is_same(path: str, known: Identity | None) -> bool:
    """Return True if the path has the known identity, which is None for what did not exist when the store was opened.

    A path that cannot be checked counts as the same: SQLite gets that error, too, and reports more about it.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - called for every commit
    except (FileNotFoundError, NotADirectoryError):
        return known is None
    except OSError:
        return True
    return known is None or (found.st_dev, found.st_ino) == known


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_open(identity: Identity) -> bool:
    """Return True if this process has this file open, or if the system does not report it."""
    try:
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 - names are wanted
    except OSError:
        return True
    return any(_identity(f"{DESCRIPTORS}/{name}") == identity for name in names)


# -- commits of other processes ---------------------------------------------------------------------------------


LOOK_EVERY = 0.01
"""Seconds between two queries of a thread without jobs, and at least between two notifications."""
LOOK_IDLE = 0.03
"""The same if nothing has been committed for a moment, here or elsewhere: a query costs some 0.1 ms of CPU time."""
MOMENT = 0.25
LATELY = 5.0


class OtherProcesses:
    """Detects commits of other processes by ``data_version``.

    A query costs some microseconds, and the number changes only by commits of other connections: a process that is
    alone on its file gets no notifications.

    ``notice`` and ``look`` belong to the writer's thread. Listeners are called in their own event loops.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._seen = self._version()
        self._is_notified = True
        self._notified_at = self._committed_at = 0.0
        self.commits = 0
        """How often commits of other processes were noticed."""
        self._changed_at = -LATELY
        """When a commit of another process was noticed."""
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []

    def listen(self, committed: Callable[[], None]) -> None:
        self._listeners.append((asyncio.get_running_loop(), committed))

    def is_active(self, now: float) -> bool:
        """Return True if other processes have committed lately."""
        return now - self._changed_at < LATELY

    def idle_seconds(self) -> float:
        return LOOK_EVERY if time.monotonic() - self._committed_at < MOMENT else LOOK_IDLE

    def look(self) -> None:
        """Query the version. An error is ignored: the next statement of a caller meets and reports it."""
        if self._listeners:
            with contextlib.suppress(sqlite3.Error):
                self._compare(self._version(), time.monotonic())

    def notice(self, version: int) -> None:
        """Compare the version that a transaction of the thread saw."""
        self._committed_at = time.monotonic()
        self._compare(version, self._committed_at)

    def _compare(self, version: int, now: float) -> None:
        if version != self._seen:
            self.commits += 1
            self._seen, self._is_notified, self._committed_at, self._changed_at = version, False, now, now
        if not self._is_notified and now - self._notified_at >= LOOK_EVERY:  # otherwise with the next query
            self._notified_at, self._is_notified = now, True
            self._notify()

    def _version(self) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)

    def _notify(self) -> None:
        for loop, committed in self._listeners:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(committed)


# -- threads -------------------------------------------------------------------------------------------------


T = TypeVar("T")
Job = Callable[[], Any]
Answer = tuple[Any, BaseException | None]
"""A result, or the error instead."""
Entry = tuple[Job, Callable[[Answer], None]] | None
"""A job, and the callback for its answer. None ends the thread."""

GROUP_LIMIT = 64
"""Most jobs that are handed over together."""


class Idle(Protocol):
    """Work of the thread while there are no jobs."""

    def idle_seconds(self) -> float:
        """Return the seconds without a job after which it looks."""

    def look(self) -> None: ...


class DatabaseThread:
    """Runs jobs one group at a time. ``run`` gets the jobs that gathered meanwhile and answers each of them."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Job]], list[Answer]],
        idle: Idle | None = None,
    ) -> None:
        self._run = run
        self._idle = idle
        self._queue: SimpleQueue[Entry] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    async def call(self, job: Callable[[], T]) -> T:
        """Return the job's result without blocking the event loop. Cancelling the caller does not stop the job."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(reply: Answer) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(_settle_future, future, reply)

        self._put(job, answer)
        return await future

    def call_blocking(self, job: Callable[[], T]) -> T:
        """Run a job for a thread without an event loop."""
        future: Future[T] = Future()
        self._put(job, lambda reply: _settle_future(future, reply))
        return future.result()

    def close(self) -> None:
        """Finish the queued jobs, then end."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _put(self, job: Job, answer: Callable[[Answer], None]) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        self._queue.put((job, answer))

    def _work(self) -> None:
        open_for_work = True
        while open_for_work:
            open_for_work = self._work_once()

    def _work_once(self) -> bool:
        """Run one group of jobs. Their answers, which may be large, are not held until the next."""
        group, open_for_work = self._gather()
        if group:
            answers = self._run([job for job, _ in group])
            for (_, answer), reply in zip(group, answers, strict=True):
                answer(reply)
        return open_for_work

    def _gather(self) -> tuple[list[tuple[Job, Callable[[Answer], None]]], bool]:
        group = []
        entry = self._next()
        while entry is not None:
            group.append(entry)
            if len(group) == GROUP_LIMIT:
                return group, True
            try:
                entry = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _next(self) -> Entry:
        while self._idle is not None:
            try:
                return self._queue.get(timeout=self._idle.idle_seconds())
            except Empty:
                self._idle.look()
        return self._queue.get()


def _settle_future(future: asyncio.Future[Any] | Future[Any], reply: Answer) -> None:
    result, error = reply
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


Look = Callable[[sqlite3.Connection], T]


class Reader:
    """Every job sees one state of the store, at least as new as the last commit that was reported before it."""

    def __init__(self, connection: sqlite3.Connection, path: Path, file: StoreFile) -> None:
        self._connection = connection
        self._path = path
        self._file = file
        self._thread = DatabaseThread("dalsegno-sqlite-reader", self._run)

    async def call(self, look: Look[T]) -> T:
        return await self._thread.call(lambda: look(self._connection))

    def close(self) -> None:
        self._thread.close()
        self._connection.close()

    def _run(self, jobs: Sequence[Job]) -> list[Answer]:
        answers = self._look(jobs)
        if len(jobs) == 1 or all(error is None for _, error in answers):
            return answers
        return [self._look([job])[0] for job in jobs]

    def _look(self, jobs: Sequence[Job]) -> list[Answer]:
        """Run jobs in one transaction: they waited together, so its state is new enough for each of them."""
        try:
            self._file.expect()
            self._connection.execute("BEGIN")
            try:
                return [(job(), None) for job in jobs]
            finally:
                self._connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its caller's answer
            reason = explain(error, self._path)
            return [(None, reason) for _ in jobs]


logger = logging.getLogger("dalsegno.sqlite")

CHANGES_BETWEEN = 5_000
"""Changed rows after which the log is checkpointed: some thousand pages of it."""
LARGE_BYTES = 1024
"""Bytes of large values that count as one changed row: the log is checkpointed after 5 MB of them. A commit that
has to do it, at the writer's own limit, finds little left to do.
"""


class Checkpointer:
    """Has a connection and a thread of its own.

    A passive checkpoint blocks neither the writer nor a reader; the next one copies the rest. The writer's own
    limit (``wal_autocheckpoint``) remains as the safety net.

    Commits go to the log, and succeed even if the file itself cannot be written any more. Once a checkpoint has
    failed for that reason they are refused until the file can be written again: otherwise the log would grow
    without end.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._refusal: StoreReadOnly | None = None
        self._next = CHANGES_BETWEEN
        self._asked = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="dalsegno-sqlite-checkpointer", daemon=True)
        self._thread.start()

    def notice(self, rows: int, large_bytes: int = 0) -> None:
        """Receive the progress of the writer after each commit.

        That is the number of rows changed since it was opened, and the bytes of large values among them.
        """
        changes = rows + large_bytes // LARGE_BYTES
        if changes >= self._next:
            self._next = changes + CHANGES_BETWEEN
            self._asked.set()

    def expect_writable(self) -> None:
        """Raise StoreReadOnly if the last checkpoint failed to write the file, and it still cannot be written."""
        if self._refusal is None:
            return
        if why_not_writable(self._path) is not None:
            raise self._refusal
        self._refusal = None
        self._asked.set()
        logger.info("%s can be written again", self._path)

    def close(self) -> None:
        self._closed = True
        self._asked.set()
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while True:
            self._asked.wait()
            if self._closed:
                return
            self._asked.clear()
            try:
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            except sqlite3.Error as error:
                self._failed(error)

    def _failed(self, error: sqlite3.Error) -> None:
        obstacle = why_not_writable(self._path)
        if obstacle is None:
            reason = explain(error, self._path)
            logger.warning("the log of the store could not be written into its file: %s", reason)
        else:
            self._refusal = StoreReadOnly(obstacle)
            logger.error("the store accepts no more commits: %s", obstacle)


Work = Callable[[SqliteWorkspace], T]

RETRY_SECONDS = 0.0005
"""Seconds between two tries for the write lock. SQLite's own waits grow to 100 ms, so that a busy process would
starve the others.
"""
GAP_SECONDS = 0.001
"""Seconds between two transactions while other processes write, too: their next try finds the lock free."""


class Writer:
    """Jobs that waited together run in one transaction: one sync to disk for all of them.

    If one of them fails, all are rolled back and run again one by one, so that each gets its own answer. A commit
    is confirmed only if the file is still at the store's path directly after it.
    """

    def __init__(
        self, connection: sqlite3.Connection, path: Path, checkpointer: Checkpointer, file: StoreFile
    ) -> None:
        self._connection = connection
        self._checkpointer = checkpointer
        self._path = path
        self._file = file
        self._workspace = SqliteWorkspace(connection)
        self._ended = 0.0
        """When the last transaction ended."""
        self.elsewhere = OtherProcesses(connection)
        self._made_claimable = 0
        """Number of transactions that let claims find more."""
        self._thread = DatabaseThread("dalsegno-sqlite-writer", self._run, self)

    async def call(self, work: Work[T]) -> T:
        return await self._thread.call(lambda: work(self._workspace))

    def call_blocking(self, work: Work[T]) -> T:
        return self._thread.call_blocking(lambda: work(self._workspace))

    @property
    def news(self) -> int:
        """A number that changes when claims may find more than before, by a commit of this or another process. Those
        of others are noticed a moment later.
        """
        return self._made_claimable + self.elsewhere.commits

    def idle_seconds(self) -> float:
        return self.elsewhere.idle_seconds()

    def look(self) -> None:
        """Run the idle work."""
        self.elsewhere.look()
        self._file.look()

    def close(self) -> None:
        self._thread.close()
        self._checkpointer.close()
        self._connection.close()

    def _run(self, jobs: Sequence[Job]) -> list[Answer]:
        answers = self._transaction(jobs)
        error = answers[0][1]
        if len(jobs) == 1 or error is None or isinstance(error, Unavailable | StoreLost | StoreReadOnly):
            return answers
        return [self._transaction([job])[0] for job in jobs]

    def _transaction(self, jobs: Sequence[Job]) -> list[Answer]:
        try:
            if self._file.lost is not None:
                raise self._file.lost
            self._checkpointer.expect_writable()
            self._begin()
            self._workspace.begin()
            results = []
            for job in jobs:
                results.append(job())
                self._workspace.flush()
            self._connection.execute("COMMIT")
            self._file.expect()
            self._ended = time.monotonic()
            if self._workspace.makes_claimable:
                self._made_claimable += 1  # only now: a read before this sees what was before
            self._checkpointer.notice(self._connection.total_changes, self._workspace.large_bytes)
            self.elsewhere.notice(self._workspace.version)
        except Exception as error:  # noqa: BLE001 - whatever a job raises is its caller's answer
            reason = self._abandon(error)
            return [(None, reason) for _ in jobs]
        return [(result, None) for result in results]

    def _begin(self) -> None:
        now = time.monotonic()
        if now - self._ended < GAP_SECONDS and self.elsewhere.is_active(now):
            time.sleep(GAP_SECONDS)
        deadline = now + BUSY_SECONDS
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return

    def _abandon(self, error: Exception) -> Exception:
        """Undo everything; the connection is usable again."""
        self._workspace.reset()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            error = second
        return explain(error, self._path)
