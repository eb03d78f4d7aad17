"""Whoever runs the system must act: stores out of order, full disks, wrong configuration: DS-2."""

from __future__ import annotations

OPERATING: dict[str, tuple[str, str]] = {
    "DS-200": (
        "The common class of the errors below: whoever runs the system must act.",
        "Workers go on trying on their own; calls from outside raise it at once.",
    ),
    "DS-210": (
        (
            "The store cannot be reached, or was locked by another process for ten seconds, or reading "
            "and writing failed."
        ),
        (
            "End whatever holds a write transaction on the file (a backup by hand, a `sqlite3` shell). "
            "Check the disk. Workers try again by themselves, at most every five seconds."
        ),
    ),
    "DS-220": (
        "No space left on the disk of the store. Nothing of the commit was applied.",
        (
            "Free some space. Workers keep what they have done and commit it then; nothing is lost. "
            "Beyond the length of a lease, a step may run again."
        ),
    ),
    "DS-230": (
        (
            "The file or its directory cannot be written. SQLite needs to write beside the file, too "
            "(`-wal`, `-shm`)."
        ),
        "Mend the permissions, or the mount.",
    ),
    "DS-240": (
        "The file is damaged, no SQLite database, or the database of another application.",
        (
            "Give another path; or stop all processes, keep a copy, and restore a backup. `sqlite3 FILE "
            ".recover` rescues what can be read."
        ),
    ),
    "DS-250": (
        (
            "The store was written by a newer version, or was opened for reading only by a newer one that"
            " would have to bring it up to date first."
        ),
        ("Upgrade this program; stores are brought up to date when they are opened for writing, never back."),
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
