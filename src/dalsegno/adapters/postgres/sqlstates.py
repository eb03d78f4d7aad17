"""What PostgreSQL's error codes mean here: whose fault it is, and what helps.

A code is looked up as a whole, then by its first two characters, its class. A code that stands nowhere is the store's
fault: the work is kept and tried again. Only what is said about a value may fail the step that brought it.
"""

from __future__ import annotations

from dalsegno.errors import (
    BadConfiguration,
    DalSegnoError,
    SchemaMismatch,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    Unavailable,
)

Meaning = tuple[type[DalSegnoError], str]

REFUSED_CLASSES = frozenset(("21", "22", "23", "54"))
"""About rows that were given: one of them twice in a batch, a value that no column can hold, a row that is there
already or lacks something, a value beyond a limit of the server. No table here checks anything else."""

NO_SESSION = frozenset(("25006", "26000"))
"""The session is of no use any more, though its connection is there: its server has become a standby, or somebody has
thrown away what was prepared in it."""

READ_ONLY = "25006"

MISFIT = (
    "the tables do not fit this program. If a newer version has migrated them, upgrade this program; else run "
    "`dalsegno migrate` with it"
)


def rights(user: str) -> str:
    """All that it takes to run workflows in tables of somebody else."""
    return (
        f"GRANT USAGE ON SCHEMA dalsegno TO {user}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA dalsegno TO {user}; "
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA dalsegno TO {user};"
    )


NO_RIGHT = (
    "the database user may not do this. To run workflows, grant it the schema `dalsegno` and what is in it: "
    + rights("<user>")
    + " To migrate, and to make and drop partitions of history, it has to own the tables or be a member of the role"
    " that does (GRANT <owner> TO <user>;), and to install them it needs CREATE on the database"
)

BY_STATE: dict[str, Meaning] = {
    "25006": (
        StoreReadOnly,
        "the database takes no writes: it is a standby or has become one, or its sessions are read-only by default",
    ),
    "25P03": (Unavailable, "this process stood still in a transaction, which the server has ended"),
    "26000": (Unavailable, "somebody has thrown away what this session had prepared; it is replaced"),
    "28000": (BadConfiguration, "the user may not connect: see its role, and pg_hba.conf of the server"),
    "28P01": (
        BadConfiguration,
        "the password is wrong: it stands in the store's URL, in PGPASSWORD or in ~/.pgpass",
    ),
    "3D000": (
        BadConfiguration,
        "there is no such database: create it, or name another one in the store's URL",
    ),
    "40001": (Unavailable, "PostgreSQL has undone a transaction beside another one; it can be sent again"),
    "40P01": (
        Unavailable,
        "PostgreSQL has undone a transaction that stood in another's way; it can be sent again",
    ),
    "42501": (StoreReadOnly, NO_RIGHT),
    "42P01": (SchemaMismatch, f"a table is missing: {MISFIT}, as a user that may create it"),
    "42883": (SchemaMismatch, f"a function is missing: {MISFIT}, as a user that may create it"),
    "53100": (StoreFull, "no space left on the database's disk; nothing of this commit was applied"),
    "55000": (Unavailable, "PostgreSQL refuses this for now"),
    "55P03": (Unavailable, "others held for too long what a transaction needs; it can be sent again"),
    "57014": (Unavailable, "PostgreSQL has ended a statement: somebody cancelled it, or it took too long"),
    "XX001": (StoreCorrupt, "the database reports damaged data; restore a backup"),
    "XX002": (StoreCorrupt, "the database reports a damaged index; REINDEX, or restore a backup"),
}

_BUSY: Meaning = (Unavailable, "PostgreSQL is busy or short of something")

BY_CLASS: dict[str, Meaning] = {
    "0A": (Unavailable, "PostgreSQL does not take this statement now, as after a change of its tables"),
    "25": (
        Unavailable,
        "the transaction is in a state in which PostgreSQL does nothing more; begin another one",
    ),
    "26": (Unavailable, "a prepared statement is not there; it is prepared again"),
    "3F": (SchemaMismatch, f"the schema `dalsegno` is missing: {MISFIT}, as a user that may create it"),
    "40": _BUSY,
    "42": (SchemaMismatch, MISFIT),
    "53": _BUSY,
    "55": _BUSY,
    "57": _BUSY,
    "58": (
        Unavailable,
        "PostgreSQL cannot read or write its files: see the disk of its machine, and its log",
    ),
    "XX": (Unavailable, "PostgreSQL has failed inside: see its log"),
}

UNKNOWN: Meaning = (Unavailable, "PostgreSQL reports something that is not expected here: see its log")


def meaning_of(state: str) -> Meaning:
    """Of a code outside of ``REFUSED_CLASSES``."""
    return BY_STATE.get(state) or BY_CLASS.get(state[:2]) or UNKNOWN
