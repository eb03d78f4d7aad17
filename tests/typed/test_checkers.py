"""Users who check their types keep their signatures, and are told of wrong calls: by mypy and by pyright."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.typed import clients, functions, programs
from tests.typed.checkers import HERE, Findings, mypy, pyright

RIGHT = [Path(str(module.__file__)) for module in (clients, functions, programs)]
WRONG = HERE / "wrong.py"
CHECKERS = ("mypy", "pyright")
EXPECTED = re.compile(r"  # (?P<mypy>[\w-]+(?:, [\w-]+)*); (?P<pyright>\w+(?:, \w+)*)$")


@pytest.fixture(scope="module")
def found() -> Mapping[str, Findings]:
    files = [*RIGHT, WRONG]
    return {"mypy": mypy(files), "pyright": pyright(files)}


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("file", RIGHT, ids=lambda file: file.stem)
def test_right_programs_are_clean(found: Mapping[str, Findings], checker: str, file: Path) -> None:
    assert found[checker].get(file.name, {}) == {}


@pytest.mark.parametrize("checker", CHECKERS)
def test_every_mistake_is_found_where_it_is(found: Mapping[str, Findings], checker: str) -> None:
    expected = expectations(checker)
    seen = found[checker][WRONG.name]
    assert [line for line in expected if line not in seen] == [], "mistakes that the checker accepts"
    assert seen == expected


def expectations(checker: str) -> Mapping[int, frozenset[str]]:
    """What a checker is to find in the wrong programs, by line."""
    lines = enumerate(WRONG.read_text(encoding="utf-8").splitlines(), 1)
    found = {number: EXPECTED.search(line) for number, line in lines}
    return {number: frozenset(match[checker].split(", ")) for number, match in found.items() if match}
