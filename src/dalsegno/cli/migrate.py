"""The work of ``migrate`` and ``backup``, by the kind of store.

``--finish`` is refused while older processes run that use what it removes.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dalsegno.adapters.urls import shown_url
from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import stderr
from dalsegno.cli.target.stores import require_url
from dalsegno.engine.secrets.keys import FILE_VARIABLE, SUFFIX
from dalsegno.engine.worker.directory import seen_among
from dalsegno.ports.ledger import ConnectedProcess, WorkerView
from dalsegno.version import __version__
from dalsegno.wiring import SystemClock, is_postgres, require_postgres_driver, sqlite_path

if TYPE_CHECKING:
    from dalsegno.adapters.sqlite.backup import Backup


NAMED = 10
"""Processes that are named; the others are counted."""
RELEASE = re.compile(r"\d+(?:\.\d+)*")
HINT = (
    "Replace them by this version first, or stop them; a killed worker is forgotten when its lease "
    "expires. Behind a pooler also check schedulers, and servers without a worker: they may not be shown. "
    "--force finishes anyway, and older processes break."
)


def refuse_odd_options(*, check: bool, finish: bool, force: bool) -> None:
    """Refuse contradictory options before the store is opened."""
    if check and finish:
        raise Refusal(
            "--check only reports, and --finish removes something",
            "Check first with `dalsegno migrate --check`, then run `dalsegno migrate --finish`.",
        )
    if force and not finish:
        raise Refusal(
            "--force has no effect without --finish",
            "Write `dalsegno migrate --finish --force` to remove even what older processes may still use, or"
            " `dalsegno migrate` alone, which removes nothing.",
        )


def refuse_beside_older(
    workers: Sequence[WorkerView], connected: Sequence[ConnectedProcess], now: float
) -> None:
    """Refuse to finish the upgrade if heartbeats or connections show processes of older versions."""
    alive = [seen for seen in seen_among(workers, now) if seen.state == "alive"]
    older = [seen for seen in alive if is_older(seen.version)]
    named = {seen.name for seen in older}
    others = [each for each in connected if is_older(each.version) and each.name not in named]
    found = []
    if older:
        found.append(f"older workers are alive: {_some([_label(each.name, each.version) for each in older])}")
    if others:
        described = _some([_label(_place_of(each), each.version) for each in others])
        found.append(f"older processes are connected: {described}")
    if found:
        raise Refusal(f"the upgrade cannot be finished while {', and '.join(found)}", HINT)


def is_older(version: str | None, than: str = __version__) -> bool:
    """Return whether a version is older, or unknown. One of the same number but with another suffix (``1.0rc1``) counts
    as older."""
    return version is None or (version != than and _release(version) <= _release(than))


def _release(version: str) -> tuple[int, ...]:
    found = RELEASE.match(version)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def _some(described: Sequence[str]) -> str:
    different = list(dict.fromkeys(described))
    more = f" and {len(different) - NAMED} more" if len(different) > NAMED else ""
    return ", ".join(different[:NAMED]) + more


def _place_of(process: ConnectedProcess) -> str:
    name = process.name or "a process"
    return f"{name} at {process.address}" if process.address else name


def _label(name: str, version: str | None) -> str:
    return f"{name} ({f'version {version}' if version else 'does not say its version'})"


@dataclass(frozen=True, slots=True)
class SchemaState:
    before: int
    after: int
    newest: int

    def sentence(self, *, finish: bool = False) -> str:
        """Describe the result. ``finish``: the upgrade was to be finished."""
        if self.before != self.after:
            return f"schema {self.before} is now {self.after}"
        if self.after > self.newest:
            return f"schema {self.after} is newer than this program, which knows up to {self.newest}, and fits it"
        if self.after < self.newest:
            return f"schema {self.after} of {self.newest}: not up to date"
        return f"schema {self.after} is up to date" + ("; there is nothing to remove" if finish else "")


async def bring_up_to_date(url: str, *, check: bool, finish: bool, force: bool = False) -> SchemaState:
    """Migrate the store. ``force``: finish the upgrade even while processes of older versions run."""
    if is_postgres(url):
        return await _postgres(url, check=check, finish=finish, force=force)
    if url.startswith("sqlite:"):
        return await asyncio.to_thread(_sqlite, url, check=check)
    raise Refusal("a store in memory has no schema to migrate", "Give a SQLite or PostgreSQL store.")


async def _postgres(url: str, *, check: bool, finish: bool, force: bool) -> SchemaState:
    require_postgres_driver()
    from dalsegno.adapters.postgres.migration import upgrade  # noqa: PLC0415 - only who has such a store has the driver

    agree = None if force else refuse_beside_older
    return SchemaState(*await upgrade(url, check=check, finish=finish, agree=agree))


def _sqlite(url: str, *, check: bool) -> SchemaState:
    from dalsegno.adapters.sqlite import SqliteStore  # noqa: PLC0415 - only what is used is loaded
    from dalsegno.adapters.sqlite.connections import connect_reader  # noqa: PLC0415 - the same
    from dalsegno.adapters.sqlite.migration import check as version_of  # noqa: PLC0415 - the same
    from dalsegno.adapters.sqlite.migration import migrations  # noqa: PLC0415 - the same

    path, newest = sqlite_path(url), len(migrations())
    before = 0
    if path.exists():
        connection = connect_reader(path)
        try:
            before = version_of(connection, path, newest)
        finally:
            connection.close()
    if not check:
        SqliteStore.open(path, SystemClock()).close()
    return SchemaState(before, before if check else newest, newest)


SHOW_EVERY = 1.0
"""Seconds between two lines of progress; a terminal is updated in place ten times as often."""


class Progress:
    """Progress of the copy, on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._in_place = sys.stderr.isatty()
        self._next = time.monotonic() + (0.0 if self._in_place else SHOW_EVERY)
        self._is_begun = False

    def show(self, copied: int, total: int) -> None:
        now = time.monotonic()
        if self._quiet or (now < self._next and copied < total):
            return
        if copied == total and not self._is_begun:
            return  # the copy took no time
        self._is_begun = True
        self._next = now + (SHOW_EVERY / 10 if self._in_place else SHOW_EVERY)
        end = "\r" if self._in_place and copied < total else "\n"
        print(f"copied {100 * copied // max(total, 1)} %", end=end, file=sys.stderr, flush=True)


def copy(url: str, file: Path, progress: Progress) -> Backup:
    """Copy a SQLite store. Raise Refusal for stores that are backed up otherwise."""
    require_url(url)
    if is_postgres(url):
        raise Refusal(
            "PostgreSQL makes its own backups; this command copies SQLite files",
            f"Run: {pg_dump(url, file)}",
        )
    if not url.startswith("sqlite:"):
        raise Refusal(
            f"a {url} store ends with its process: there is nothing to copy", "Give a SQLite store."
        )
    from dalsegno.adapters.sqlite.backup import back_up  # noqa: PLC0415 - only what is used is loaded

    return back_up(sqlite_path(url), file, progress.show)


def pg_dump(url: str, file: Path) -> str:
    """Return the command that dumps a PostgreSQL store, also in one consistent state. A password goes into PGPASSWORD
    or ~/.pgpass."""
    where = shown_url(url).replace(":***@", "@")
    return shlex.join(("pg_dump", "--format=custom", "--schema=dalsegno", f"--file={file}", where))


def print_missing_key(url: str) -> None:
    """Say where the key of the credentials is: it is kept outside the store, so the copy does not contain it."""
    path = sqlite_path(url)
    beside = path.with_name(path.name + SUFFIX)
    named = os.environ.get(FILE_VARIABLE)
    key = Path(named) if named else beside
    if key.is_file():
        stderr().print(
            f"the key of its credentials is not in it: keep a separate copy of {key}",
            markup=False,
            soft_wrap=True,
        )
