"""What a database says of its schema: which files were applied, and which programs it still fits."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dalsegno.errors import SchemaMismatch

HAS_NAMESPACE = "SELECT to_regnamespace('dalsegno') IS NOT NULL"
HAS_TABLE = "SELECT to_regclass('dalsegno.installed') IS NOT NULL"
HAS_OLDEST = """
SELECT EXISTS (
    SELECT FROM pg_attribute
    WHERE attrelid = 'dalsegno.installed'::regclass AND attname = 'oldest' AND NOT attisdropped
)
"""
NUMBERS = "SELECT schema, (to_jsonb(installed) ->> 'oldest')::integer FROM dalsegno.installed"
"""Also where the table was made before there was a second number."""
MAKE_TABLE = """
CREATE TABLE IF NOT EXISTS dalsegno.installed (
    single boolean PRIMARY KEY DEFAULT true CHECK (single), -- one row
    schema integer NOT NULL, -- files applied
    oldest integer -- files that a program has to know
);
INSERT INTO dalsegno.installed (schema) VALUES (0) ON CONFLICT DO NOTHING;
"""
ADD_OLDEST = "ALTER TABLE dalsegno.installed ADD COLUMN oldest integer"
WRITE = "UPDATE dalsegno.installed SET schema = $1, oldest = $2"


class Installed(Struct, frozen=True):
    version: int
    """Files applied; 0 for a database that knows nothing of us."""
    oldest: int
    """Files that a program has to know to fit: those up to the last one that took something away. What came after
    it was only added, and does not disturb programs that know nothing of it."""

    def refuse_older(self, known: int) -> None:
        """``known``: how many files this program knows."""
        if known >= self.oldest:
            return
        raise SchemaMismatch(
            f"the database has schema version {self.version}, for programs that know version {self.oldest} or more,"
            f" this program knows up to {known}: it was written by a newer Dal Segno; upgrade this one, or use"
            " another database"
        )


async def look(connection: Any) -> Installed:
    if not await connection.fetchval(HAS_TABLE):
        return Installed(0, 0)
    version, oldest = await connection.fetchrow(NUMBERS)
    return Installed(version, version if oldest is None else oldest)


async def make_room(connection: Any) -> None:
    """The schema may have been made by somebody who may do that, for a user who may not."""
    if not await connection.fetchval(HAS_NAMESPACE):
        await connection.execute("CREATE SCHEMA IF NOT EXISTS dalsegno")
    await connection.execute(MAKE_TABLE)


async def write(connection: Any, installed: Installed) -> None:
    """Last in a migration: where the second number is missing, nobody can look from here to the end."""
    if not await connection.fetchval(HAS_OLDEST):
        await connection.execute(ADD_OLDEST)
    await connection.execute(WRITE, installed.version, installed.oldest)
