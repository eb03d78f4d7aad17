"""Every SQL statement of this adapter, by ``topic.name``, read once from ``statements/<topic>.sql``.

A file holds statements that each begin with a line ``-- :name <name>`` and a comment that says what they guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

MARK = "-- :name "


def load() -> dict[str, str]:
    folder = files("dalsegno.adapters.postgres") / "statements"
    statements: dict[str, str] = {}
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        topic = file.name.removesuffix(".sql")
        for name, text in _split(file.read_text(encoding="utf-8")):
            statements[f"{topic}.{name}"] = text
    return statements


def _split(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(MARK)[1:]:
        name, _, body = part.partition("\n")
        yield name.strip(), body.strip().rstrip(";")


SQL = load()
