"""Errors that last: the same definition with the same input would meet them again, so a retry is no help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dalsegno.errors import InvalidDefinition, InvalidInput, LimitExceeded, NotJson
from dalsegno.lang.python import NotStorable, UnsupportedPython
from dalsegno.model.execution import SCRIPTED

OF_PROGRAMS = frozenset(
    kind.__name__ for kind in (InvalidDefinition, InvalidInput, LimitExceeded, NotStorable, UnsupportedPython)
)
"""Codes of what the program itself is, not of what its tasks met."""
OF_GRAPHS = OF_PROGRAMS | {
    "EDIT_FAILED",
    "INVALID_PARAMETERS",
    "NOT_AN_OBJECT",
    "NOT_A_LIST",
    "OUTPUT_FAILED",
    "WRONG_NODE_TYPE",
}
"""A retry of a graph begins where it failed, with the recorded outputs: what they cannot give, they never will."""


def fails_always(kind: str, error: Mapping[str, Any]) -> bool:
    """``kind`` of the execution. A program's retry begins anew, and its tasks may do better."""
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
"""What the language says about a program's own text."""
OF_PYTHON = frozenset(
    ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError", NotJson.__name__)
)
FORGOTTEN_AWAIT = "was an await forgotten?"


def is_of_the_code(kind: str, error: Mapping[str, Any]) -> bool:
    """Whether the workflow's own text is to be mended. Errors of its tasks have other codes, or name their classes."""
    if kind not in SCRIPTED:
        return False
    code = error.get("code")
    if not error.get("classes"):
        return code in OF_SCRIPTS
    return code in OF_PYTHON or FORGOTTEN_AWAIT in str(error.get("message"))


def _is_ours(error: Mapping[str, Any]) -> bool:
    """A user's own exception may be called like one of ours."""
    classes = error.get("classes")
    return not classes or str(classes[0]).startswith("dalsegno.")
