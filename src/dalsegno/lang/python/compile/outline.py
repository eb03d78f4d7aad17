"""The sites of a workflow function: awaits and returns, inside the blocks around them. See lang/runtime/alignment.py.

The compiler's instructions know lines only. The tree is therefore walked in the order in which the compiler emits its
awaits, and each await is given the instruction of the same rank; the lines of both must agree.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dalsegno.lang.python.code import FunctionCode, Op
from dalsegno.lang.python.compile.scopes import FUNCTIONS, awaits_inside
from dalsegno.lang.python.compile.source import Source, parse_function
from dalsegno.lang.python.compile.statements import is_native
from dalsegno.lang.runtime.alignment import FUNCTION, Site

LABEL = "named"
"""The method of a promise that gives its await a label."""
_PLAIN_METHODS = frozenset((LABEL, "with_options"))
_BLOCK = 2


class NotAligned(Exception):
    """The syntax tree and the instructions do not agree, so no await can be found for sure."""


def outline(functions: Sequence[FunctionCode], source: Source) -> Site:
    """Return the tree of sites of a workflow."""
    node = parse_function(source, functions[0].name)
    if not isinstance(node, ast.AsyncFunctionDef):
        raise NotAligned
    return _Walk(functions, 0).function(node)


class _Walk:
    """Walks one function in the order of its instructions."""

    def __init__(self, functions: Sequence[FunctionCode], number: int) -> None:
        self._functions = functions
        self._number = number
        self._code = functions[number]
        instructions = self._code.instructions
        self._awaits = iter([at for at, (op, _, _) in enumerate(instructions) if op == Op.AWAIT])
        self._nested = iter([a for op, a, _ in instructions if op == Op.FUNCTION])
        self._returns = [at for at, (op, _, _) in enumerate(instructions[:-1]) if op == Op.RETURN]

    def function(self, node: ast.AsyncFunctionDef) -> Site:
        if self._code.name != node.name:
            raise NotAligned
        children = tuple(self._body(node.body))
        if next(self._awaits, None) is not None or next(self._nested, None) is not None:
            raise NotAligned
        return Site(
            FUNCTION,
            node.name,
            node.lineno,
            _shape(node),
            number=self._number,
            weight=_BLOCK,
            children=children,
        )

    # -- statements -------------------------------------------------------------------------------------------

    def _body(self, statements: Iterable[ast.stmt]) -> Iterator[Site]:
        for statement in statements:
            if not is_native(statement):
                yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[Site]:
        match node:
            case ast.If():
                yield from self._sites(node.test)
                yield self._block("if", node, self._body(node.body), detail=_shape(node.test))
                yield self._block("else", node, self._body(node.orelse))
            case ast.While():
                inside = (*self._sites(node.test), *self._body(node.body))
                yield self._block("while", node, inside, detail=_shape(node.test))
                yield self._block("else", node, self._body(node.orelse))
            case ast.For():
                yield from self._for(node)
            case ast.Match():
                yield from self._match(node)
            case ast.Try():
                yield from self._try(node)
            case ast.With() | ast.AsyncWith():
                yield from self._with(node, list(node.items))
            case ast.AsyncFunctionDef():
                yield from self._definition(node)
            case ast.Return(value=value):
                yield from self._return(node, value)
            case _:
                yield from self._sites(node)

    def _block(self, kind: str, node: Any, children: Iterable[Site], key: Any = "", **about: Any) -> Site:
        return Site(kind, key, node.lineno, weight=_BLOCK, children=tuple(children), **about)

    def _for(self, node: ast.For) -> Iterator[Site]:
        yield from self._sites(node.iter)
        inside = (*self._sites(node.target), *self._body(node.body))
        yield self._block("for", node, inside, detail=_shape(node.iter), keeps_state=True)
        yield self._block("else", node, self._body(node.orelse))

    def _match(self, node: ast.Match) -> Iterator[Site]:
        yield from self._sites(node.subject)
        for case in node.cases:
            guard = () if case.guard is None else tuple(self._sites(case.guard))
            inside = (*guard, *self._body(case.body))
            yield self._block("case", case.pattern, inside, detail=_shape(case.pattern))

    def _try(self, node: ast.Try) -> Iterator[Site]:
        tried = self._block("try", node, self._body(node.body))
        otherwise = self._block("else", node, self._body(node.orelse))
        handlers = [
            self._block("except", each, self._body(each.body), detail=_shape(each.type))
            for each in node.handlers
        ]
        if not node.finalbody:
            yield from (tried, otherwise, *handlers)
            return
        exits = tuple(
            _exits([*node.body, *node.orelse, *(part for each in node.handlers for part in each.body)])
        )
        yield self._block("try", node, (tried, otherwise, *handlers), key="finally")
        yield self._block(
            "finally", node.finalbody[0], self._body(node.finalbody), key=exits, keeps_state=True
        )

    def _with(self, node: ast.With | ast.AsyncWith, items: list[ast.withitem]) -> Iterator[Site]:
        item, *more = items
        yield from self._sites(item.context_expr)
        target = () if item.optional_vars is None else tuple(self._sites(item.optional_vars))
        inside = tuple(self._with(node, more) if more else self._body(node.body))
        yield self._block(
            "with", node, (*target, *inside), detail=_shape(item.context_expr), keeps_state=True
        )

    def _definition(self, node: ast.AsyncFunctionDef) -> Iterator[Site]:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                yield from self._sites(default)
        number = next(self._nested, None)
        if number is None:
            raise NotAligned
        yield _Walk(self._functions, number).function(node)

    def _return(self, node: ast.Return, value: ast.expr | None) -> Iterator[Site]:
        """Yield the return of a promise that is not awaited: the workflow waits at the return itself."""
        if value is None:
            return
        yield from self._sites(value)
        here = [at for at in self._returns if self._code.lines[at] == node.lineno]
        if self._number == 0 and len(here) == 1:
            key, label = callee(value)
            yield Site("return", key, node.lineno, _shape(value), label, here[0])

    # -- expressions ------------------------------------------------------------------------------------------

    def _sites(self, node: ast.AST) -> Iterator[Site]:
        match node:
            case ast.Await(value=value):
                yield from self._sites(value)
                yield self._await(node)
            case ast.IfExp():
                yield from self._sites(node.test)
                yield self._block("if", node, self._sites(node.body), detail=_shape(node.test))
                yield self._block("else", node, self._sites(node.orelse))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() if awaits_inside(node):
                yield from self._sites(node.generators[0].iter)
                yield self._comprehension(node, 0)
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                yield from self._sites(node.generators[0].iter)
            case _ if isinstance(node, FUNCTIONS):
                for part in _evaluated(node):
                    yield from self._sites(part)
            case _:
                for part in _parts(node):
                    yield from self._sites(part)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp, number: int) -> Site:
        generator = node.generators[number]
        inside = [
            *self._sites(generator.target),
            *(site for test in generator.ifs for site in self._sites(test)),
        ]
        if number + 1 < len(node.generators):
            inside.extend(self._sites(node.generators[number + 1].iter))
            inside.append(self._comprehension(node, number + 1))
        else:
            elements = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            inside.extend(site for element in elements for site in self._sites(element))
        kind = type(node).__name__
        return self._block(
            "comprehension", node, inside, kind, detail=_shape(generator.iter), keeps_state=True
        )

    def _await(self, node: ast.Await) -> Site:
        place = next(self._awaits, -1)
        if place < 0 or self._code.lines[place] != node.lineno:
            raise NotAligned
        key, label = callee(node.value)
        return Site("await", key, node.lineno, _shape(node.value), label, place)


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node in the order of evaluation."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield value
            yield from targets
        case ast.AnnAssign(target=target, value=value):
            if value is not None:
                yield value
            yield target
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if key is not None:
                    yield key
                yield value
        case _:
            yield from ast.iter_child_nodes(node)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what the definition of a plain function evaluates."""
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        yield from (part for part in (*node.args.defaults, *node.args.kw_defaults) if part is not None)


def callee(node: ast.expr) -> tuple[tuple[str, ...], str | None]:
    """Return what an expression calls, with the name that it gives first, and the label of its promise."""
    label = None
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == LABEL:
        label = label or _text(node)
        node = node.func.value
    if not isinstance(node, ast.Call):
        return (("", node.id) if isinstance(node, ast.Name) else (type(node).__name__,)), label
    return (".".join(reversed(list(_names(node.func)))), _text(node) or ""), label


def label_problems(function: ast.AsyncFunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield labels that occur twice in one function, or that are not written out: nobody could find them again."""
    seen: dict[str, int] = {}
    pending: list[ast.AST] = list(reversed(function.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AsyncFunctionDef):
            yield from label_problems(node)
            continue
        if isinstance(node, ast.Await) and _is_labelled(node.value):
            label = callee(node.value)[1]
            if label is None:
                yield node, 'a label must be written out: .named("charge")'
            elif label in seen:
                yield node, f"the label '{label}' is that of line {seen[label]}, too: choose another one"
            else:
                seen[label] = node.lineno
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _is_labelled(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == LABEL


def _names(node: ast.expr) -> Iterator[str]:
    """Yield the names of a callee, the last one first, without the calls of `with_options`."""
    while True:
        match node:
            case ast.Name(id=name):
                yield name
                return
            case ast.Attribute(value=value, attr=name):
                if name not in _PLAIN_METHODS:
                    yield name
                node = value
            case ast.Call(func=function):
                node = function
            case _:
                yield type(node).__name__
                return


def _text(call: ast.Call) -> str | None:
    """Return the first argument of a call if it is a text."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _exits(nodes: Iterable[ast.AST], in_loop: bool = False) -> Iterator[Any]:
    """Yield the exits out of statements that a ``finally`` protects."""
    for node in nodes:
        match node:
            case _ if isinstance(node, FUNCTIONS):
                continue
            case ast.Return():
                yield "return"
            case ast.Break() | ast.Continue():
                if not in_loop:
                    yield type(node).__name__
            case ast.For(body=body, orelse=orelse) | ast.While(body=body, orelse=orelse):
                yield from _exits(body, in_loop=True)
                yield from _exits(orelse, in_loop)
            case ast.Try(finalbody=[_, *_]):
                handlers = [part for each in node.handlers for part in each.body]
                yield tuple(_exits([*node.body, *node.orelse, *handlers], in_loop))
                yield from _exits(node.finalbody, in_loop)
            case _:
                yield from _exits(ast.iter_child_nodes(node), in_loop)


def _shape(node: ast.AST | None) -> str:
    """Return a node without its positions, for comparisons."""
    return "" if node is None else ast.dump(node)
