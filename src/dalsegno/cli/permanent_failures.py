"""Failures that a retry would meet again: those of a definition or of an input, not of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.errors import (
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotJson,
)
from dalsegno.lang.python import NotStorable, UnsupportedPython
from dalsegno.model.execution import SCRIPTED

OF_PROGRAMS = frozenset(
    kind.__name__ for kind in (InvalidDefinition, InvalidInput, LimitExceeded, NotStorable, UnsupportedPython)
)
"""Codes of errors of the program itself, not of its tasks."""


OF_GRAPHS = OF_PROGRAMS | {
    "EDIT_FAILED",
    "INVALID_PARAMETERS",
    "NOT_AN_OBJECT",
    "NOT_A_LIST",
    "OUTPUT_FAILED",
    "WRONG_NODE_TYPE",
}
"""Codes for graphs. A retry starts where the graph failed, with the recorded outputs, so it would fail again."""


def fails_always(kind: str, error: Mapping[str, Any]) -> bool:
    """Return whether a retry would fail again. ``kind``: of the execution. A program starts over, so its tasks may
    succeed."""
    known = OF_GRAPHS if kind == "graph" else OF_PROGRAMS
    return kind != "task" and error.get("code") in known and _is_ours(error)


OF_SCRIPTS = frozenset(
    (
        "NOT_A_FUNCTION",
        "PROPERTY_NOT_FOUND",
        "ReferenceError",
        "TYPE_ERROR",
        "TypeError",
        "WRONG_ARG_COUNT",
        "WRONG_ARG_TYPE",
    )
)
"""Codes that the script language gives to mistakes in the program's own text."""


OF_PYTHON = frozenset(
    ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", NotJson.__name__)
)


FORGOTTEN_AWAIT = "is an await missing?"


def is_of_the_code(kind: str, error: Mapping[str, Any]) -> bool:
    """Return whether the workflow's own text must be fixed. Errors of tasks have other codes, or name their classes."""
    if kind not in SCRIPTED:
        return False
    code = error.get("code")
    if not error.get("classes"):
        return code in OF_SCRIPTS
    return code in OF_PYTHON or FORGOTTEN_AWAIT in str(error.get("message"))


def _is_ours(error: Mapping[str, Any]) -> bool:
    """Return whether the exception is ours: a user's exception may have the same name."""
    classes = error.get("classes")
    return not classes or str(classes[0]).startswith("dalsegno.")
