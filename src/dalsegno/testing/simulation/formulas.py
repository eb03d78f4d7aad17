"""The handful of expressions that generated graphs use, read without the expression language."""

from __future__ import annotations

import re
from typing import Any

from dalsegno.testing.simulation.visits import Visit

_COMPARISON = re.compile(r"(\S+)(?: % (\d+))? (==|>) (\d+)")


class Missing(Exception):
    """The expression fails."""


def evaluate(text: str, visit: Visit, payload: dict[str, Any]) -> Any:
    text = text.removeprefix("{{").removesuffix("}}").strip()
    if text in ("true", "false"):
        return text == "true"
    if " - " in text:
        raise Missing(text)
    comparison = _COMPARISON.fullmatch(text)
    if comparison is None:
        return _reference(text, visit, payload)
    name, modulo, operator, number = comparison.groups()
    value = _reference(name, visit, payload)
    if modulo is not None:
        value %= int(modulo)
    return value == int(number) if operator == "==" else value > int(number)


def _reference(text: str, visit: Visit, payload: dict[str, Any]) -> Any:
    root, *path = text.split(".")
    value = _root(root, visit, payload)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise Missing(text)
        value = value[key]
    return value


def _root(root: str, visit: Visit, payload: dict[str, Any]) -> Any:
    if root == "$trigger":
        return payload
    if root == "$item":
        return visit.loops[-1][3]
    if root == "$index":
        return visit.loops[-1][1]
    for split, index, total, item in reversed(visit.loops):
        if root == f"${split}":
            return {"item": item, "index": index, "total": total}
    if root not in visit.context:
        raise Missing(root)
    return visit.context[root]
