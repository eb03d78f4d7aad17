"""The operands of an expression in Python's evaluation order.

An expression with an ``await`` inside is split: operands that Python evaluates before the await are evaluated to the
machine's stack, and the remaining expression becomes a fragment that takes those values as operands. Each part can be
evaluated early and be replaced by an operand.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dalsegno.lang.python.compile.scopes import has_await


@dataclass(slots=True)
class Part:
    """One operand: the expression to evaluate, and how to put its value back."""

    node: ast.expr
    replace: Callable[[ast.expr], None]


def parts_of(node: ast.AST) -> Iterator[Part]:
    """Yield the operands of a node, none if it has none. Not for nodes that evaluate some operands only sometimes."""
    match node:
        case ast.Call():
            yield _field(node, "func")
            yield from _items(node.args)
            for keyword in node.keywords:
                yield _double_starred(keyword) if keyword.arg is None else _field(keyword, "value")
        case ast.Compare():
            yield _field(node, "left")
            yield from _items(node.comparators)
        case ast.Subscript():
            yield _field(node, "value")
            yield from _index(node)
        case ast.List(elts=[ast.Starred() as only]):
            yield _field(only, "value")
        case ast.Dict(keys=[None]):
            yield _item(node.values, 0)
        case ast.Tuple() | ast.List() | ast.Set():
            yield from _items(node.elts)
        case ast.Dict():
            yield from _entries(node)
        case _:
            yield from _other_parts(node)


def _other_parts(node: ast.AST) -> Iterator[Part]:
    match node:
        case ast.JoinedStr(values=[ast.FormattedValue() as only]):
            yield from _formatted(only)
        case ast.JoinedStr():
            yield from _texts(node)
        case ast.Lambda() | ast.FunctionDef():
            if isinstance(node, ast.FunctionDef):
                yield from _items(node.decorator_list)
            yield from _items(node.args.defaults)
            yield from _items(node.args.kw_defaults)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield _field(node.generators[0], "iter")
        case ast.Delete():
            for target in node.targets:
                yield from target_parts(target)
        case ast.AugAssign():
            yield from target_parts(node.target)
            yield _field(node, "value")
        case _:
            for name in _FIELDS.get(type(node), ()):
                if getattr(node, name) is not None:
                    yield _field(node, name)


def target_parts(target: ast.expr) -> Iterator[Part]:
    """Yield the operands of an assignment's or ``del``'s target."""
    match target:
        case ast.Attribute() | ast.Subscript():
            yield from parts_of(target)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from target_parts(item)
        case ast.Starred(value=inner):
            yield from target_parts(inner)


_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.Attribute: ("value",),
    ast.NamedExpr: ("value",),
    ast.Slice: ("lower", "upper", "step"),
    ast.Raise: ("exc", "cause"),
}


def _field(node: ast.AST, name: str) -> Part:
    return Part(getattr(node, name), lambda value: setattr(node, name, value))


def _items(items: list[ast.expr] | list[ast.expr | None]) -> Iterator[Part]:
    for index, item in enumerate(items):
        if isinstance(item, ast.Starred):
            yield _starred(item)
        elif item is not None:
            yield _item(items, index)


def _item(items: list[Any], index: int) -> Part:
    return Part(items[index], lambda value: items.__setitem__(index, value))


def _starred(item: ast.Starred) -> Part:
    """Unpack ``*xs`` in place: its operand is the list of its items."""
    unpacked = ast.List([ast.Starred(item.value, ast.Load())], ast.Load())
    return Part(_at(unpacked, item), lambda value: setattr(item, "value", value))


def _double_starred(keyword: ast.keyword) -> Part:
    unpacked = ast.Dict([None], [keyword.value])
    return Part(_at(unpacked, keyword), lambda value: setattr(keyword, "value", value))


def _index(node: ast.Subscript) -> Iterator[Part]:
    """Yield the operands of an index. A slice is not a value here: its bounds are the operands."""
    if isinstance(node.slice, ast.Slice):
        yield from parts_of(node.slice)
    elif isinstance(node.slice, ast.Tuple) and any(isinstance(item, ast.Slice) for item in node.slice.elts):
        items = node.slice.elts
        for index, item in enumerate(items):
            if isinstance(item, ast.Slice):
                yield from parts_of(item)
            else:
                yield _item(items, index)
    else:
        yield _field(node, "slice")


def _entries(node: ast.Dict) -> Iterator[Part]:
    for index, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
        if key is None:
            merged = _item(node.values, index)
            yield Part(_at(ast.Dict([None], [value]), value), merged.replace)
        else:
            yield _item(node.keys, index)
            yield _item(node.values, index)


def _texts(node: ast.JoinedStr) -> Iterator[Part]:
    """Format each ``{…}`` in place: its operand is the text. One that awaits yields its own parts."""
    for index, item in enumerate(node.values):
        if not isinstance(item, ast.FormattedValue):
            continue

        def replace(value: ast.expr, index: int = index, item: ast.FormattedValue = item) -> None:
            node.values[index] = _at(ast.FormattedValue(value, -1, None), item)

        yield Part(_at(ast.JoinedStr([item]), item), replace)


def _formatted(item: ast.FormattedValue) -> Iterator[Part]:
    """Yield the value, then the operands of its format."""
    yield _field(item, "value")
    if isinstance(item.format_spec, ast.JoinedStr):
        yield from _texts(item.format_spec)


def _at(node: ast.expr, place: ast.AST) -> ast.expr:
    return ast.fix_missing_locations(ast.copy_location(node, place))


def may_wait(node: ast.expr, is_variable: Callable[[str], bool]) -> bool:
    """Return whether this operand may be evaluated after an await instead of before it.

    That holds for constants, and for names of the module with their attributes: they resolve in the running code
    anyway.
    """
    match node:
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return not is_variable(name)
        case ast.Attribute(value=value):
            return may_wait(value, is_variable)
    return False


def last_awaiting(parts: list[Part]) -> int:
    return max(index for index, part in enumerate(parts) if has_await(part.node))
