"""Names that compiled fragments read from the module around the workflow."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_GLOBALS = ("LOAD_GLOBAL",)
_OUTSIDE = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


def global_names(code: CodeType) -> Iterator[str]:
    """With the attributes that are read of them at once, as in ``module.name``; also those of functions inside."""
    return _names_read(code, _GLOBALS)


def outside_names(code: CodeType) -> Iterator[str]:
    """The same, with the names of free variables."""
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
    """Names of attributes that the code, or a function inside of it, may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from attribute_names(constant)
