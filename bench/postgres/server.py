"""A private PostgreSQL to measure on: set up as a server that has been at work for a while, gone after the run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.postgres import PostgresServer, make_template
from tests.servers.workspace import Workspace

SETTINGS = {"autovacuum": "on", "min_wal_size": "1GB", "max_wal_size": "2GB"}
LOG_FILES = 63
"""Of 16 MB each: as many as ``min_wal_size`` keeps to be used again."""
NEXT_LOG_FILE = "SELECT pg_logical_emit_message(false, 'warm', 'up'), pg_switch_wal()"
"""A file in which nothing was written is not left."""


@contextmanager
def private_postgres(log_files: int = LOG_FILES) -> Iterator[PostgresServer]:
    """On a free port, from the installed programs. Nothing of it is left, however the block ends; of a run that was
    killed with -9 the kernel ends the server, and the next run removes the files."""
    with _terminated_like_interrupted():
        workspace = Workspace()
        try:
            template = make_template(workspace.new_folder("initdb"))
            with PostgresServer(workspace.new_folder("pg"), template, SETTINGS) as server:
                warm_up_log(server, log_files)
                yield server
        finally:
            workspace.remove()


def warm_up_log(server: PostgresServer, log_files: int) -> None:
    """While a server makes a new file of its log nobody commits. So they are made now; a checkpoint gives them free."""
    for _ in range(log_files):
        server.psql(NEXT_LOG_FILE)
    server.psql("CHECKPOINT")


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM would end this process on the spot, and leave its files."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def describe(server: PostgresServer) -> str:
    """What figures are worth nothing without."""
    version = server.psql("SHOW server_version").split()[0]
    return f"PostgreSQL {version} beside it on {os.cpu_count()} cores; load before: {os.getloadavg()[0]:.1f}"
