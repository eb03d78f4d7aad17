"""A private PostgreSQL from the installed binaries: durable as in production, reachable only from this machine."""

from __future__ import annotations

import functools
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.servers.process import HOST, Server, ServerFailed

OLDEST_MAJOR = 15
SUPERUSER = "dalsegno"

# fsync, synchronous_commit and full_page_writes stay as they are: kill -9 is what these servers are for.
_SETTINGS = {
    "listen_addresses": HOST,
    "max_connections": "200",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] %d ",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, where nothing outlives the folder
}


_END = "--- the end of an answer ---"


class PostgresServer(Server):
    """``settings`` are those of postgresql.conf and win over ours."""

    _name = "PostgreSQL"
    _stop_signal = signal.SIGINT  # "fast": does not wait for clients

    def __init__(self, folder: Path, template: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        self.data = folder / "data"
        self._settings = {**_SETTINGS, "unix_socket_directories": str(folder), **(settings or {})}
        subprocess.run(["cp", "-a", "--reflink=auto", template, self.data], check=True)
        if identity := server_identity():
            os.chown(folder, *identity)

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Creates an empty database and returns its URL."""
        self.psql(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        self.psql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def psql(self, statement: str, database: str = "postgres") -> str:
        """Runs one statement and returns its rows, without needing an event loop."""
        command = [
            str(binary("psql")),
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            statement,
            self.url_of(database),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServerFailed(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip()

    def discard(self) -> None:
        self.kill()
        release_shared_memory(self.data / "postmaster.pid")
        super().discard()

    def _command(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(binary("postgres")), "-D", str(self.data), *options]

    def _ready(self) -> bool:
        """The postmaster writes its state into its pid file; a stale file names another process."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def _identity(self) -> tuple[int, int] | None:
        return server_identity()


class Session:
    """One session of psql for many statements, without an event loop."""

    def __init__(self, url: str) -> None:
        self._process = subprocess.Popen(
            [str(binary("psql")), "-XAtq", "-v", "ON_ERROR_STOP=1", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, statement: str) -> str:
        """Runs one statement and returns its rows."""
        commands, answers = self._process.stdin, self._process.stdout
        assert commands is not None
        assert answers is not None
        commands.write(f"{statement};\n\\echo {_END}\n")
        commands.flush()
        lines: list[str] = []
        while (line := answers.readline()) != f"{_END}\n":
            if not line:
                raise ServerFailed(f"{statement}: {''.join(lines).strip()}")
            lines.append(line)
        return "".join(lines).strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def make_template(folder: Path) -> Path:
    """A fresh cluster to copy from: initdb takes a second or two, a copy a tenth of one."""
    template = folder / "template"
    options = ["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-instructions", "--no-sync"]
    run_tool("initdb", folder, "-D", str(template), "-U", SUPERUSER, *options)
    return template


def run_tool(name: str, folder: Path, *options: str) -> None:
    """One of PostgreSQL's own, in a folder that it may write to."""
    identity = server_identity()
    if identity:
        os.chown(folder, *identity)
    user, group = identity or (None, None)
    done = subprocess.run(
        [binary(name), *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        check=False,
    )
    if done.returncode:
        raise ServerFailed(f"{name} failed\n{done.stdout}")


def release_shared_memory(pid_file: Path) -> None:
    """A killed postmaster leaves a small System V segment behind; line 7 of its pid file names it."""
    try:
        segment = pid_file.read_text().splitlines()[6].split()[1]
    except (FileNotFoundError, IndexError):
        return
    if ipcrm := shutil.which("ipcrm"):
        subprocess.run([ipcrm, "-m", segment], capture_output=True, check=False)


@functools.cache
def server_identity() -> tuple[int, int] | None:
    """PostgreSQL refuses to run as root: then it runs as ``postgres``, or as ``nobody`` where that is missing."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return user.pw_uid, user.pw_gid
    raise ServerFailed("PostgreSQL does not run as root, and there is no user `postgres` or `nobody`")


def binary(name: str) -> Path:
    return _binaries() / name


@functools.cache
def _binaries() -> Path:
    """The folder of the newest PostgreSQL; Debian and Red Hat keep the server's programs out of PATH."""
    on_path = shutil.which("postgres")
    found = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *([Path(on_path).resolve().parent] if on_path else []),
    ]
    majors = {_major(folder): folder for folder in found if (folder / "initdb").exists()}
    if not majors or max(majors) < OLDEST_MAJOR:
        raise ServerFailed(
            f"PostgreSQL {OLDEST_MAJOR} or newer is not installed; tests/servers/ensure tells how"
        )
    return majors[max(majors)]


def _major(folder: Path) -> int:
    version = subprocess.run([folder / "postgres", "-V"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"(\d+)", version)
    return int(match[1]) if match else 0
