"""A schema as text: what PostgreSQL's catalogues say about it, whatever statements led there.

``python -m tests.adapters.postgres.describe postgresql://…`` prints it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import asyncpg

COLUMNS = """
SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid),
       CASE WHEN attcollation <> 0 THEN collname END, CASE WHEN attstattarget >= 0 THEN attstattarget END
FROM pg_class
JOIN pg_attribute ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped
LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
LEFT JOIN pg_collation ON pg_collation.oid = attcollation
WHERE relnamespace = 'dalsegno'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY relname, attnum
"""
INDEXES = """
SELECT tablename, indexdef
FROM pg_indexes
JOIN pg_class ON relname = tablename AND relnamespace = 'dalsegno'::regnamespace
WHERE schemaname = 'dalsegno' AND NOT relispartition
ORDER BY 2
"""
OPTIONS = """
SELECT relname, coalesce(array_to_string(reloptions, ', '), ''), coalesce(pg_get_partkeydef(oid), '')
FROM pg_class
WHERE relnamespace = 'dalsegno'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
ORDER BY relname
"""
VIEWS = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'dalsegno' ORDER BY viewname"
SEQUENCES = """
SELECT sequencename, increment_by FROM pg_sequences WHERE schemaname = 'dalsegno' ORDER BY sequencename
"""


async def describe(connection: Any) -> str:
    await connection.execute("SET search_path = dalsegno")
    lines: list[str] = []
    columns = await connection.fetch(COLUMNS)
    for table, options, partitions in await connection.fetch(OPTIONS):
        lines.append(" ".join(word for word in ("table", table, options, partitions) if word))
        for _, name, kind, required, default, collation, sample in (
            row for row in columns if row[0] == table
        ):
            words = [
                name,
                kind,
                f'collate "{collation}"' if collation else "",
                "not null" if required else "",
                f"sampled {sample}" if sample else "",
            ]
            lines.append(
                "    " + " ".join([*filter(None, words), *([f"default {default}"] if default else [])])
            )
    lines += [definition for _, definition in await connection.fetch(INDEXES)]
    lines += [f"view {name}\n{definition}" for name, definition in await connection.fetch(VIEWS)]
    lines += [f"sequence {name} by {step}" for name, step in await connection.fetch(SEQUENCES)]
    return "\n".join(lines) + "\n"


async def _main(url: str) -> None:
    connection = await asyncpg.connect(url)
    sys.stdout.write(await describe(connection))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
