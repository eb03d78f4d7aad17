"""YAML documents: read by the reader that front matter of scripts uses too; its complaints become findings."""

from __future__ import annotations

from typing import Any

from dalsegno.graph.refusal import Refused
from dalsegno.lang import yaml_text


def read_yaml(text: str, max_depth: int, max_repeated: int) -> Any:
    """Data, or `Refused` with line and column. ``max_repeated`` limits, in characters, what aliases repeat."""
    try:
        return yaml_text.read_yaml(text, max_depth, max_repeated)
    except yaml_text.YamlProblem as problem:
        where = f"Line {problem.line}, column {problem.column}: " if problem.line else ""
        raise Refused(problem.rule, f"{where}{problem.message}.") from None
