"""Writes the generated part of the documentation, pages and pictures: ``python -m scripts.generate_docs``.

With ``--check`` nothing is written; the exit code tells whether the committed files are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from scripts.pages import architecture, capabilities, cli, errors, flow_library, nodes, schema, states, wire

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE, IMAGES = DOCS / "reference", DOCS / "images"

PAGES: dict[str, Callable[[], str]] = {
    "capabilities.md": capabilities.page,
    "cli.md": cli.page,
    "errors.md": errors.page,
    "flow-library.md": flow_library.page,
    "graph.schema.json": schema.page,
    "nodes.md": nodes.page,
    "states.md": states.page,
    "wire.md": wire.page,
}
"""Below `docs/reference`."""

PICTURES: dict[str, Callable[[], str]] = {
    "execution-states.svg": states.execution_states,
    "layers.svg": architecture.layers,
    "node-states.svg": states.node_states,
    "one-step.svg": architecture.one_step,
    "token-states.svg": architecture.token_states,
}
"""Below `docs/images`."""


def outdated() -> list[str]:
    """Files that are not as they would be written now."""
    return [
        str(path.relative_to(DOCS)) for path, written in _files().items() if _committed(path) != written()
    ]


def _files() -> dict[Path, Callable[[], str]]:
    pages = {REFERENCE / name: page for name, page in PAGES.items()}
    return pages | {IMAGES / name: picture for name, picture in PICTURES.items()}


def _committed(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main(arguments: list[str]) -> int:
    names = outdated()
    if "--check" not in arguments:
        for name in names:
            (DOCS / name).write_text(_files()[DOCS / name](), encoding="utf-8")
    for name in names:
        sys.stdout.write(f"{name}\n")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
