"""The parser of scripts: source to syntax tree.

The forms that a program may have are reduced to one: the code that runs, its parameters and the other functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, cast
from typing import Literal as OneOf

from lark import Lark, UnexpectedToken

from dalsegno.lang.errors import ExpressionError, FlowSyntaxError
from dalsegno.lang.expressions.syntax.parser import ReadyTokens
from dalsegno.lang.expressions.syntax.precedence import SyntaxProblem
from dalsegno.lang.expressions.syntax.tree import Block, Declaration, Function, Program, Statement, Target
from dalsegno.lang.flow.syntax.builder import ScriptBuilder, Workflow, block_of
from dalsegno.lang.flow.syntax.front_matter import split_front_matter
from dalsegno.lang.flow.syntax.lexer import ScriptLexer
from dalsegno.lang.flow.syntax.syntax_errors import explain, runaway_string
from dalsegno.lang.runtime.limits import MAX_SOURCE

MAIN = "main"
EMPTY = "the program is empty: write at least one statement"


def program_of(items: Sequence[Statement | Workflow], start: int) -> Program:
    """Return the program. ``start`` is its first offset, after the front matter."""
    wrappers = [item for item in items if isinstance(item, Workflow)]
    statements = [item for item in items if not isinstance(item, Workflow)]
    if wrappers:
        return _wrapped(wrappers, statements)
    mains = [item for item in statements if isinstance(item, Function) and item.name == MAIN]
    others = [item for item in statements if not isinstance(item, Function)]
    if mains and all(isinstance(item, Declaration) for item in others):
        main = mains[-1]
        rest = [item for item in statements if item is not main]
        return _around(rest, main.parameters, main.body, None, "main")
    if not statements:
        raise SyntaxProblem(EMPTY, start)
    body = block_of(statements, start)
    return Program((), (), body, None, "statements")


def _wrapped(wrappers: Sequence[Workflow], statements: list[Statement]) -> Program:
    wrapper = wrappers[0]
    if len(wrappers) > 1:
        raise SyntaxProblem("a source holds one workflow; this is the second", wrappers[1].offset)
    for statement in statements:
        if not isinstance(statement, Function | Declaration):
            message = (
                "only functions and declarations may be written beside a workflow: move this into its body"
            )
            raise SyntaxProblem(message, statement.offset)
    return _around(statements, wrapper.parameters, wrapper.body, wrapper.name, "workflow")


def _around(
    other_statements: list[Statement],
    parameters: tuple[Target, ...],
    body: Block,
    name: str | None,
    form: OneOf["main", "workflow"],
) -> Program:
    """Return a program with variables outside its main function.

    They are set before the function runs, whose body is a block inside the surrounding one.
    """
    if len(parameters) > 2:
        message = "a workflow takes at most two parameters: the context and the inputs"
        raise SyntaxProblem(message, parameters[2].offset)
    functions = tuple(item for item in other_statements if isinstance(item, Function))
    if len(functions) < len(other_statements):
        return Program((), parameters, block_of([*other_statements, body], body.offset), name, form)
    return Program(functions, parameters, body, name, form)


@cache
def _lark() -> Lark:
    parts = [
        files("dalsegno.lang.expressions.syntax").joinpath("grammar.lark"),
        files("dalsegno.lang.flow.syntax").joinpath("statements.lark"),
    ]
    grammar = "\n".join(part.read_text("utf-8") for part in parts)
    return Lark(grammar, parser="lalr", lexer=ReadyTokens, start="program", transformer=ScriptBuilder())


Parsed = tuple[Program, dict[str, Any]]
"""The tree of a script, and its front matter. Callers that need it twice keep it: parsing is most of the work."""


def parse_program(source: str, name: str | None = None) -> Parsed:
    """Return the tree and the front matter; `FlowSyntaxError` says what is wrong and where.

    The program's name is the front matter's, else the wrapper's, else ``name``.
    """
    if len(source) > MAX_SOURCE:
        message = f"the source has {len(source):,} characters; the limit is {MAX_SOURCE:,}"
        raise FlowSyntaxError(message)
    _check_unicode(source)
    front_matter, start = split_front_matter(source)
    program = _parse(source, start)
    return replace(program, name=front_matter.get("name") or program.name or name), front_matter


def _check_unicode(source: str) -> None:
    """Refuse lone surrogates: text that holds one can be neither stored nor shown."""
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as problem:
        shown = source.encode("utf-8", "replace").decode("utf-8")
        raise FlowSyntaxError.at("half a surrogate pair is not a character", shown, problem.start) from None


def _parse(source: str, start: int) -> Program:
    lexer = ScriptLexer(source, start)
    try:
        tokens = lexer.tokens()
        return program_of(cast(Any, _lark().parse(cast(Any, tokens))), start)
    except UnexpectedToken as problem:
        raise explain(problem, lexer.found, source) from None
    except SyntaxProblem as problem:
        raise FlowSyntaxError.at(problem.message, source, problem.offset) from None
    except ExpressionError as problem:
        message = problem.message + runaway_string(lexer.found[-3:], source)
        raise FlowSyntaxError(message, problem.line, problem.column, source) from None
