"""The block of YAML between triple backticks that a script may begin with."""

from __future__ import annotations

import re
from typing import Any

from dalsegno.lang.errors import FlowSyntaxError
from dalsegno.lang.yaml_text import YamlProblem, read_yaml
from dalsegno.model.definition import script_name_problems

MAX_FRONT_MATTER = 100_000
"""Characters; also what aliases may repeat."""

MAX_DEPTH = 50
_OPENING = re.compile(r"\ufeff?\s*```[A-Za-z]*[ \t]*(?:\r?\n|\Z)")
_NAME = re.compile(r"^[ \t{]*(?P<key>[\"']?name[\"']?)[ \t]*:", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```[ \t]*\r?$", re.MULTILINE)


def split_front_matter(source: str) -> tuple[dict[str, Any], int]:
    """What the front matter says, and where the program begins."""
    opening = _OPENING.match(source)
    if opening is None:
        return {}, 1 if source.startswith("\ufeff") else 0
    closing = _CLOSING.search(source, opening.end())
    if closing is None:
        fence = source.index("`")
        raise FlowSyntaxError.at("the front matter is never closed by a line of ```", source, fence)
    return _read(source, opening.end(), closing.start()), closing.end()


def _read(source: str, start: int, end: int) -> dict[str, Any]:
    if end - start > MAX_FRONT_MATTER:
        message = f"the front matter is longer than {MAX_FRONT_MATTER:,} characters"
        raise FlowSyntaxError.at(message, source, start)
    line = source.count("\n", 0, start)
    try:
        found = read_yaml(source[start:end], MAX_DEPTH, MAX_FRONT_MATTER)
    except YamlProblem as problem:
        place = line + (problem.line or 1)
        raise FlowSyntaxError(
            f"front matter: {problem.message}", place, problem.column or 1, source
        ) from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise FlowSyntaxError(
            "front matter: write keys and values, such as name: checkout", line + 1, 1, source
        )
    _check_name(found.get("name"), source, start, end)
    return found


def _check_name(name: Any, source: str, start: int, end: int) -> None:
    if name is None:
        return
    is_text = isinstance(name, str) and bool(name.strip())
    problems = script_name_problems(name) if is_text else ["the name must be text"]
    if problems:
        place = _NAME.search(source, start, end)
        at = place.start("key") if place is not None else start
        raise FlowSyntaxError.at("front matter: " + " ".join(problems), source, at)
