"""Names that compiled fragments read from the module around the workflow."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


def global_names(code: CodeType) -> Iterator[str]:
    """With the attributes that are read of them at once, as in ``module.name``; also those of functions inside."""
    found = ""
    for instruction in dis.get_instructions(code):
        if found and instruction.opname in _ATTRIBUTES:
            found += f".{instruction.argval}"
            continue
        if found:
            yield found
        found = instruction.argval if instruction.opname == "LOAD_GLOBAL" else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)
