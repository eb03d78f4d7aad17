"""The library of scripts: that of expressions, and the functions that create promises."""

from __future__ import annotations

from dalsegno.lang.stdlib.orchestration import FUNCTIONS as _ORCHESTRATION
from dalsegno.lang.stdlib.orchestration_names import LOWER_CASE, ORCHESTRATION_NAMESPACES
from dalsegno.lang.stdlib.registry import CONSTANTS, FUNCTIONS, NAMESPACES, library_name
from dalsegno.lang.values.kinds import Builtin

SCRIPT_FUNCTIONS: dict[str, Builtin] = FUNCTIONS | {builtin.name: builtin for builtin in _ORCHESTRATION}
SCRIPT_CONSTANTS = CONSTANTS
SCRIPT_NAMESPACES = NAMESPACES | ORCHESTRATION_NAMESPACES


def script_name(name: str) -> str:
    """Return the library's own spelling: ``task`` is ``Task``."""
    if name in SCRIPT_FUNCTIONS or name in SCRIPT_NAMESPACES:
        return name
    return LOWER_CASE.get(name) or library_name(name)


def is_library_name(name: str) -> bool:
    full = script_name(name)
    return full in SCRIPT_FUNCTIONS or full in SCRIPT_NAMESPACES
