"""Validation of scripts: all checks before a script is stored or run.

Control-flow checks: unreachable statements, and ``break`` outside of loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dalsegno.lang.errors import FlowSyntaxError
from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Await,
    Block,
    Break,
    Continue,
    For,
    ForEach,
    Function,
    If,
    Literal,
    Program,
    Return,
    Statement,
    Throw,
    Try,
    While,
)
from dalsegno.lang.flow.syntax.error_recovery import Recovered, recover
from dalsegno.lang.flow.syntax.library_use import BUILTIN_NAMES, KNOWN_NAMES, LibraryUse, is_builtin
from dalsegno.lang.flow.syntax.outline import callee
from dalsegno.lang.flow.syntax.parser import MAIN, MIGRATE, Parsed, parse_program
from dalsegno.lang.flow.syntax.scopes import ScopeWalk
from dalsegno.lang.flow.syntax.syntax_errors import Finding, Report
from dalsegno.lang.flow.syntax.tree import parts_of, walk

_LOOPS = (While, For, ForEach)
_LEAVES: dict[type, str] = {Return: "'return'", Throw: "'throw'", Break: "'break'", Continue: "'continue'"}


def check_control(program: Program, report: Report) -> None:
    _check_breaks(program, report)
    endings = _Endings()
    blocks = [node for node in walk(program) if isinstance(node, Block)]
    for block in reversed(blocks):  # from the inside, so that the parts of a block are known before the block
        _check_reachable(block, endings, report)


def _check_breaks(program: Program, report: Report) -> None:
    pending: list[tuple[Any, bool]] = [(program, False)]
    while pending:
        node, in_loop = pending.pop()
        if isinstance(node, Break | Continue):
            if not in_loop:
                word = "break" if isinstance(node, Break) else "continue"
                report.note(
                    "stray-break",
                    f"'{word}' is outside of a loop; leave a function with 'return'",
                    node.offset,
                )
        elif isinstance(node, Arrow | Function):
            pending.extend((part, False) for part in parts_of(node))
        elif isinstance(node, _LOOPS):
            pending.extend((part, in_loop or part is node.body) for part in parts_of(node))
        else:
            pending.extend((part, in_loop) for part in parts_of(node))


def check_labels(program: Program, report: Report) -> None:
    """Note labels that occur twice in one function: in another version of the program they could not be told apart."""
    pending: list[tuple[Any, dict[str, int]]] = [(program, {})]
    while pending:
        node, seen = pending.pop()
        if isinstance(node, Await):
            label = callee(node.operand)[1]
            if label is not None and label in seen:
                line = report.line_of(seen[label])
                report.note("repeated-label", f"the label '{label}' is that of line {line}, too", node.offset)
            elif label is not None:
                seen[label] = node.offset
        inside = {} if isinstance(node, Arrow | Function) else seen
        pending.extend((part, inside) for part in reversed(list(parts_of(node))))


def _check_reachable(block: Block, endings: _Endings, report: Report) -> None:
    endings.block(block)
    ended: Statement | None = None
    for statement in block.body:
        if ended is not None and not isinstance(statement, Function):
            what = _LEAVES.get(type(ended), "the statement")
            message = f"this is never reached: control does not get past {what} in line {report.line_of(ended.offset)}"
            report.note("unreachable-code", message, _start_of(statement))
            return
        if ended is None and endings.ends(statement):
            ended = statement


def _start_of(statement: Statement) -> int:
    """Return the leftmost offset of a statement: an expression's own offset is that of its operator."""
    offsets: list[int] = [node.offset for node in walk(statement, except_below=(Arrow, Function))]
    return min(offsets)


class _Endings:
    """Determines which statements control never leaves at their end; each block is examined once."""

    def __init__(self) -> None:
        self.known: dict[int, bool] = {}

    def ends(self, statement: Statement) -> bool:
        match statement:
            case Return() | Throw() | Break() | Continue():
                return True
            case Block():
                return self.block(statement)
            case If():
                return (
                    statement.otherwise is not None
                    and self.block(statement.then)
                    and self.block(statement.otherwise)
                )
            case Try():
                return self.tried(statement)
            case While() | For():
                return _is_endless(statement)
            case _:
                return False

    def block(self, block: Block) -> bool:
        found = self.known.get(id(block))
        if found is None:
            found = self.known[id(block)] = any(self.ends(statement) for statement in block.body)
        return found

    def tried(self, statement: Try) -> bool:
        if statement.cleanup is not None and self.block(statement.cleanup):
            return True
        return self.block(statement.body) and (statement.handler is None or self.block(statement.handler))


def _is_endless(loop: While | For) -> bool:
    test = loop.test
    if test is not None and not (isinstance(test, Literal) and test.value is True):
        return False
    return not _has_break(loop.body)


def _has_break(body: Block) -> bool:
    pending: list[Any] = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, Break):
            return True
        if not isinstance(node, (Arrow, Function, *_LOOPS)):
            pending.extend(parts_of(node))
    return False


# -- validation ----------------------------------------------------------------------------------------------


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
    check_labels(program, report)
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
        if variable.name in hidden or (variable.name == MIGRATE and variable.kind == "function"):
            continue
        if variable.offset == main:
            report.note("uncalled-main", _UNCALLED_MAIN, main)
            continue
        message = f"'{variable.name}' is never used: remove it, or call it '_{variable.name}'"
        report.note("unused-variable", message, variable.offset)
