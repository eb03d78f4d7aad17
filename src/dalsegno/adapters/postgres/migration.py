"""The schema `dalsegno`: numbered files, applied forward only, and functions, replaced when their text changes."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import Any

from dalsegno.errors import SchemaMismatch

LOCK = 0x4453474E
"""Key of the advisory lock under which two processes that migrate at once take turns."""

PREPARE = """
CREATE SCHEMA IF NOT EXISTS dalsegno;
CREATE TABLE IF NOT EXISTS dalsegno.installed (single boolean PRIMARY KEY DEFAULT true CHECK (single),
                                               schema integer NOT NULL, functions text NOT NULL);
INSERT INTO dalsegno.installed (schema, functions) VALUES (0, '') ON CONFLICT DO NOTHING;
"""


def texts(folder: str) -> list[str]:
    """The files of ``schema`` or ``functions``, in their order."""
    entries = sorted((files("dalsegno.adapters.postgres") / folder).iterdir(), key=lambda entry: entry.name)
    return [entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".sql")]


async def migrate(connection: Any) -> None:
    """Brings schema and functions up to date in one transaction."""
    steps, functions = texts("schema"), "\n".join(texts("functions"))
    fingerprint = sha256(functions.encode()).hexdigest()
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await connection.execute(PREPARE)
        version, installed = await connection.fetchrow("SELECT schema, functions FROM dalsegno.installed")
        if version > len(steps):
            raise SchemaMismatch(
                f"the database has schema version {version}, this program knows up to {len(steps)}:"
                " it was written by a newer Dal Segno; upgrade this one, or use another database"
            )
        for step in steps[version:]:
            await connection.execute(step)
        if installed != fingerprint:
            await connection.execute(functions)
        await connection.execute(
            "UPDATE dalsegno.installed SET schema = $1, functions = $2", len(steps), fingerprint
        )
