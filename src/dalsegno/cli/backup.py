"""The work of ``backup``, by the kind of store."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dalsegno.adapters.urls import shown_url
from dalsegno.cli.errors import Refusal
from dalsegno.cli.output import stderr
from dalsegno.cli.target.stores import require_url
from dalsegno.engine.secrets.keys import FILE_VARIABLE, SUFFIX
from dalsegno.wiring import is_postgres, sqlite_path

if TYPE_CHECKING:
    from dalsegno.adapters.sqlite.backup import Backup

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
