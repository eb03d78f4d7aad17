"""`compile_workflow`: from a function object to a program, or to an error that lists everything that is in the way."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from hashlib import sha256
from types import FunctionType
from typing import Any

import msgspec

from dalsegno.lang.python.asyncio_spellings import AsyncioSpellings
from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.compiler import Compiler
from dalsegno.lang.python.errors import Problem, UnsupportedPython
from dalsegno.lang.python.homes import home_of
from dalsegno.lang.python.itertools_spellings import ItertoolsSpellings
from dalsegno.lang.python.local_clock import warn_of_local_clock
from dalsegno.lang.python.natives import futures_of
from dalsegno.lang.python.program import FORMAT, PythonProgram, StoredProgram
from dalsegno.lang.python.refusals import Refusals
from dalsegno.lang.python.scopes import names_of_function
from dalsegno.lang.python.source import Source, parse_function, source_of
from dalsegno.lang.python.surroundings import Surroundings
from dalsegno.lang.python.syntax_trees import pack
from dalsegno.lang.python.unrolling import name_comprehension_variables


def compile_workflow(
    function: Any, name: str | None = None, front_matter: Mapping[str, Any] | None = None
) -> PythonProgram:
    """Raises `UnsupportedPython` with all problems of the function at once."""
    plain = _async_function(function)
    source = source_of(plain, plain.__name__)
    definition = parse_function(source, plain.__name__)
    if not isinstance(definition, ast.AsyncFunctionDef):
        raise _refused(plain, "the file has changed since it was imported: this is no 'async def' any more")
    surroundings = Surroundings.of(plain)
    try:
        _prepare(definition, source, surroundings)
        warn_of_local_clock(definition, source, surroundings)
        functions = Compiler(surroundings.outside).compile(definition, plain.__qualname__)
        digest = _with_front_matter(_digest(functions, definition, surroundings), front_matter)
    except RecursionError as error:
        raise _refused(
            plain, "its expressions are nested too deep; use variables for parts of them"
        ) from error
    stored = StoredProgram(
        format=FORMAT,
        name=name or plain.__name__,
        hash=digest,
        module=home_of(plain.__module__),
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
    """Another time limit is another version."""
    if not front_matter:
        return digest
    return sha256(digest.encode() + msgspec.json.encode(dict(front_matter), order="sorted")).hexdigest()


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
    """At the line of its ``def``, where that can be told."""
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
    """At the decorator in between: it stands above the function itself, whoever made what it gave back."""
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
    """Refuses what cannot be, then rewrites what is only spelled differently."""
    refusals = Refusals(source, surroundings.known)
    refusals.check(definition)
    AsyncioSpellings(surroundings.known, refusals.refuse).replace_in(
        definition, names_of_function(definition).own
    )
    if refusals.problems:
        problems = sorted(refusals.problems, key=lambda problem: (problem.line, problem.column))
        raise UnsupportedPython(definition.name, problems)
    ItertoolsSpellings(surroundings.known).replace_in(definition, names_of_function(definition).own)
    name_comprehension_variables(definition)


def _imports(definition: ast.AsyncFunctionDef, surroundings: Surroundings) -> Iterator[str]:
    """Modules that the workflow's own code imports: a snapshot may name what is in them."""
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
    """Covers our bytecode, the workflow's source, and the source of the module's functions it calls, wherever in the
    file they stand."""
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
    """Plain functions of the workflow's own module that it mentions, and those that they mention."""
    found: dict[str, FunctionType] = {}
    waiting = _names(definition)
    while waiting:
        name = waiting.pop()
        function = surroundings.globals.get(name)
        if (
            name in found
            or not isinstance(function, FunctionType)
            or home_of(function.__module__) != surroundings.module
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
    except UnsupportedPython:  # made by exec, or a lambda: its code is all there is
        return function.__code__.co_code
