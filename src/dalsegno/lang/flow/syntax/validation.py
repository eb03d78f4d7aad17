"""Validation of scripts: all checks before a script is stored or run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dalsegno.lang.errors import FlowSyntaxError
from dalsegno.lang.expressions.syntax.tree import Function, Program
from dalsegno.lang.flow.syntax.error_recovery import Recovered, recover
from dalsegno.lang.flow.syntax.findings import Finding, Report
from dalsegno.lang.flow.syntax.library_use import BUILTIN_NAMES, KNOWN_NAMES, LibraryUse, is_builtin
from dalsegno.lang.flow.syntax.parser import MAIN, Parsed, parse_program
from dalsegno.lang.flow.syntax.reachability import check_control
from dalsegno.lang.flow.syntax.scopes import ScopeWalk

FOREIGN = {
    "console": "; write log(…)",
    "fetch": '; use an http node: await Node.run("http", {url: …})',
    "setTimeout": '; write await Timer.delay("5s")',
    "sleep": '; write await Timer.delay("5s")',
}
"""Functions of other languages, with their replacements."""

_UNCALLED_MAIN = (
    "nothing calls 'main': with statements beside it, they are the program, and main is a function like any other; "
    "move them into it, or write return await main() at the end"
)


def validate(source: str, tasks: Iterable[str] | None = None, parsed: Parsed | None = None) -> list[Finding]:
    """Return all findings in source order. With syntax errors, the rest of the source is checked. Raises no error.

    With ``tasks``, the names of the existing tasks, literal names in ``Task.run`` are looked up among them.
    ``parsed`` is the result of ``parse_program`` for the same source.
    """
    try:
        program, _ = parsed if parsed is not None else parse_program(source)
    except FlowSyntaxError as problem:
        return _findings_of_rest(recover(source, problem), source, tasks)
    return _checked(program, source, tasks)


def task_calls(source: str) -> list[tuple[str, str | None]]:
    """Return the tasks that a program names by a literal, each with the queue of its call. Raise FlowSyntaxError."""
    program, _ = parse_program(source)
    report = Report(source)
    use = LibraryUse(ScopeWalk(program, report), report, None)
    use.check(program)
    return use.task_calls


def _findings_of_rest(found: Recovered, source: str, tasks: Iterable[str] | None) -> list[Finding]:
    """Return the syntax errors, and the findings in the rest of the program if it could be parsed."""
    findings = [finding_of(problem) for problem in found.problems]
    if found.parsed is not None:
        findings += _checked(found.parsed[0], source, tasks, found.hidden)
    return sorted(findings, key=lambda finding: (finding.line, finding.column))


def _checked(
    program: Program, source: str, tasks: Iterable[str] | None, hidden: Collection[str] = ()
) -> list[Finding]:
    """Check a program.

    ``hidden``: names that cannot be judged, because some of their uses are not in the program.
    """
    try:
        return _check(program, Report(source), None if tasks is None else frozenset(tasks), hidden)
    except RecursionError:  # the parser limits the nesting, but the caller's own stack may be deep
        return [Finding("syntax", "error", "the program is nested too deeply to be checked", 1, 1)]


def finding_of(problem: FlowSyntaxError) -> Finding:
    return Finding("syntax", "error", problem.message, problem.line, problem.column, problem.excerpt)


def _check(
    program: Program, report: Report, tasks: frozenset[str] | None, hidden: Collection[str]
) -> list[Finding]:
    scopes = ScopeWalk(program, report)
    _check_names(scopes, report, hidden)
    _check_unused(scopes, report, hidden, _uncalled_main(program))
    check_control(program, report)
    LibraryUse(scopes, report, tasks).check(program)
    return report.findings()


def _check_names(scopes: ScopeWalk, report: Report, hidden: Collection[str]) -> None:
    known = {*scopes.open_writes, *hidden}
    for node, candidates in scopes.open_reads:
        if node.name not in known and not is_builtin(node.name):
            hint = FOREIGN.get(node.name) or report.suggest(
                node.name, [*candidates, *scopes.open_writes, *KNOWN_NAMES]
            )
            report.note("undefined-variable", f"Undefined variable '{node.name}'{hint}", node.offset)
    for name, offset in scopes.open_writes.items():
        if name in hidden:
            continue
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


def _uncalled_main(program: Program) -> int | None:
    """Return the offset of the function that would be the program if there were no other statements."""
    if program.form != "statements":
        return None
    mains = [item for item in program.body.body if isinstance(item, Function) and item.name == MAIN]
    return mains[0].offset if mains else None


def _check_unused(scopes: ScopeWalk, report: Report, hidden: Collection[str], main: int | None) -> None:
    for variable in scopes.variables:
        if variable.read or variable.name.startswith("_") or variable.kind in ("parameter", "caught"):
            continue
        if variable.name in hidden:
            continue
        if variable.offset == main:
            report.note("uncalled-main", _UNCALLED_MAIN, main)
            continue
        message = f"'{variable.name}' is never used: remove it, or call it '_{variable.name}'"
        report.note("unused-variable", message, variable.offset)
