"""Names that compiled fragments read from the module around the workflow."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType


def global_names(code: CodeType) -> Iterator[str]:
    """Also those of the functions inside it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)
