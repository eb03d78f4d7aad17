"""The names that a piece of a function binds, reads, and shares with nested functions.

Comprehensions run at once and are searched, except that their variables are their own. Functions, lambdas and generator
expressions run later: the names they mention are *shared*, because they keep the variable itself.
The module also lists the names that compiled fragments read from the surrounding module.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

UNROLLED = "unrolled"
"""Marks a comprehension that became a loop of the machine: its renamed variables belong to the function."""


class Names:
    """The names of one function's scope, collected from some of its nodes."""

    __slots__ = ("bound", "nonlocals", "read", "shared")

    def __init__(self) -> None:
        self.bound: set[str] = set()
        self.read: set[str] = set()
        self.shared: set[str] = set()
        self.nonlocals: set[str] = set()

    @property
    def mentioned(self) -> set[str]:
        return self.bound | self.read | self.nonlocals

    @property
    def own(self) -> set[str]:
        return self.bound - self.nonlocals

    @property
    def free(self) -> set[str]:
        return self.mentioned - self.own


def names_in(nodes: Iterable[ast.AST]) -> Names:
    names = Names()
    for node in nodes:
        _collect(node, names, frozenset())
    return names


def names_of_function(function: FunctionNode) -> Names:
    """Return the names of a function, including its parameters."""
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    names = names_in(body)
    names.bound |= set(parameter_names(function.args))
    return names


def parameter_names(arguments: ast.arguments) -> list[str]:
    parameters = [*arguments.posonlyargs, *arguments.args]
    if arguments.vararg is not None:
        parameters.append(arguments.vararg)
    parameters.extend(arguments.kwonlyargs)
    if arguments.kwarg is not None:
        parameters.append(arguments.kwarg)
    return [parameter.arg for parameter in parameters]


def _collect(node: ast.AST, names: Names, hidden: frozenset[str]) -> None:
    if isinstance(node, ast.Name):
        _name(node, names, hidden)
    elif isinstance(node, FUNCTIONS):
        _function(node, names, hidden)
    elif isinstance(node, COMPREHENSIONS) and not hasattr(node, UNROLLED):
        _comprehension(node, names, hidden)
    elif isinstance(node, ast.NamedExpr):
        names.bound.add(node.target.id)
        _collect(node.value, names, hidden)
    else:
        _binding(node, names)
        for child in ast.iter_child_nodes(node):
            _collect(child, names, hidden)


def _name(node: ast.Name, names: Names, hidden: frozenset[str]) -> None:
    if node.id in hidden:
        return
    if isinstance(node.ctx, ast.Store):
        names.bound.add(node.id)
    else:
        names.read.add(node.id)
        if isinstance(node.ctx, ast.Del):
            names.bound.add(node.id)


def _binding(node: ast.AST, names: Names) -> None:
    """Add the names of statements and patterns that bind without an `ast.Name`.

    Also add those of assignments that read their target.
    """
    match node:
        case ast.alias(name=name, asname=alias):
            names.bound.add(alias or name.partition(".")[0])
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            names.bound.add(name)
        case ast.MatchMapping(rest=str(name)):
            names.bound.add(name)
        case ast.Nonlocal(names=declared):
            names.nonlocals.update(declared)
        case ast.AugAssign(target=ast.Name(id=name)):
            names.read.add(name)


def _function(node: FunctionNode, names: Names, hidden: frozenset[str]) -> None:
    """Add the name that a function binds, the defaults that it evaluates now, and the names that its body shares."""
    if not isinstance(node, ast.Lambda):
        names.bound.add(node.name)
    for part in evaluated_with_function(node):
        _collect(part, names, hidden)
    _share(names_of_function(node).free - hidden, names)


def evaluated_with_function(node: FunctionNode) -> Iterator[ast.expr]:
    """Yield the expressions that a definition evaluates at once: decorators, defaults, annotations."""
    if not isinstance(node, ast.Lambda):
        yield from node.decorator_list
    yield from node.args.defaults
    yield from (default for default in node.args.kw_defaults if default is not None)
    if not isinstance(node, ast.Lambda):
        for parameter in ast.walk(node.args):
            if isinstance(parameter, ast.arg) and parameter.annotation is not None:
                yield parameter.annotation
        if node.returns is not None:
            yield node.returns


def _comprehension(node: Comprehension, names: Names, hidden: frozenset[str]) -> None:
    """Add the names of a comprehension. Its first iterable belongs to the outer scope; the rest sees its variables."""
    _collect(node.generators[0].iter, names, hidden)
    inside = hidden | comprehension_variables(node)
    target = Names() if isinstance(node, ast.GeneratorExp) else names
    for index, generator in enumerate(node.generators):
        if index:
            _collect(generator.iter, target, inside)
        _collect(generator.target, target, inside)
        for condition in generator.ifs:
            _collect(condition, target, inside)
    for element in comprehension_elements(node):
        _collect(element, target, inside)
    if target is not names:
        names.bound |= target.bound  # walrus targets
        _share(target.mentioned, names)


def comprehension_variables(node: Comprehension) -> set[str]:
    names = Names()
    for generator in node.generators:
        _collect(generator.target, names, frozenset())
    return names.bound


def comprehension_elements(node: Comprehension) -> list[ast.expr]:
    return [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]


def _share(shared: set[str], names: Names) -> None:
    names.read |= shared
    names.shared |= shared


def reads_and_writes(statements: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the names whose earlier value may be read, and the names that certainly get a new value (or none)."""
    reads: set[str] = set()
    writes: set[str] = set()
    for statement in statements:
        names = names_in([statement])
        reads |= (names.read | names.nonlocals) - writes
        writes |= _certainly_written(statement)
    return reads, writes


def _certainly_written(statement: ast.AST) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            return {name for target in targets for name in _plain_targets(target)}
        case ast.AugAssign(target=ast.Name(id=name)):
            return {name}
        case ast.Delete(targets=targets):
            return {target.id for target in targets if isinstance(target, ast.Name)}
        case ast.FunctionDef(name=name):
            return {name}
        case ast.Import() | ast.ImportFrom():
            return names_in([statement]).bound
    return set()


def _plain_targets(target: ast.expr) -> Iterator[str]:
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Starred(value=inner):
            yield from _plain_targets(inner)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _plain_targets(item)


def has_await(node: ast.AST) -> bool:
    """Return whether evaluating this node in its own function may await."""
    if isinstance(node, ast.Await):
        return True
    if isinstance(node, FUNCTIONS):
        return any(has_await(part) for part in evaluated_with_function(node))
    return any(has_await(child) for child in ast.iter_child_nodes(node))


def awaits_inside(node: Comprehension) -> bool:
    """Return whether a comprehension awaits anywhere except in its first iterable, which is evaluated outside of it."""
    first, *others = node.generators
    parts: list[ast.AST] = [*comprehension_elements(node), first.target, *first.ifs, *others]
    return any(has_await(part) for part in parts)


_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_GLOBALS = ("LOAD_GLOBAL",)
_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


def global_names(code: CodeType) -> Iterator[str]:
    """Yield global names of the code and its inner functions.

    Attributes read from a name at once are included, as in ``module.name``.
    """
    return _names_read(code, _GLOBALS)


def outside_names(code: CodeType) -> Iterator[str]:
    """Yield global names and the names of free variables."""
    return _names_read(code, _OUTSIDE)


def _names_read(code: CodeType, loads: tuple[str, ...]) -> Iterator[str]:
    found = ""
    for instruction in dis.get_instructions(code):
        if found and instruction.opname in _ATTRIBUTES:
            found += f".{instruction.argval}"
            continue
        if found:
            yield found
        found = instruction.argval if instruction.opname in loads else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_read(constant, loads)


def attribute_names(code: CodeType) -> Iterator[str]:
    """Yield the attribute names that the code, or a function inside it, may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from attribute_names(constant)
