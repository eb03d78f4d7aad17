"""``errors.md``: one section per code, with cause and cure, and the codes under which nodes fail."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from dalsegno import errors
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.error_causes import CAUSES, NODE_CODES
from dalsegno.errors import DalSegnoError
from dalsegno.graph.templates import TemplateErrors
from dalsegno.lang.errors import ExpressionError, FlowSyntaxError, SnapshotError
from dalsegno.lang.python import NotStorable, OutsideWorkflow, UnsupportedPython
from scripts.pages.markdown import NOTICE, code, table

INTRODUCTION = """
The base class of an error says who must act: the caller (`UsageError`), the operator of the system (`OperatorError`),
or the authors of Dal Segno (`InternalError`). Every class has a stable code, `error.code`.

"""

NODES = """
## Failures of nodes

A node's failure is a value, not an exception: an error object with one of these codes, or a code of your own
(`NodeError(…, code=…)`). Failures of expressions have the code of the language, such as `TypeError` or
`PROPERTY_NOT_FOUND`.

"""


def error_classes() -> Iterator[type[DalSegnoError]]:
    """Every class that carries a code of its own, by code."""
    found: set[type[DalSegnoError]] = {
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, DalSegnoError) and "code" in vars(each)
    }
    found |= {ExpressionError, FlowSyntaxError, InvalidScript, SnapshotError, TemplateErrors}
    found |= {NotStorable, OutsideWorkflow, UnsupportedPython}
    yield from sorted(found, key=lambda each: each.code)


def page() -> str:
    tree = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0]
    tree = inspect.cleandoc(tree)
    sections = "\n".join(_section(each) for each in error_classes())
    nodes = table(
        ("code", "cause", "cure"), [(code(name), *text) for name, text in sorted(NODE_CODES.items())]
    )
    return f"# Errors\n\n{NOTICE}{INTRODUCTION}```text\n{tree}\n```\n\n{sections}{NODES}{nodes}"


def _section(error: type[DalSegnoError]) -> str:
    cause, cure = CAUSES[error.code]
    parent = error.__mro__[1]
    kind = f", a `{parent.__name__}`" if issubclass(parent, DalSegnoError) else ""
    return f"## {error.code}\n\n`{error.__name__}`{kind}.\n\n**Cause.** {cause}\n\n**Cure.** {cure}\n"
