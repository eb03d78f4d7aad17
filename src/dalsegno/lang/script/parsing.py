"""Source of a script to its syntax tree."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, UnexpectedToken

from dalsegno.lang.errors import ExpressionError, FlowSyntaxError
from dalsegno.lang.limits import MAX_SOURCE
from dalsegno.lang.parser import ReadyTokens
from dalsegno.lang.precedence import SyntaxProblem
from dalsegno.lang.script.builder import ScriptBuilder
from dalsegno.lang.script.complaints import explain, runaway_string
from dalsegno.lang.script.forms import program_of
from dalsegno.lang.script.front_matter import split_front_matter
from dalsegno.lang.script.lexer import ScriptLexer
from dalsegno.lang.statements import Program


@cache
def _lark() -> Lark:
    folder = files("dalsegno.lang")
    parts = [folder.joinpath("grammar.lark"), folder.joinpath("script", "statements.lark")]
    grammar = "\n".join(part.read_text("utf-8") for part in parts)
    return Lark(grammar, parser="lalr", lexer=ReadyTokens, start="program", transformer=ScriptBuilder())


Parsed = tuple[Program, dict[str, Any]]
"""The tree of a script, and its front matter. Whoever needs it twice keeps it: parsing is most of the work."""


def parse_program(source: str, name: str | None = None) -> Parsed:
    """The tree and the front matter; `FlowSyntaxError` says what is wrong and where.

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
    """Half a surrogate pair is no character: what holds one can be neither stored nor shown."""
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as problem:
        shown = source.encode("utf-8", "replace").decode("utf-8")
        raise FlowSyntaxError.at("half a surrogate pair is no character", shown, problem.start) from None


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
