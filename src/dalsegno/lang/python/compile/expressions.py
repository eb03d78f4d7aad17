"""Expressions.

Without an ``await`` they are one fragment; with one, their operands pass through the machine's stack.

Comprehensions that await become loops of the machine; they rename their variables.

A comprehension's variables live in a scope of their own. A loop of the machine has none, so the comprehension's ``x``
becomes ``x@1``, a name that is invalid in source code, and a variable of the function.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.assembler import Assembly, Label
from dalsegno.lang.python.compile.fragments import operand
from dalsegno.lang.python.compile.operands import Part, last_awaiting, may_wait, parts_of, target_parts
from dalsegno.lang.python.compile.scopes import (
    COMPREHENSIONS,
    FUNCTIONS,
    UNROLLED,
    Comprehension,
    awaits_inside,
    comprehension_elements,
    comprehension_variables,
    evaluated_with_function,
    has_await,
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


# -- expressions ---------------------------------------------------------------------------------------------


class Expressions(Assembly):
    """Compiles expressions. The value is on the stack afterwards."""

    __slots__ = ()

    def expression(self, node: ast.expr) -> None:
        line, self.line = self.line, node.lineno
        if not has_await(node):
            self._native(node)
        else:
            self._awaiting(node)
        self.line = line

    def _native(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name) and node.id in self.variables:
            self.load(node.id)
        elif isinstance(node, ast.Constant) and node.value is None:
            self.emit(Op.NOTHING)
        else:
            self.evaluate(node)

    def _awaiting(self, node: ast.expr) -> None:
        match node:
            case ast.Await(value=value):
                self.expression(value)
                self.emit(Op.AWAIT)
            case ast.BoolOp(op=operator, values=values):
                self._short_circuit(
                    Op.FALSE_OR_POP if isinstance(operator, ast.And) else Op.TRUE_OR_POP, values
                )
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._conditional(test, body, orelse)
            case ast.Compare(ops=[_, _, *_]):
                self._chain(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() if hasattr(node, UNROLLED):
                self._comprehension(node)
            case _:
                self._split(node)

    def _is_split(self, node: ast.expr) -> bool:
        """Return whether all operands of the node are evaluated, one after the other, before the node itself."""
        match node:
            case ast.Await() | ast.BoolOp() | ast.IfExp() | ast.Compare(ops=[_, _, *_]):
                return False
        return not hasattr(node, UNROLLED)

    def _split(self, node: ast.expr) -> None:
        """Evaluate everything up to the last await to the stack; the rest stays in the fragment."""
        node = copy.deepcopy(node)
        count = self.operands(list(parts_of(node)))
        self.evaluate(node, count)

    def operands(self, parts: list[Part], first: int = 0) -> int:
        """Evaluate parts up to the last that awaits, and replace them by operands numbered from ``first``.

        Only the part of that last one that must be evaluated early goes through the stack; the rest of it stays in the
        fragment.
        """
        number = first
        *before, last = parts[: last_awaiting(parts) + 1]
        for part in before:
            if not may_wait(part.node, self.variables.__contains__):
                number = self._operand(part, number)
        if not self._is_split(last.node):
            return self._operand(last, number)
        number = self.operands(list(parts_of(last.node)), number)
        last.replace(last.node)
        return number

    def _operand(self, part: Part, number: int) -> int:
        self.expression(part.node)
        part.replace(placeholder(number, part.node))
        return number + 1

    def _short_circuit(self, op: Op, values: list[ast.expr]) -> None:
        end = Label()
        depth = self.depth
        for value in values[:-1]:
            self.expression(value)
            self.emit(op, end)
        self.expression(values[-1])
        self.place(end, depth + 1)

    def _conditional(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> None:
        otherwise, end = Label(), Label()
        depth = self.depth
        self.expression(test)
        self.emit(Op.JUMP_IF_FALSE, otherwise)
        self.expression(body)
        self.emit(Op.JUMP, end)
        self.place(otherwise, depth)
        self.expression(orelse)
        self.place(end, depth + 1)

    def _chain(self, node: ast.Compare) -> None:
        """Compile ``a < b < c``: evaluate each operand once, and stop at the first comparison that is false."""
        false, end = Label(), Label()
        depth = self.depth
        self.expression(node.left)
        pairs = list(zip(node.ops, node.comparators, strict=True))
        for operator, comparator in pairs[:-1]:
            self.expression(comparator)
            self.emit(Op.TUCK)
            self._compare(node, operator)
            self.emit(Op.FALSE_OR_POP, false)
        operator, comparator = pairs[-1]
        self.expression(comparator)
        self._compare(node, operator)
        self.emit(Op.JUMP, end)
        self.place(false, depth + 2)
        self.emit(Op.CUT, depth)
        self.place(end, depth + 1)

    def _compare(self, node: ast.Compare, operator: ast.cmpop) -> None:
        comparison = ast.Compare(placeholder(0, node), [operator], [placeholder(1, node)])
        self.evaluate(ast.copy_location(comparison, node), 2)

    # -- comprehensions with an await -------------------------------------------------------------------------

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp) -> None:
        self.expression(node.generators[0].iter)
        for name in sorted(comprehension_variables(node)):
            self.clear(name, Op.RENEW)
        kind = {ast.ListComp: Op.NEW_LIST, ast.SetComp: Op.NEW_SET, ast.DictComp: Op.NEW_DICT}[type(node)]
        depth = self.depth - 1
        self.emit(kind)
        self.emit(Op.TUCK)  # collection, iterable, collection
        self.emit(Op.POP)
        self._generator(node, 0)
        self.depth = depth + 1

    def _generator(self, node: ast.ListComp | ast.SetComp | ast.DictComp, number: int) -> None:
        """Compile one ``for`` of the comprehension; its iterable is on the stack."""
        generator = node.generators[number]
        depth = self.depth - 1
        again, done = Label(), Label()
        self.emit(Op.ITERATE)
        self.place(again)
        self.emit(Op.NEXT, done)
        self.assign(generator.target)
        for condition in generator.ifs:
            self.expression(condition)
            self.emit(Op.JUMP_IF_FALSE, again)
        if number + 1 < len(node.generators):
            self.expression(node.generators[number + 1].iter)
            self._generator(node, number + 1)
        else:
            self._element(node, len(node.generators))
        self.emit(Op.JUMP, again)
        self.place(done, depth)

    def _element(self, node: ast.ListComp | ast.SetComp | ast.DictComp, iterators: int) -> None:
        if isinstance(node, ast.DictComp):
            self.expression(node.key)
            self.expression(node.value)
            self.emit(Op.ENTRY, iterators)
        else:
            self.expression(node.elt)
            self.emit(Op.APPEND if isinstance(node, ast.ListComp) else Op.ADD, iterators)

    # -- targets ----------------------------------------------------------------------------------------------

    def assign(self, *targets: ast.expr) -> None:
        """Pop a value into the targets, left to right."""
        if len(targets) == 1 and isinstance(targets[0], ast.Name):
            self.store(targets[0].id)
        elif not any(has_await(target) for target in targets):
            value = placeholder(0, targets[0])
            self.execute([at(ast.Assign(copy.deepcopy(list(targets)), value), targets[0])], 1)
        else:
            for target in targets:
                self.emit(Op.COPY, 1)
                self._assign_split(target)
            self.emit(Op.POP)

    def _assign_split(self, target: ast.expr) -> None:
        target = copy.deepcopy(target)
        parts = list(target_parts(target))
        count = self.operands(parts, 1) if any(has_await(part.node) for part in parts) else 1
        self.execute([at(ast.Assign([target], placeholder(0, target)), target)], count)


def placeholder(number: int, place: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Name(operand(number), ast.Load()), place)


def at(node: ast.stmt, place: ast.AST) -> ast.stmt:
    return ast.copy_location(node, place)
