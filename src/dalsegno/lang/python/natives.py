"""Fragments as code objects: one native compilation per function, cached for the life of the process."""

from __future__ import annotations
import __future__

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeGuard

import msgspec

from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.syntax_trees import unpack
from dalsegno.lang.python.wrapping import WRAPPER
from dalsegno.lang.snapshots import SnapshotError

CodePath = tuple[int, ...]
"""How to find a nested function's code: the fragment, then which of the functions in it, and so on inwards."""

_INLINED = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>"))


@dataclass(frozen=True, slots=True)
class Natives:
    """The fragments of one function, and the nested functions and lambdas inside them."""

    fragments: tuple[CodeType, ...]
    nested: dict[CodePath, CodeType]
    paths: dict[int, CodePath]
    """By the identity of the code object: equal code at two places is two functions."""


def natives_of(code: FunctionCode, file: str, futures: tuple[str, ...]) -> Natives:
    flags = sum(
        getattr(__future__, name).compiler_flag for name in futures if name in __future__.all_feature_names
    )
    return _compiled(msgspec.json.encode(code.syntax), file, code.name, code.qualname, flags)


def futures_of(code: CodeType) -> tuple[str, ...]:
    """Which features of the future the module of this code imported, and that still change something."""
    return ("annotations",) if code.co_flags & __future__.annotations.compiler_flag else ()


@lru_cache(maxsize=512)
def _compiled(syntax: bytes, file: str, name: str, qualname: str, flags: int) -> Natives:
    try:
        module = compile(_tree(syntax), file, "exec", flags=flags, dont_inherit=True)
        fragments = _fragments(module, name, qualname)
    except (ValueError, TypeError, SyntaxError, LookupError, RecursionError) as error:
        raise SnapshotError(
            f"the fragments of the stored function '{name}' cannot be compiled: {error}"
        ) from error
    nested: dict[CodePath, CodeType] = {}
    for number, fragment in enumerate(fragments):
        _find_nested(fragment, (number,), nested)
    return Natives(fragments, nested, {id(code): path for path, code in nested.items()})


def _fragments(module: CodeType, name: str, qualname: str) -> tuple[CodeType, ...]:
    """In the order of their numbers, which are their names."""
    found = {int(code.co_name[1:]): code for code in _inner_code(_inner_code(module)[0])}
    return tuple(_renamed(found[number], name, qualname) for number in range(len(found)))


def _tree(syntax: bytes) -> ast.Module:
    tree = unpack(msgspec.json.decode(syntax))
    if not isinstance(tree, ast.Module) or getattr(tree.body[0], "name", "") != WRAPPER:
        raise SnapshotError("the stored program's fragments are damaged")
    return tree


def _inner_code(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _renamed(code: CodeType, name: str, qualname: str) -> CodeType:
    """Tracebacks and error messages show the user's names, not the wrapper's."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = constant.co_name.removeprefix("@")
            constants.append(_renamed(constant, inner, f"{qualname}.<locals>.{inner}"))
        else:
            constants.append(constant)
    return code.replace(co_name=name, co_qualname=qualname, co_consts=tuple(constants))


def _find_nested(code: CodeType, path: CodePath, found: dict[CodePath, CodeType]) -> None:
    """Comprehensions are looked through and not counted: newer Pythons have no code objects for them."""
    for ordinal, inner in enumerate(_functions_in(code)):
        place = (*path, ordinal)
        found[place] = inner
        _find_nested(inner, place, found)


def makes_functions(maker: Any) -> TypeGuard[FunctionType]:
    """Whether functions that it makes may be stored: not those of Python's library and ours."""
    root = str(getattr(maker, "__module__", "")).partition(".")[0]
    return isinstance(maker, FunctionType) and root not in sys.stdlib_module_names and root != "dalsegno"


def code_path(outer: CodeType, inner: CodeType) -> CodePath | None:
    """How to get from a function's code to that of a function it makes."""
    found: dict[CodePath, CodeType] = {}
    _find_nested(outer, (), found)
    return next((path for path, code in found.items() if code is inner), None)


def nested_code(maker: FunctionType, path: str) -> CodeType | None:
    """The code of a function that another one makes, or None."""
    found: dict[CodePath, CodeType] = {}
    _find_nested(maker.__code__, (), found)
    return found.get(tuple(int(part) for part in path.split(".") if part.isdigit()))


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    for inner in _inner_code(code):
        if inner.co_name in _INLINED:
            yield from _functions_in(inner)
        else:
            yield inner
