"""Compiles a workflow function to a program: the code of the workflow itself, then of its nested async functions.

If the function cannot be a workflow, the error lists all problems.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import FunctionType
from typing import Any

import msgspec

from dalsegno.lang.python.code import FunctionCode, Op
from dalsegno.lang.python.compile.blocks import live_variables
from dalsegno.lang.python.compile.expressions import name_comprehension_variables
from dalsegno.lang.python.compile.fragments import TICK, FragmentWriter, futures_of, mentions_loop
from dalsegno.lang.python.compile.outline import label_problems
from dalsegno.lang.python.compile.scopes import names_of_function, parameter_names
from dalsegno.lang.python.compile.source import Source, pack, parse_function, source_of
from dalsegno.lang.python.compile.statements import Statements
from dalsegno.lang.python.compile.unsupported import AsyncioSpellings, ItertoolsSpellings, Refusals
from dalsegno.lang.python.environment import Surroundings, stored_name_of
from dalsegno.lang.python.errors import Problem, UnsupportedPython
from dalsegno.lang.python.local_clock import warn_of_local_clock
from dalsegno.lang.python.program import FORMAT, PythonProgram, StoredProgram


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An async function that is still to be compiled."""

    node: ast.AsyncFunctionDef
    qualname: str
    enclosing: tuple[str, ...]
    """Variables of the enclosing function; none for the workflow itself."""


@dataclass(frozen=True, slots=True)
class _Variables:
    """All cells of a function, in order."""

    own: tuple[str, ...]
    captured: tuple[str, ...]
    outside: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.own, *self.captured, *self.outside)


class Compiler:
    """Compiles the functions of a workflow.

    ``outside`` are names that the workflow's surroundings bind to cells, such as variables of a function that the
    workflow was defined in.
    """

    def __init__(self, outside: frozenset[str]) -> None:
        self._outside = outside
        self._functions: list[_Waiting] = []

    def compile(self, workflow: ast.AsyncFunctionDef, qualname: str) -> tuple[FunctionCode, ...]:
        self._functions.append(_Waiting(workflow, qualname, ()))
        codes: list[FunctionCode] = []
        while len(codes) < len(self._functions):
            codes.append(self._function(self._functions[len(codes)]))
        return tuple(codes)

    def _function(self, waiting: _Waiting) -> FunctionCode:
        node = waiting.node
        variables = self._variables(waiting)
        assembly = self._assembled(waiting, variables)
        masks = live_variables(assembly.emitted, assembly.regions, variables.all)
        shared = names_of_function(node).shared | set(variables.captured)
        return FunctionCode(
            name=node.name,
            qualname=waiting.qualname,
            line=node.lineno,
            instructions=tuple(one.resolved() for one in assembly.emitted),
            lines=tuple(one.line for one in assembly.emitted),
            handlers=tuple(region.resolved() for region in assembly.regions),
            variables=variables.all,
            parameters=tuple(parameter_names(node.args)),
            own=len(variables.own),
            captured=tuple(waiting.enclosing.index(name) for name in variables.captured),
            live=tuple(f"{mask:x}" for mask in masks),
            shared=f"{_mask(shared, variables.all):x}",
            syntax=pack(assembly.writer.module()),
            rest=node.args.vararg.arg if node.args.vararg is not None else "",
            named=node.args.kwarg.arg if node.args.kwarg is not None else "",
        )

    def _variables(self, waiting: _Waiting) -> _Variables:
        parameters = parameter_names(waiting.node.args)
        names = names_of_function(waiting.node)
        captured = sorted(names.free & set(waiting.enclosing))
        outside = sorted((names.free & self._outside) - set(captured))
        if mentions_loop(waiting.node):
            outside.append(TICK)
        return _Variables(
            (*parameters, *sorted(names.own - set(parameters))), tuple(captured), tuple(outside)
        )

    def _assembled(self, waiting: _Waiting, variables: _Variables) -> Statements:
        def add_function(nested: ast.AsyncFunctionDef) -> int:
            qualname = f"{waiting.qualname}.<locals>.{nested.name}"
            self._functions.append(_Waiting(nested, qualname, (*variables.own, *variables.captured)))
            return len(self._functions) - 1

        line = waiting.node.lineno
        assembly = Statements(
            variables.all, FragmentWriter(variables.all, line), line, add_function=add_function
        )
        assembly.body(waiting.node.body)
        assembly.emit(Op.NOTHING)
        assembly.emit(Op.RETURN)
        return assembly


def _mask(names: Iterable[str], variables: Sequence[str]) -> int:
    return sum(1 << variables.index(name) for name in set(names) & set(variables))


def compile_workflow(
    function: Any, name: str | None = None, front_matter: Mapping[str, Any] | None = None
) -> PythonProgram:
    """Compile a workflow. Raise `UnsupportedPython` with all problems of the function."""
    plain = _async_function(function)
    source = source_of(plain, plain.__name__)
    definition = parse_function(source, plain.__name__)
    if not isinstance(definition, ast.AsyncFunctionDef):
        raise _refused(plain, "the file has changed since it was imported: this is no longer an 'async def'")
    surroundings = Surroundings.of(plain)
    try:
        _prepare(definition, source, surroundings)
        warn_of_local_clock(definition, source, surroundings)
        functions = Compiler(surroundings.outside).compile(definition, plain.__qualname__)
        digest = _with_front_matter(_digest(functions, definition, surroundings), front_matter)
        digest = _with_name(digest, plain, name)
    except RecursionError as error:
        raise _refused(
            plain, "its expressions are nested too deep; use variables for parts of them"
        ) from error
    stored = StoredProgram(
        format=FORMAT,
        name=name or plain.__name__,
        hash=digest,
        module=stored_name_of(plain.__module__),
        qualname=plain.__qualname__,
        file=source.file,
        first_line=source.first_line,
        text=source.text,
        imports=tuple(sorted(_imports(definition, surroundings))),
        functions=functions,
        description=inspect.getdoc(plain) or "",
        front_matter=dict(front_matter or {}),
        futures=futures_of(plain.__code__),
    )
    return PythonProgram(stored, surroundings)


def _with_front_matter(digest: str, front_matter: Mapping[str, Any] | None) -> str:
    """Include the front matter in the digest: another time limit is another version."""
    if not front_matter:
        return digest
    return sha256(digest.encode() + msgspec.json.encode(dict(front_matter), order="sorted")).hexdigest()


def _with_name(digest: str, function: FunctionType, name: str | None) -> str:
    """Include the name in the digest.

    Workflows created by one function have the same code but see different values around it: each is a definition of its
    own.
    """
    if name is None or name == function.__name__:
        return digest
    return sha256(f"{digest}\0{name}".encode()).hexdigest()


def _async_function(function: Any) -> FunctionType:
    if not isinstance(function, FunctionType):
        shown = getattr(function, "__name__", type(function).__name__)
        message = "only a plain 'async def' function can be a workflow; put the decorator directly above one"
        raise UnsupportedPython(shown, [Problem(message, "", 0, 1)])
    if hasattr(function, "__wrapped__"):
        raise _wrapped(function)
    if inspect.isasyncgenfunction(function):
        return function  # refused below, with the place of each yield
    if not inspect.iscoroutinefunction(function):
        raise _refused(function, "write 'async def': a workflow awaits its tasks")
    return function


def _refused(function: FunctionType, message: str) -> UnsupportedPython:
    """Return the error at the line of the function's ``def``, if that is known."""
    place = function.__code__
    try:
        source, definition = _definition_of(function)
        problem = source.problem(message, definition)
    except UnsupportedPython:
        problem = Problem(message, place.co_filename, place.co_firstlineno, 1)
    return UnsupportedPython(function.__name__, [problem])


def _definition_of(function: FunctionType) -> tuple[Source, ast.AsyncFunctionDef | ast.FunctionDef]:
    source = source_of(function, function.__name__)
    return source, parse_function(source, function.__code__.co_name)


def _wrapped(function: FunctionType) -> UnsupportedPython:
    """Return the error about a decorator that returned another object.

    The error's position is that decorator, above the function itself.
    """
    message = "another decorator stands between it and the workflow's; put the workflow's below"
    for candidate in (function, inspect.unwrap(function)):
        try:
            source, definition = _definition_of(candidate)
        except (UnsupportedPython, AttributeError):  # what it wraps may be anything
            continue
        if len(definition.decorator_list) > 1:
            return UnsupportedPython(
                function.__name__, [source.problem(message, definition.decorator_list[1])]
            )
    return _refused(function, message)


def _prepare(definition: ast.AsyncFunctionDef, source: Source, surroundings: Surroundings) -> None:
    """Refuse what a workflow may not contain, then rewrite names that have a replacement."""
    refusals = Refusals(source, surroundings.known)
    refusals.check(definition)
    for node, message in label_problems(definition):
        refusals.refuse(node, message)
    AsyncioSpellings(surroundings.known, refusals.refuse).replace_in(
        definition, names_of_function(definition).own
    )
    if refusals.problems:
        problems = sorted(refusals.problems, key=lambda problem: (problem.line, problem.column))
        raise UnsupportedPython(definition.name, problems)
    ItertoolsSpellings(surroundings.known).replace_in(definition, names_of_function(definition).own)
    name_comprehension_variables(definition)


def _imports(definition: ast.AsyncFunctionDef, surroundings: Surroundings) -> Iterator[str]:
    """Yield the modules that the workflow's own code imports: a snapshot may name their content."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = surroundings.globals.get("__package__") or ""
            yield _absolute(node, package)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parent = ".".join(parts[: len(parts) - node.level + 1])
    return f"{parent}.{node.module}" if node.module else parent


def _digest(
    functions: tuple[FunctionCode, ...], definition: ast.AsyncFunctionDef, surroundings: Surroundings
) -> str:
    """Return the digest of a workflow.

    It covers the compiled code, the workflow's source, and the source of the module's functions that it calls,
    independent of their positions in the file.
    """
    digest = sha256()
    for code in functions:
        digest.update(msgspec.json.encode([code.name, code.instructions, code.handlers, code.variables]))
    digest.update(_shape(definition))
    for name, function in sorted(_called(definition, surroundings).items()):
        digest.update(name.encode())
        digest.update(_function_shape(function))
    return digest.hexdigest()


def _shape(node: ast.AST) -> bytes:
    if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
        node.decorator_list = []
    return msgspec.json.encode(pack(node, positions=False))


def _called(definition: ast.AST, surroundings: Surroundings) -> dict[str, FunctionType]:
    """Return the plain functions of the workflow's own module that it mentions, and those that they mention."""
    found: dict[str, FunctionType] = {}
    waiting = _names(definition)
    while waiting:
        name = waiting.pop()
        function = surroundings.globals.get(name)
        if (
            name in found
            or not isinstance(function, FunctionType)
            or stored_name_of(function.__module__) != surroundings.module
        ):
            continue
        found[name] = function
        waiting |= set(function.__code__.co_names)
    return found


def _names(definition: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}


def _function_shape(function: FunctionType) -> bytes:
    try:
        source = source_of(function, function.__name__)
        return _shape(parse_function(source, function.__name__))
    except UnsupportedPython:  # made by exec, or a lambda: only its code exists
        return function.__code__.co_code
