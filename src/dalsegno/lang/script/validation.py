"""Everything that can be said about a script before it is stored or run."""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.lang.errors import FlowSyntaxError
from dalsegno.lang.script.control import check_control
from dalsegno.lang.script.findings import Finding, Report
from dalsegno.lang.script.library_use import BUILTIN_NAMES, KNOWN_NAMES, LibraryUse, is_builtin
from dalsegno.lang.script.parsing import Parsed, parse_program
from dalsegno.lang.script.scopes import ScopeWalk
from dalsegno.lang.statements import Program

FOREIGN = {
    "console": "; write log(…)",
    "fetch": '; use an http node: await Node.run("http", {url: …})',
    "setTimeout": '; write await Timer.delay("5s")',
    "sleep": '; write await Timer.delay("5s")',
}
"""What other languages have, and how it is written here."""


def validate(source: str, tasks: Iterable[str] | None = None, parsed: Parsed | None = None) -> list[Finding]:
    """All findings, in the order of the source; a syntax error is the only one. Raises nothing.

    With ``tasks``, the names of the tasks there are, literal names in ``Task.run`` are looked up among them.
    ``parsed``: what ``parse_program`` made of the same source.
    """
    try:
        program, _ = parsed if parsed is not None else parse_program(source)
    except FlowSyntaxError as problem:
        return [finding_of(problem)]
    try:
        return _check(program, Report(source), None if tasks is None else frozenset(tasks))
    except RecursionError:  # the parser's limit of nesting is enough, unless the caller's own stack is deep
        return [Finding("syntax", "error", "the program is nested too deeply to be checked", 1, 1)]


def finding_of(problem: FlowSyntaxError) -> Finding:
    return Finding("syntax", "error", problem.message, problem.line, problem.column, problem.excerpt)


def _check(program: Program, report: Report, tasks: frozenset[str] | None) -> list[Finding]:
    scopes = ScopeWalk(program, report)
    _check_names(scopes, report)
    _check_unused(scopes, report)
    check_control(program, report)
    LibraryUse(scopes, report, tasks).check(program)
    return report.findings()


def _check_names(scopes: ScopeWalk, report: Report) -> None:
    for node, candidates in scopes.open_reads:
        if node.name not in scopes.open_writes and not is_builtin(node.name):
            hint = FOREIGN.get(node.name) or report.suggest(
                node.name, [*candidates, *scopes.open_writes, *KNOWN_NAMES]
            )
            report.note("undefined-variable", f"Undefined variable '{node.name}'{hint}", node.offset)
    for name, offset in scopes.open_writes.items():
        message = f"'{name}' is declared nowhere, so this makes a variable of the whole workflow: write let {name} = …"
        report.note("implicit-global", message, offset)
        _check_hiding(name, offset, report)
    for variable in scopes.variables:
        _check_hiding(variable.name, variable.offset, report)


def _check_hiding(name: str, offset: int, report: Report) -> None:
    if name in BUILTIN_NAMES:
        report.note(
            "hides-builtin", f"'{name}' hides the library's own '{name}': choose another name", offset
        )


def _check_unused(scopes: ScopeWalk, report: Report) -> None:
    for variable in scopes.variables:
        if variable.read or variable.name.startswith("_") or variable.kind in ("parameter", "caught"):
            continue
        message = f"'{variable.name}' is never used: remove it, or call it '_{variable.name}'"
        report.note("unused-variable", message, variable.offset)
