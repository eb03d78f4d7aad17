"""Comprehensions that await become loops of the machine; this module renames their variables.

A comprehension's variables live in a scope of their own. A loop of the machine has none, so the comprehension's ``x``
becomes ``x@1``, a name that is invalid in source code, and a variable of the function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from dalsegno.lang.python.compile.scopes import (
    COMPREHENSIONS,
    FUNCTIONS,
    UNROLLED,
    Comprehension,
    awaits_inside,
    comprehension_elements,
    comprehension_variables,
    evaluated_with_function,
    names_of_function,
)

SEPARATOR = "@"


def name_comprehension_variables(function: ast.AsyncFunctionDef) -> None:
    """Rename in the whole function, nested ones included; outer comprehensions before inner ones."""
    number = 0
    for node in _outer_first(function):
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp) and awaits_inside(node):
            number += 1
            setattr(node, UNROLLED, True)
            mapping = {name: f"{name}{SEPARATOR}{number}" for name in comprehension_variables(node)}
            for part in _inside(node):
                _rename(part, mapping)


def _outer_first(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _outer_first(child)


def _inside(node: Comprehension) -> list[ast.AST]:
    """Return all nodes that see the comprehension's variables."""
    first, *others = node.generators
    return [*comprehension_elements(node), first.target, *first.ifs, *others]


def _rename(node: ast.AST, mapping: Mapping[str, str]) -> None:
    if not mapping:
        return
    if isinstance(node, ast.Name):
        node.id = mapping.get(node.id, node.id)
    elif isinstance(node, FUNCTIONS):
        for part in evaluated_with_function(node):
            _rename(part, mapping)
        visible = _without(mapping, names_of_function(node).own)
        for statement in [node.body] if isinstance(node, ast.Lambda) else node.body:
            _rename(statement, visible)
    elif isinstance(node, COMPREHENSIONS):
        _rename(node.generators[0].iter, mapping)
        visible = _without(mapping, comprehension_variables(node))
        for inner in _inside(node):
            _rename(inner, visible)
    else:
        for child in ast.iter_child_nodes(node):
            _rename(child, mapping)


def _without(mapping: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {old: new for old, new in mapping.items() if old not in names}
