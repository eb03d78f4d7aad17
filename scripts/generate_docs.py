"""Writes the generated part of the documentation: ``python -m scripts.generate_docs``.

With ``--check`` nothing is written; the exit code tells whether the committed files are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from scripts.pages import capabilities, cli, errors, flow_library, nodes, schema, states

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

PAGES: dict[str, Callable[[], str]] = {
    "capabilities.md": capabilities.page,
    "cli.md": cli.page,
    "errors.md": errors.page,
    "flow-library.md": flow_library.page,
    "graph.schema.json": schema.page,
    "nodes.md": nodes.page,
    "states.md": states.page,
}


def outdated() -> list[str]:
    """Files that are not as they would be written now."""
    return [name for name, page in PAGES.items() if _committed(name) != page()]


def _committed(name: str) -> str | None:
    path = REFERENCE / name
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str]) -> int:
    names = outdated()
    if "--check" not in arguments:
        for name in names:
            (REFERENCE / name).write_text(PAGES[name](), encoding="utf-8")
    for name in names:
        sys.stdout.write(f"{name}\n")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
