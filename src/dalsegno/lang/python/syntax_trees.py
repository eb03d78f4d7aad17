"""Syntax trees as plain data, so that a stored program holds its fragments whatever compiler comes later.

A node is ``[class, position, field, …]``, a list of nodes ``["", …]``, a constant that JSON lacks ``{tag: text}``.
Fields stand in the order of their class; newer Pythons only append to them, and what is missing gets its empty value.
"""

from __future__ import annotations

import ast
import base64
import math
from typing import Any, TypeAlias

from dalsegno.lang.snapshots import SnapshotError

Packed: TypeAlias = Any

_MAX_PLAIN_INT = 2**53
_POSITION = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def pack(value: Any, *, positions: bool = True) -> Packed:
    """Without positions, equal code packs equal wherever it stands."""
    if isinstance(value, ast.AST):
        place = _position(value) if positions else 0
        fields = [pack(getattr(value, name, None), positions=positions) for name in value._fields]
        while fields and fields[-1] in (None, [""]):
            fields.pop()
        return [type(value).__name__, place, *fields]
    if isinstance(value, list):
        return ["", *[pack(item, positions=positions) for item in value]]
    return _pack_constant(value)


def _position(node: ast.AST) -> Packed:
    if not hasattr(node, "lineno"):
        return 0
    return [getattr(node, name) for name in _POSITION]


def _pack_constant(value: Any) -> Packed:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return (
            value
            if value.isascii() or _encodable(value)
            else {"s": _text(value.encode("utf-8", "surrogatepass"))}
        )
    if isinstance(value, int):
        return value if abs(value) < _MAX_PLAIN_INT else {"i": hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": repr(value)}
    if isinstance(value, bytes):
        return {"b": _text(value)}
    if isinstance(value, complex):
        return {"c": repr(value)}
    return {"e": ""}  # the only other constant of the grammar: an ellipsis


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def unpack(packed: Packed) -> Any:
    """The tree again; raises `SnapshotError` for what `pack` never wrote."""
    if isinstance(packed, list):
        if packed and packed[0] == "":
            return [unpack(item) for item in packed[1:]]
        return _unpack_node(packed)
    if isinstance(packed, dict):
        return _unpack_constant(packed)
    return packed


def _unpack_node(packed: list[Any]) -> ast.AST:
    kind = getattr(ast, packed[0], None) if packed and isinstance(packed[0], str) else None
    if not (isinstance(kind, type) and issubclass(kind, ast.AST)) or len(packed) < 2:
        raise SnapshotError("the stored program's syntax tree is damaged, or was written by a newer Python")
    stored = packed[2:]
    fields: dict[str, Any] = {}
    for index, name in enumerate(kind._fields):
        missing: list[ast.AST] | None = [] if name in _LIST_FIELDS else None
        fields[name] = unpack(stored[index]) if index < len(stored) else missing
    node = kind(**fields)
    if isinstance(packed[1], list):
        for name, number in zip(_POSITION, packed[1], strict=False):
            setattr(node, name, number)
    return node


# An omitted field of these names was an empty list: where such a name is a single node, it is never empty.
_LIST_FIELDS = frozenset(
    (
        "args",
        "body",
        "cases",
        "comparators",
        "decorator_list",
        "defaults",
        "elts",
        "finalbody",
        "generators",
        "handlers",
        "ifs",
        "items",
        "keys",
        "keywords",
        "kw_defaults",
        "kwd_attrs",
        "kwd_patterns",
        "kwonlyargs",
        "names",
        "ops",
        "orelse",
        "patterns",
        "posonlyargs",
        "targets",
        "type_ignores",
        "type_params",
        "values",
    )
)


def _unpack_constant(packed: dict[str, Any]) -> Any:
    [(tag, text)] = packed.items() if len(packed) == 1 else [("", "")]
    match tag:
        case "s":
            return base64.b64decode(text).decode("utf-8", "surrogatepass")
        case "i":
            return int(text, 16)
        case "f":
            return float(text)
        case "b":
            return base64.b64decode(text)
        case "c":
            return complex(text)
        case "e":
            return ...
    raise SnapshotError("the stored program's syntax tree holds an unknown kind of constant")
