"""Validation of files and what is said about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.markup import escape

from dalsegno.app import App
from dalsegno.cli.deploying import check_tasks, compile_document
from dalsegno.cli.documents import Document, read_document
from dalsegno.cli.findings import show_findings
from dalsegno.cli.modules import PYTHON, workflows_in
from dalsegno.cli.opening import make_app, opened
from dalsegno.cli.output import several, signs_for, stdout
from dalsegno.cli.problems import InvalidDocument, Refusal, UnfitFunction
from dalsegno.cli.scripts import check_script
from dalsegno.engine.unfinished_versions import LackingVersion, lacking_versions
from dalsegno.lang.python import UnsupportedPython


@dataclass(frozen=True, slots=True)
class Check:
    file: str
    valid: bool
    name: str | None
    kind: str
    """``graph``, ``script`` or ``python``."""
    size: str
    """How many nodes, lines or workflows, in words."""
    findings: list[dict[str, Any]]


def check_files(files: Sequence[str], app: App, *, tasks: bool = False) -> list[Check]:
    """``tasks``: names of tasks are looked up, too."""
    return [_python(file) if file.endswith(PYTHON) else _document(file, app, tasks) for file in files]


def _python(file: str) -> Check:
    """Imported as ``run`` does: what cannot be a workflow is refused where it is defined."""
    try:
        names = workflows_in(file)
    except InvalidDocument as error:
        return Check(file, False, None, "python", "", error.findings)
    except UnsupportedPython as error:
        return Check(file, False, None, "python", "", UnfitFunction(error).findings)
    return Check(file, True, ", ".join(names), "python", several(len(names), "workflow"), [])


def _document(file: str, app: App, tasks: bool) -> Check:
    document = read_document(file)
    return _script(document, app, tasks) if document.is_script else _graph(document, app, tasks)


def _graph(document: Document, app: App, tasks: bool) -> Check:
    try:
        compiled, warnings = compile_document(document, app.registry)
    except InvalidDocument as error:
        return Check(document.file, False, None, "graph", "", error.findings)
    if tasks:
        warnings += check_tasks(app, document, compiled)
    size = several(len(compiled.plan.nodes), "node")
    return Check(document.file, True, compiled.plan.name, "graph", size, warnings)


def _script(document: Document, app: App, tasks: bool) -> Check:
    checked = check_script(document, app.tasks.names() if tasks else None)
    size = several(checked.lines, "line")
    return Check(document.file, checked.valid, checked.name, "script", size, checked.findings)


async def lacking_here(files: Sequence[str], store: str | None, app: str | None) -> list[LackingVersion]:
    """What executions in flight need and the program does not have: that of ``app``, or of the first Python file."""
    program = app or next((file for file in files if file.endswith(PYTHON)), None)
    if program is None:
        raise Refusal(
            "--against-live compares a program with a store, and there is none", "Name it with --app."
        )
    made = make_app(store, program)
    async with opened(made) as client:
        return await lacking_versions(client, made.workflows)


def valid_or_not(checks: Sequence[Check], lacking: Sequence[LackingVersion] | None = None) -> dict[str, Any]:
    """One object over all files; every finding says which file it is about. ``lacking``: where that was looked at."""
    findings = [{"file": check.file, **finding} for check in checks for finding in check.findings]
    told: dict[str, Any] = {
        "valid": all(check.valid for check in checks) and not lacking,
        "files": [
            {"file": check.file, "kind": check.kind, "valid": check.valid, "name": check.name}
            for check in checks
        ],
        "findings": findings,
    }
    if lacking is not None:
        told["lacking"] = [{**msgspec.structs.asdict(each), "message": each.sentence} for each in lacking]
    bad = [check.file for check in checks if not check.valid]
    if bad:
        told["error"] = {"code": InvalidDocument.code, "message": f"not valid: {', '.join(bad)}"}
    return told


def print_checks(checks: Sequence[Check]) -> None:
    console = stdout()
    signs = signs_for(console)
    for check in checks:
        if check.valid:
            console.print(
                f"[green]{signs.states['COMPLETED']}[/] {escape(check.file)}: "
                f"{_named(check.name)}{check.size}",
                soft_wrap=True,
            )
        else:
            count = sum(finding["severity"] == "error" for finding in check.findings)
            sign = escape(signs.states["FAILED"])
            console.print(f"[red]{sign}[/] {escape(check.file)}: {several(count, 'error')}", soft_wrap=True)
        show_findings(console, check.file, check.findings)


def print_lacking(lacking: Sequence[LackingVersion]) -> None:
    console = stdout()
    sign = escape(signs_for(console).states["FAILED"])
    for each in lacking:
        console.print(f"[red]{sign}[/] {escape(each.sentence)}", soft_wrap=True)


def _named(name: str | None) -> str:
    return f"[bold]{escape(name)}[/], " if name else ""
