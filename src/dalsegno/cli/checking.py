"""Validation of files and what is said about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.markup import escape

from dalsegno.app import App
from dalsegno.cli.deploying import Deployed, check_tasks, compile_document
from dalsegno.cli.documents import read_document
from dalsegno.cli.findings import show_findings
from dalsegno.cli.output import several, signs_for, stdout
from dalsegno.cli.problems import InvalidDocument


@dataclass(frozen=True, slots=True)
class Check:
    file: str
    valid: bool
    name: str | None
    nodes: int
    findings: list[dict[str, Any]]


def check_files(files: Sequence[str], app: App, *, tasks: bool = False) -> list[Check]:
    """``tasks``: names of tasks are looked up, too."""
    documents = [read_document(file) for file in files]
    checks = []
    for document in documents:
        try:
            compiled, warnings = compile_document(document, app.registry)
            if tasks:
                warnings += check_tasks(app, document, compiled)
            checks.append(Check(document.file, True, compiled.plan.name, len(compiled.plan.nodes), warnings))
        except InvalidDocument as error:
            checks.append(Check(document.file, False, None, 0, error.findings))
    return checks


def valid_or_not(checks: Sequence[Check]) -> dict[str, Any]:
    """One object over all files; every finding says which file it is about."""
    findings = [{"file": check.file, **finding} for check in checks for finding in check.findings]
    told: dict[str, Any] = {
        "valid": all(check.valid for check in checks),
        "files": [{"file": check.file, "valid": check.valid, "name": check.name} for check in checks],
        "findings": findings,
    }
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
                f"[bold]{escape(check.name or '')}[/], {several(check.nodes, 'node')}",
                soft_wrap=True,
            )
        else:
            count = sum(finding["severity"] == "error" for finding in check.findings)
            sign = escape(signs.states["FAILED"])
            console.print(f"[red]{sign}[/] {escape(check.file)}: {several(count, 'error')}", soft_wrap=True)
        show_findings(console, check.file, check.findings)


def print_deployed(deployed: Sequence[Deployed]) -> None:
    console = stdout()
    for each in deployed:
        style = "green" if each.status == "new" else "dim"
        console.print(
            f"[bold]{escape(each.name)}[/] v{each.version}  [{style}]{each.status}[/]  [dim]{escape(each.file)}[/]",
            soft_wrap=True,
        )
        show_findings(console, each.file, each.warnings)
