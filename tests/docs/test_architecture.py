"""The architecture page names folders, files and functions as they are."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from scripts.generate_docs import PICTURES
from tests.docs.pages import DOCS, ROOT, pages
from tests.rows import rows

SOURCE = ROOT / "src" / "dalsegno"
PAGE = DOCS / "architecture.md"
TREE = re.compile(r"```text\nsrc/dalsegno/(.*?)```", re.DOTALL)
LINE = re.compile(r"^(?P<indent> +)(?P<name>\w+)/ +\S.*$")
WALK = re.compile(r"^\| (?:\d+[ab]?)? ?\| [^|]+ \| (?P<where>[^|]+) \|$", re.MULTILINE)
PLACE = re.compile(r"`(?P<file>[\w/]+\.py)`(?:: (?P<names>`[\w.]+`(?:, `[\w.]+`)*))?")
PYTHON_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`")
ELSEWHERE = ("tests/", "scripts/")


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def listed_folders() -> list[str]:
    """Folders of the tree, as paths below the package."""
    [tree] = TREE.findall(text())
    parents: list[str] = []
    found = []
    for line in tree.splitlines()[1:]:
        match = LINE.match(line)
        assert match is not None, f"one folder a line, with what is in it: {line!r}"
        depth = len(match["indent"]) // 2 - 1
        assert depth <= len(parents), f"the folder above this one is missing: {line!r}"
        parents[depth:] = [match["name"]]
        found.append("/".join(parents))
    return found


def test_every_folder_is_in_the_tree() -> None:
    packages = {str(path.parent.relative_to(SOURCE)) for path in SOURCE.rglob("__init__.py")} - {"."}
    listed = listed_folders()
    assert sorted(listed) == sorted(packages)


@cache
def names_of(file: Path) -> frozenset[str]:
    """Functions and classes of a module, and methods as `Class.method`."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(found)


def test_steps_of_the_walks_name_functions_that_exist() -> None:
    steps = WALK.findall(text())
    assert len(steps) > 30
    missing = [
        f"{place['file']}: {name}"
        for step in steps
        for place in PLACE.finditer(step)
        for name in re.findall(r"[\w.]+", place["names"] or "")
        if name not in names_of(SOURCE / place["file"])
    ]
    assert missing == []


def test_files_that_the_page_names_exist() -> None:
    """A bare file name is one in any folder; anything longer is a path below the package, or below the repository."""
    files = PYTHON_FILE.findall(text())
    assert len(files) > 60
    missing = [
        file
        for file in files
        if not ((ROOT if file.startswith(ELSEWHERE) else SOURCE) / file).exists()
        and ("/" in file or not any(SOURCE.rglob(file)))
        and not any((SOURCE / "adapters" / store / file).exists() for store in ("sqlite", "postgres"))
    ]
    assert missing == []


def test_pictures_of_the_script_are_shown() -> None:
    shown = {
        name for page in pages() for name in re.findall(r"images/([\w-]+\.svg)\)", page.read_text("utf-8"))
    }
    assert set(PICTURES) <= shown


@rows("page", pages(), ids=lambda page: page.stem)
def test_diagrams_are_drawn(page: Path) -> None:
    assert "```mermaid" not in page.read_text(encoding="utf-8")
