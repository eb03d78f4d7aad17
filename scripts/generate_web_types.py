"""Write the types of the web UI's API client from the OpenAPI document.

    python scripts/generate_web_types.py            # writes web/src/api/schema.d.ts
    python scripts/generate_web_types.py --check    # fails if the file is out of date

The UI is compiled against these types: a change of the API that the UI does not follow breaks its build. Texts and
examples are left out, so that only changes of shape change the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dalsegno.app import App
from dalsegno.server.application import create_application
from scripts.node import node

WEB = Path(__file__).parents[1] / "web"
TYPES = WEB / "src" / "api" / "schema.d.ts"
TEXTS = ("description", "summary", "example", "examples", "title", "tags")
"""Fields of a schema or an operation that say nothing about its shape."""

PROBLEM = {
    "description": "",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
"""Every refusal has this shape, whatever its status."""


def shapes(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without texts, and without parameters and schemas that are only named like them."""
    kept = {key: _shape(value, named=False) for key, value in document.items() if key != "info"}
    for operations in kept["paths"].values():
        for operation in operations.values():
            answers = {
                status: answer for status, answer in operation["responses"].items() if status[0] == "2"
            }
            operation["responses"] = answers | {"default": PROBLEM}
    return kept | {"info": {"title": "Dal Segno", "version": "1"}}


def _shape(value: Any, *, named: bool) -> Any:
    """``named``: whether the keys of ``value`` are names that somebody chose, such as those of properties."""
    if isinstance(value, list):
        return [_shape(each, named=False) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _shape(each, named=not named and key in ("properties", "schemas", "paths", "parameters"))
        for key, each in value.items()
        if named or key not in TEXTS
    }


def generate() -> str:
    document = shapes(create_application(App("memory://")).openapi())
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "openapi.json"), Path(folder, "schema.d.ts")
        source.write_text(json.dumps(document))
        program = WEB / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
        subprocess.run(  # noqa: S603 - our own program
            [node(), str(program), str(source), "-o", str(target), "--default-non-nullable=false"],
            check=True,
            capture_output=True,
        )
        return target.read_text()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    check = parser.parse_args().check
    types = generate()
    if not check:
        TYPES.write_text(types)
    elif not TYPES.exists() or TYPES.read_text() != types:
        sys.exit(f"{TYPES} is out of date; run: make web-types")


if __name__ == "__main__":
    main()
