"""Errors of commands: one clear sentence and a hint, or one JSON object; a traceback only with DALSEGNO_DEBUG."""

from __future__ import annotations

import os
import re
import sys
import traceback
from textwrap import dedent
from typing import TYPE_CHECKING, Any, cast

from rich.markup import escape

from dalsegno.cli.group import ClickException
from dalsegno.cli.output import emit, stderr
from dalsegno.errors import (
    Conflict,
    DalSegnoError,
    Forbidden,
    InternalError,
    InvalidDefinition,
    InvalidInput,
    NotFound,
    SchemaMismatch,
    StoreFull,
    StoreLost,
    StoreReadOnly,
    Unauthenticated,
    Unavailable,
    is_debugging,
)

if TYPE_CHECKING:
    from dalsegno.lang.python.errors import UnsupportedPython


UNSUPPORTED_PYTHON = "DS-185"
"""The code of `UnsupportedPython`, whose module is imported only where Python is compiled."""
USAGE = 2
BROKEN = 3
STORE_LOST = 4
"""A separate exit code: a process that a supervisor restarts would begin with an empty store."""
INTERRUPTED = 130

HINTS: dict[type[DalSegnoError], str] = {
    NotFound: (
        "`dalsegno ls`, `workflows`, `task ls` and `dead ls` list what a store has; --store (or DALSEGNO_STORE) says "
        "which store."
    ),
    Unavailable: "`dalsegno doctor` searches for the cause.",
    StoreFull: "`dalsegno doctor` shows the free space.",
    StoreReadOnly: "`dalsegno doctor` shows what is missing.",
    StoreLost: "`dalsegno doctor` shows what is at the store's path now.",
    SchemaMismatch: "`dalsegno --version` shows which version this is.",
    Unauthenticated: (
        "Put a key into DALSEGNO_KEY. `dalsegno keys add NAME --scope run --store URL`, on the server's "
        "machine, makes "
        "one."
    ),
    Forbidden: "`dalsegno keys add NAME --scope admin` on the server's machine makes a key with more rights.",
}


class Refusal(DalSegnoError):
    """A refusal of a command, with its own hint."""

    code = "DS-100"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Unknown(NotFound):
    """Something that was named does not exist. The error has its own hint."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvalidDocument(DalSegnoError):
    """A document from a file, with all its errors."""

    code = InvalidDefinition.code

    def __init__(self, file: str, findings: list[dict[str, Any]], hint: str = "") -> None:
        self.file = file
        self.findings = findings
        self.hint = hint
        count = sum(finding["severity"] == "error" for finding in findings)
        super().__init__(f"{file} has {count} {'problem' if count == 1 else 'problems'}")


class UnfitFunction(InvalidDocument):
    """A Python function that cannot be a workflow."""

    code = UNSUPPORTED_PYTHON

    def __init__(self, error: UnsupportedPython) -> None:
        findings: list[dict[str, Any]] = [
            {
                "pointer": "",
                "rule": "unsupported-python",
                "severity": "error",
                "message": problem.message,
                "line": problem.line,
                "column": problem.column,
                "excerpt": dedent(problem.excerpt),
            }
            for problem in error.problems
        ]
        super().__init__(os.path.relpath(error.file) if error.file else "the workflow", findings)


class UnreadablePython(InvalidDocument):
    """A Python file that Python cannot compile."""

    code = UNSUPPORTED_PYTHON

    def __init__(self, error: SyntaxError) -> None:
        from dalsegno.lang.python.errors import Problem  # noqa: PLC0415 - it brings the languages

        line, column = error.lineno or 1, error.offset or 1
        finding: dict[str, Any] = {
            "pointer": "",
            "rule": "syntax",
            "severity": "error",
            "message": f"{type(error).__name__}: {error.msg}",
            "line": line,
            "column": column,
            "excerpt": dedent(Problem("", "", line, column, error.text or "").excerpt),
        }
        super().__init__(os.path.relpath(error.filename) if error.filename else "the module", [finding])


def report(error: BaseException, *, as_json: bool) -> int:
    """Print the error to standard error, or as JSON to standard output, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return 1
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if getattr(error, "code", None) == UNSUPPORTED_PYTHON and not isinstance(error, InvalidDocument):
        error = UnfitFunction(cast("UnsupportedPython", error))
    if is_debugging():
        traceback.print_exception(error)
    if as_json:
        emit(_as_object(error))
    elif isinstance(error, ClickException):
        error.show()  # type: ignore[attr-defined]  # click's own, with the usage line
    elif isinstance(error, InvalidDocument):
        _show_document(error)
    elif isinstance(error, DalSegnoError) and not isinstance(error, InternalError):
        _show(str(error), getattr(error, "hint", "") or _hint(error))
    else:
        _show(_unexpected(error), "Set DALSEGNO_DEBUG=1 to see where; please report it.")
    return _exit_code(error)


def _as_object(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ClickException):
        return {"error": {"code": "DS-100", "message": error.format_message()}}  # type: ignore[attr-defined]
    if not isinstance(error, DalSegnoError):
        return {"error": {"code": InternalError.code, "message": _unexpected(error)}}
    body: dict[str, Any] = {"error": {"code": error.code, "message": str(error)}}
    if isinstance(error, InvalidDocument):
        body["findings"] = error.findings
    elif isinstance(error, InvalidDefinition | InvalidInput) and error.findings:
        body["findings"] = [finding.as_dict() for finding in error.findings]
    return body


def _exit_code(error: BaseException) -> int:
    if isinstance(error, ClickException):
        return int(getattr(error, "exit_code", USAGE))
    if isinstance(error, StoreLost):
        return STORE_LOST
    return USAGE if isinstance(error, DalSegnoError) and not isinstance(error, InternalError) else BROKEN


_EXECUTION = re.compile(r"\bexecution ([\w-]+)")


def _hint(error: DalSegnoError) -> str:
    if isinstance(error, Conflict):
        named = _EXECUTION.search(str(error))
        return f"`dalsegno show {named[1]}` shows what state it is in." if named else ""
    return next((hint for kind, hint in HINTS.items() if isinstance(error, kind)), "")


def _unexpected(error: BaseException) -> str:
    message = str(error).strip().splitlines()
    return f"unexpected {type(error).__name__}{': ' + message[0] if message else ''}"


def _show(message: str, hint: str) -> None:
    console = stderr()
    console.print("[bold red]error:[/]", escape(message), soft_wrap=True)
    if hint:
        console.print(f"[dim]{escape(hint)}[/]", soft_wrap=True)


def _show_document(error: InvalidDocument) -> None:
    _show(str(error), "")
    from dalsegno.cli.programs import show_findings  # noqa: PLC0415 - it brings a reader of YAML

    show_findings(stderr(), error.file, error.findings)
    if error.hint:
        stderr().print(f"[dim]{escape(error.hint)}[/]", soft_wrap=True)


def _silence_stdout() -> None:
    """Redirect stdout to /dev/null: its reader has gone (``| head``), and a flush at exit would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
