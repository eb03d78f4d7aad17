"""The front matter of a script: a block of YAML between triple backticks at its beginning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dalsegno.lang.durations import BadDuration, parse_duration
from dalsegno.lang.errors import FlowSyntaxError
from dalsegno.lang.yaml_text import YamlProblem, read_yaml
from dalsegno.model.definition import script_name_problems
from dalsegno.model.machine import read_journal

MAX_FRONT_MATTER = 100_000
"""Maximum number of characters; also the limit for repetition by aliases."""

MAX_DEPTH = 50
_OPENING = re.compile(r"\ufeff?\s*```[A-Za-z]*[ \t]*(?:\r?\n|\Z)")
_CLOSING = re.compile(r"^[ \t]*```[ \t]*\r?$", re.MULTILINE)


def split_front_matter(source: str) -> tuple[dict[str, Any], int]:
    """Return the front matter, and the offset where the program begins."""
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
    wrong = next(_problems(found), None)
    if wrong is not None:
        key, message = wrong
        raise FlowSyntaxError.at(f"front matter: {message}", source, _place_of(key, source, start, end))
    return found


def _problems(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield key and message of each invalid entry. Keys unknown to the engine are ignored."""
    name, schema = found.get("name"), found.get("input_schema")
    if name is not None:
        is_text = isinstance(name, str) and bool(name.strip())
        problems = script_name_problems(name) if is_text else ["the name must be text"]
        if problems:
            yield "name", " ".join(problems)
    for key in ("timeout", "cancel_grace"):
        try:
            if found.get(key) is not None:
                parse_duration(found[key])
        except BadDuration as problem:
            yield key, f"the {key} {problem}"
    try:
        read_journal(found.get("journal"))
    except ValueError as problem:
        yield "journal", str(problem)
    if schema is not None and not isinstance(schema, dict):
        yield "input_schema", "the input_schema must be a JSON Schema, such as {type: object, required: [id]}"


def _place_of(key: str, source: str, start: int, end: int) -> int:
    place = re.compile(rf"^[ \t{{]*(?P<key>[\"']?{key}[\"']?)[ \t]*:", re.MULTILINE).search(
        source, start, end
    )
    return place.start("key") if place is not None else start
