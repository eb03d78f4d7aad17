"""A server process that can be killed and started again on the same port, and that never outlives its tests.

Two things end a server that nobody stopped: the kernel kills it when the process that started it dies, even by
``kill -9`` (PR_SET_PDEATHSIG, set by ``setpriv``), and the workspace of a dead run is swept by the next run.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from random import SystemRandom
from typing import Self

HOST = "127.0.0.1"

# Below Linux's ephemeral range (32768 and up): while a server is dead, no client socket can take its port.
_PORTS = range(15_000, 32_000)

_LONGEST_START = 200.0
"""Seconds. RabbitMQ works six of them, and a host that is busy elsewhere gives it a tenth of a core."""

# PDEATHSIG fires when the *thread* that forked ends, so all servers are started by one thread that lives as long
# as the process does, whichever thread asked.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="servers")


class ServerFailed(Exception):
    """The server did not start; the end of its log is in the message."""


class Server(abc.ABC):
    """One server with a port, a folder and a log of its own. Start it, kill it, start it again, stop it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Where clients connect to."""

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ServerFailed("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the server and returns when it accepts commands. Does nothing if it runs."""
        if self.running:
            return
        self._process = _spawner.submit(self._spawn).result()
        try:
            wait_until(self._ready_or_dead, seconds=_LONGEST_START, what=f"{self._name} to start")
        except TimeoutError as error:
            self.kill()
            raise ServerFailed(f"{error}\n{self._log_end()}") from error
        if not self.running:
            raise ServerFailed(f"{self._name} ended with {self._process.returncode}\n{self._log_end()}")

    def kill(self) -> None:
        """``kill -9`` of the server and all its processes. Returns when they are gone; the data stays."""
        if self._process is None:
            return
        family = [self._process.pid, *children_of(self._process.pid)]
        kill_all(family)
        self._process.wait()
        wait_until(lambda: not any(map(alive, family)), seconds=60, what="killed processes to be gone")
        self._process = None

    def stop(self) -> None:
        """Orderly shutdown. The data stays; ``start`` works again."""
        if self._process is None:
            return
        self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def discard(self) -> None:
        """Ends the server and removes its data: as fast as possible, because nobody will look at it again."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    # What each kind of server says about itself.

    _name: str
    _stop_signal: signal.Signals

    @abc.abstractmethod
    def _command(self) -> list[str]: ...

    @abc.abstractmethod
    def _ready(self) -> bool: ...

    def _identity(self) -> tuple[int, int] | None:
        """The user and group to run as, if not our own."""
        return None

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = self._command()
        if setpriv := shutil.which("setpriv"):
            command = [setpriv, "--pdeathsig", "KILL", *command]
        user, group = self._identity() or (None, None)
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
                process_group=0,  # a Ctrl-C at the terminal is for pytest, which then stops us
            )

    def _ready_or_dead(self) -> bool:
        return not self.running or self._ready()

    def _log_end(self) -> str:
        return "\n".join(self.log_text().splitlines()[-20:])


def die_with_parent() -> None:
    """Makes the kernel kill this process when the one that started it dies."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)


class _Ports:
    """Ports that this process was given. No other process of tests is given them until this one ends: a server that is
    dead for a while, or not there yet, finds its port free. A port is a byte of one file, which its process locks."""

    def __init__(self) -> None:
        self._file = os.open(
            Path(tempfile.gettempdir(), f"dalsegno-test-ports-{os.getuid()}"), os.O_RDWR | os.O_CREAT, 0o600
        )
        self._process = os.getpid()
        self._given: set[int] = set()

    def take(self, port: int) -> bool:
        """Return whether the port is ours now, and was not before."""
        if os.getpid() != self._process:  # the locks belong to the process from which this one was forked
            self._process, self._given = os.getpid(), set()
        if port in self._given:
            return False
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except BlockingIOError:
            return False
        self._given.add(port)
        return True


@cache
def _ports() -> _Ports:
    return _Ports()


def free_port() -> int:
    """A port where nothing listens, which no other call gives while this process lives."""
    random = SystemRandom()
    while True:
        port = random.choice(_PORTS)
        if not _ports().take(port):
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def wait_until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether the process exists and is more than an unreaped zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def kill_all(pids: Iterable[int]) -> None:
    """``kill -9`` of those that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> list[str]:
    """Its words; none if it is gone, which may happen between two looks at the same list of processes."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def children_of(pid: int) -> list[int]:
    """All descendants. PostgreSQL's backends call setsid, so a process group would miss them."""
    try:
        direct = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [descendant for child in map(int, direct) for descendant in (child, *children_of(child))]
