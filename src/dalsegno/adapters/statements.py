"""SQL statements in files of their own, for every SQL adapter.

A file ``statements/<topic>.sql`` holds statements. Each begins with a line ``-- :name <name>`` and a comment that
says what it guarantees. Text that several statements of a file share is a part (``-- :part <name>``); a line ``--
:include <name>`` is replaced by its text. With ``from $<number>`` the part's own ``$1`` is that parameter of the
statement, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files

_MARK = re.compile(r"^-- :(name|part) (\w+)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^[ \t]*-- :include (\w+)(?: from \$(\d+))?[ \t]*$", re.MULTILINE)
_PARAMETER = re.compile(r"\$(\d+)")


def load_statements(package: str) -> dict[str, str]:
    """Return the statements by ``topic.name``."""
    statements: dict[str, str] = {}
    for file in sorted((files(package) / "statements").iterdir(), key=lambda entry: entry.name):
        topic = file.name.removesuffix(".sql")
        for name, text in _split(file.read_text(encoding="utf-8")):
            statements[f"{topic}.{name}"] = text
    return statements


def _split(text: str) -> Iterator[tuple[str, str]]:
    _, *pieces = _MARK.split(text)
    parts: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        whole = _bare(_with_parts(body, parts))
        if kind == "part":
            parts[name] = whole
        else:
            yield name, whole


def _with_parts(body: str, parts: Mapping[str, str]) -> str:
    """Insert the parts. A part precedes the statements and parts that include it."""
    return _INCLUDE.sub(lambda found: _counted_from(int(found[2] or 1), parts[found[1]]), body)


def _counted_from(first: int, part: str) -> str:
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + first - 1}", part)


def _bare(body: str) -> str:
    """Remove comment lines: drivers hash the text on every call."""
    lines = (line for line in body.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().rstrip(";").rstrip()
