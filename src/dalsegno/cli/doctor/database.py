"""Checks of the store: of a PostgreSQL server, and of the file of SQLite. Read-only, except for a scratch file next
to it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from dalsegno.adapters.sqlite.errors import explain, why_not_writable
from dalsegno.cli.doctor.check import Check, examined, judge
from dalsegno.engine.secrets.keys import FILE_VARIABLE, SUFFIX
from dalsegno.errors import DalSegnoError
from dalsegno.server.settings import is_loopback
from dalsegno.wiring import LISTEN_VARIABLE, require_postgres_driver

if TYPE_CHECKING:
    from dalsegno.adapters.postgres.diagnostics import Link


APART = 5.0
"""Seconds by which clocks may differ without a warning."""
SHOWN = 5
"""Number of missing rights that are named."""
KEEP_MAKING = (
    "Nothing is lost, and a retention empties it. Keep a process running whose user owns the tables of the schema"
    " `dalsegno`: it makes partitions a week ahead."
)


VERIFY = (
    "Add `sslmode=verify-full&sslrootcert=FILE` to the store's URL; the file has the certificate of the authority that"
    " signed the server's. Without it the driver falls back to plain text (`prefer`)."
)


async def examine_server(url: str) -> list[Check]:
    try:
        require_postgres_driver()
        from dalsegno.adapters.postgres.diagnostics import OLDEST, examine_database  # noqa: PLC0415 - needs the driver

        facts = await examine_database(url, os.environ.get(LISTEN_VARIABLE) or url)
    except DalSegnoError as error:
        return [
            judge("database", str(error), fail=True, cure="Check the URL, the network and the server's log.")
        ]
    apart = abs(facts.clock_ahead)
    clock = "ahead of" if facts.clock_ahead > 0 else "behind"
    return [
        judge(
            "database",
            f"PostgreSQL {facts.version}" + (", a standby" if facts.standby else ""),
            fail=facts.major < OLDEST or facts.standby,
            cure=f"Use a primary server of PostgreSQL {OLDEST} or newer.",
        ),
        judge(
            "durability",
            "commits are on disk" if facts.durable else "commits are confirmed before they are on disk",
            warn=not facts.durable,
            cure="Set fsync, full_page_writes and synchronous_commit on, unless losing the last moments is fine.",
        ),
        judge(
            "clearing up",
            "dead rows are removed"
            if facts.vacuums
            else "dead rows are never removed: everything gets slower",
            warn=not facts.vacuums,
            cure="Set autovacuum and track_counts on: every step leaves dead rows behind.",
        ),
        judge(
            "wake-ups",
            "reach this machine" if facts.wakes else "do not reach this machine: work is found by polling",
            warn=not facts.wakes,
            cure=f"Behind a pooler, give a direct URL in {LISTEN_VARIABLE}.",
        ),
        judge(
            "server's clock",
            f"{apart:.1f} s {clock} this machine's" if apart > 1 else "as this machine's",
            warn=apart > APART,
            cure="Set the clocks of all machines by NTP.",
        ),
        judge_links(facts.links),
    ]


def judge_links(links: Iterable[Link]) -> Check:
    """Check whether traffic to the server over a network can be read or changed on the way."""
    remote = [each for each in links if each.address and not is_loopback(each.address)]
    wrong = next((each for each in remote if not each.verified), None)
    if wrong is None:
        detail = "encrypted, the server's certificate is verified" if remote else "stays on this machine"
        return judge("encryption", detail)
    detail = (
        f"the certificate of the server at {wrong.address} is not verified: another machine can pose as it"
        if wrong.encrypted
        else f"the connection to {wrong.address} is plain text: passwords' hashes and all data can be read on its way"
    )
    return judge("encryption", detail, warn=True, cure=VERIFY)


async def examine_rights(url: str) -> list[Check]:
    """Check the user's rights. Empty if none is missing."""
    from dalsegno.adapters.postgres.diagnostics import examine_rights_of  # noqa: PLC0415 - needs the driver

    refused = await examine_rights_of(url)
    if refused is None:
        return []
    shown = ", ".join(refused.names[:SHOWN])
    more = f" and {len(refused.names) - SHOWN} more" if len(refused.names) > SHOWN else ""
    detail = f"the role {refused.role} may not read and write all of the store: {shown}{more}"
    cure = f"Let the owner of the schema or a superuser run: {refused.cure}"
    return [judge("rights", detail, fail=True, cure=cure)]


async def examine_history(url: str) -> Check:
    """Check, for a database with our schema, that each day has a partition of its own, now and in the days to come."""
    from dalsegno.adapters.postgres.diagnostics import examine_history_of  # noqa: PLC0415 - needs the driver

    facts = await examine_history_of(url)
    found = []
    if facts.in_common is not None:
        days = _span(*facts.in_common)
        found.append(f"of {days} is in no partition of its own: it is removed row by row, which takes longer")
    if facts.missing is not None:
        found.append(f"of {_span(*facts.missing)} has no partition to go to")
    if not facts.ownership.suffices:
        found.append(f"{facts.ownership.complaint()}, and so cannot make partitions")
    return judge(
        "history",
        "; ".join(found) or "each day has a partition of its own",
        warn=bool(found),
        cure=KEEP_MAKING if facts.ownership.suffices else f"Nothing is lost. {facts.ownership.cure()}",
    )


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first} to {last}"


# -- checks of a SQLite store's file. Read-only, except for a scratch file next to it ------------------------

GIGABYTE = 1_000_000_000
LITTLE = 100_000_000
QUICK = 200_000_000
"""Bytes up to which a file is checked page by page."""
SLOW_SYNC = 0.03
OTHERS = 0o077
COMPANION_SUFFIXES = ("-wal", "-shm", "-journal", SUFFIX)
RIGHTS = "Give this user the right to read and write the file and its directory."
RESTORE = "Stop all processes and restore a backup, or give another path."
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")


def examine_file(path: Path) -> list[Check]:
    folder = path.absolute().parent
    if not folder.is_dir():
        cure = "Create it, or give another path with --store."
        return [judge("store", f"the directory {folder} does not exist", fail=True, cure=cure)]
    checks = [
        *examined("store", lambda: _place(path), RIGHTS),
        *examined("disk", lambda: _disk(folder), RIGHTS),
        *examined("file system", lambda: _file_system(folder), RIGHTS),
    ]
    if os.access(folder, os.W_OK):
        checks += examined("disk sync", lambda: _sync(folder), f"Free some space at {folder}.")
    if path.is_file():
        checks += examined("permissions", lambda: _readers(path), RIGHTS)
        checks += examined("content", lambda: _content(path), RESTORE)
    return checks


def _readers(path: Path) -> Check:
    """Check which users besides the owner can read the store and the key of its credentials."""
    found = [path.with_name(path.name + suffix) for suffix in ("", *COMPANION_SUFFIXES)]
    if named := os.environ.get(FILE_VARIABLE):
        found.append(Path(named))
    read = [each for each in found if each.is_file() and each.stat().st_mode & OTHERS]
    names = " ".join(shlex.quote(str(each)) for each in read)
    detail = f"others may read or write {names}" if read else "only their owner may read the store's files"
    cure = f"If no other user needs them: chmod go= {names}"
    return judge("permissions", detail, warn=bool(read), cure=cure)


def _place(path: Path) -> Check:
    folder = path.absolute().parent
    if path.is_dir():
        return judge("store", f"{path} is a directory", fail=True, cure="Give the path of a file.")
    obstacle = why_not_writable(path)
    if obstacle is not None or not os.access(folder, os.W_OK):
        detail = obstacle or f"no file can be created next to {path}, which SQLite needs"
        return judge("store", detail, fail=True, cure=None if obstacle is not None else RIGHTS)
    if not path.exists():
        cure = "The first `dalsegno run` or `dalsegno deploy` creates it."
        return judge("store", f"there is no store at {path} yet", warn=True, cure=cure)
    return judge("store", f"{path}, {path.stat().st_size / 1e6:.1f} MB, writable")


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.1f} GB free"
    return judge(
        "disk", detail, fail=free < LITTLE, warn=free < GIGABYTE, cure=f"Free some space at {folder}."
    )


def _file_system(folder: Path) -> Check:
    kind = _kind_of(folder)
    cure = "SQLite needs a local file system: locks over a network are not reliable."
    return judge("file system", kind or "unknown", warn=kind in REMOTE, cure=cure)


def _kind_of(folder: Path) -> str:
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        _, point, found, *_ = line.split()
        if folder.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _sync(folder: Path) -> Check:
    """Check how long a commit takes to reach the disk."""
    took = []
    with tempfile.TemporaryFile(dir=folder) as scratch:
        for _ in range(5):
            scratch.write(b"x" * 4096)
            scratch.flush()
            began = time.perf_counter()
            os.fsync(scratch.fileno())
            took.append(time.perf_counter() - began)
    middle = sorted(took)[2]
    cure = "Commits wait for this disk; a local SSD would be faster."
    return judge("disk sync", f"{middle * 1000:.2f} ms", warn=middle > SLOW_SYNC, cure=cure)


def _content(path: Path) -> list[Check]:
    """Check journal mode and damage. Whether the schema fits is checked by opening the store."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=5)
        try:
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            damage = "not checked: a large file"
            if path.stat().st_size <= QUICK:
                (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        reason = explain(error, path)
        return [judge("content", str(reason), fail=True, cure=RESTORE)]
    damaged = damage != "ok" and not damage.startswith("not checked")
    return [
        judge("journal", mode, warn=mode != "wal", cure="The next process that writes turns WAL on."),
        judge("content", damage, fail=damaged, cure="Stop all workers and restore a backup."),
    ]
