"""Whoever runs the system must act: stores out of order, full disks, wrong configuration: DS-2."""

from __future__ import annotations

OPERATING: dict[str, tuple[str, str]] = {
    "DS-200": (
        "The common class of the errors below: whoever runs the system must act.",
        "Workers go on trying on their own; calls from outside raise it at once.",
    ),
    "DS-211": (
        (
            "Checks of definitions, schemas and payloads run beside the server's event loop, in a queue that callers "
            "share fairly. Too many jobs of this caller wait in it, or the job did not begin in time."
        ),
        (
            "Send fewer at a time, and repeat the request after the seconds that `Retry-After` gives: nothing was "
            "done. If honest callers see it, raise `check_processes` or `check_queue` of the server; see "
            "[Limits](../limits.md)."
        ),
    ),
    "DS-210": (
        (
            "The store cannot be reached, or was locked by another process (a SQLite file for ten seconds, rows of "
            "PostgreSQL for five), or reading and writing failed. On PostgreSQL also whatever it has with itself: it "
            "is starting or stopping, has no connection or memory left, cannot read its files."
        ),
        (
            "Of a file: end whatever holds a write transaction on it (a backup by hand, a `sqlite3` shell), and check "
            "the disk. Of PostgreSQL: the message has its words and its `SQLSTATE`; look at the server, its log and "
            "the network, and at `max_connections`. If none of several servers takes writes, promote one. Workers "
            "try again by themselves, at most every five seconds. Where a server says that the outcome of a call is "
            "unknown, send the call again with its `Idempotency-Key`, or look first whether it was done."
        ),
    ),
    "DS-220": (
        "No space left on the disk of the store, or on that of PostgreSQL. Nothing of the commit was applied.",
        (
            "Free some space. Workers keep what they have done and commit it then; nothing is lost. "
            "Beyond the length of a lease, a step may run again."
        ),
    ),
    "DS-230": (
        (
            "The store cannot be written. SQLite: the file or its directory, for it needs to write beside the file, "
            "too (`-wal`, `-shm`). PostgreSQL: the server is a standby or has become one, its sessions are read-only "
            "by default, or the user lacks rights."
        ),
        (
            "Of a file: do what the message says: mend the permissions (`chmod`, `chown`), take the attribute away "
            "(`chattr -i`), or mount the file system for writing. Of PostgreSQL: name all servers in the URL, with "
            "`target_session_attrs=read-write` (see [Failover](../postgresql.md#failover)), and promote one; set "
            "`default_transaction_read_only` off; or grant the user the schema `dalsegno`, its tables and "
            "sequences (see [Rights of the user](../postgresql.md#rights-of-the-user)). Processes that run go on by "
            "themselves then."
        ),
    ),
    "DS-231": (
        (
            "The file of a SQLite store, or its `-wal` or `-shm`, was deleted, moved or replaced while the process had "
            "it open. SQLite would go on writing to what nobody can find; so every commit and every read is refused "
            "from then on, and a commit that was under way is not confirmed. The process logs it once and ends with "
            "exit code 4; a server answers 503 until it has."
        ),
        (
            "Stop all processes that use the store. Put the file back with its `-wal` and `-shm`, or restore a backup "
            "(see [Backup](../operations.md#backup)), then start them again. A process that is started without the "
            "file makes an empty store: the units for systemd do not start it again by themselves. If only `-wal` was "
            "deleted, starting again is enough: what was committed is folded into the file when the last process ends."
        ),
    ),
    "DS-240": (
        (
            "The file is damaged, no SQLite database, or the database of another application. PostgreSQL: it reports "
            "damaged data or a damaged index."
        ),
        (
            "Of a file: give another path; or stop all processes, keep a copy, and restore a backup. `sqlite3 FILE "
            ".recover` rescues what can be read. Of PostgreSQL: `REINDEX` mends an index; for anything else stop all "
            "processes and restore a backup, on another disk."
        ),
    ),
    "DS-250": (
        (
            "The store was written by a newer version, or was opened for reading only by a newer one that"
            " would have to bring it up to date first. PostgreSQL: a table, column or function is missing that this "
            "program needs, as when `dalsegno migrate --finish` ran while it was running."
        ),
        (
            "Upgrade this program; stores are brought up to date when they are opened for writing, never back. If it "
            "is this program that is newer, `dalsegno migrate`. A worker that was left behind is to be stopped: what "
            "it holds goes on elsewhere when its leases have ended."
        ),
    ),
    "DS-260": (
        "A setting or URL is wrong, a directory does not exist, or a node plugin cannot be loaded.",
        "The message names the setting, and how it is written.",
    ),
    "DS-270": (
        (
            "The stored state of a script or Python workflow, or its stored program, cannot be read: it is damaged, "
            "belongs to another program, or was written by a later version."
        ),
        (
            "Run workers of the version that wrote it, or a later one. If the store is damaged, restore it from a "
            "backup; `dalsegno retry EXECUTION` starts the execution anew."
        ),
    ),
}
