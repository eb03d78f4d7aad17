"""SQL in files of its own: every adapter that speaks SQL reads its statements this way.

A file ``statements/<topic>.sql`` holds statements that each begin with a line ``-- :name <name>`` and a comment that
says what they guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files

MARK = "-- :name "


def load_statements(package: str) -> dict[str, str]:
    """By ``topic.name``."""
    statements: dict[str, str] = {}
    for file in sorted((files(package) / "statements").iterdir(), key=lambda entry: entry.name):
        topic = file.name.removesuffix(".sql")
        for name, text in _split(file.read_text(encoding="utf-8")):
            statements[f"{topic}.{name}"] = text
    return statements


def _split(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(MARK)[1:]:
        name, _, body = part.partition("\n")
        yield name.strip(), _bare(body)


def _bare(body: str) -> str:
    """Without comment lines: drivers hash the text on every call."""
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";")
