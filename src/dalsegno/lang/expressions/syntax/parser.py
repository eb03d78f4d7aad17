"""The parser of expressions: source to syntax tree, with lark's LALR parser and this package's errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, UnexpectedToken
from lark.lexer import Lexer as LarkLexer

from dalsegno.lang.errors import ExpressionError
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.expressions.syntax.builder import TreeBuilder
from dalsegno.lang.expressions.syntax.lexer import GRAPH, Dialect, Lexer, Token
from dalsegno.lang.expressions.syntax.precedence import SyntaxProblem
from dalsegno.lang.expressions.syntax.tree import Node
from dalsegno.lang.flow.syntax.keywords import STATEMENT_WORDS

_MISSING_VALUE = "a value is missing here"
_EXPECTED = {
    "RPAR": "')'", "RSQB": "']'", "RBRACE": "'}'", "COLON": "':'", "NAME": "a name", "ARROW": "'=>'",
    "INTERPOLATION_END": "'}'",
}  # fmt: skip

_ONLY_IN_SCRIPTS = {
    "await": "an expression cannot await: only scripts can",
    **dict.fromkeys(
        STATEMENT_WORDS,
        "an expression has no statements: the body of a function is one expression; use a script",
    ),
}
"""Messages for these words where they were read as a name and a syntax error followed."""


class ReadyTokens(LarkLexer):
    """Passes lark the list of tokens that it receives as its input."""

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, data: Any, parser_state: Any = None) -> Iterator[Any]:
        return iter(data)


@cache
def _lark() -> Lark:
    grammar = files("dalsegno.lang.expressions.syntax").joinpath("grammar.lark").read_text("utf-8")
    return Lark(grammar, parser="lalr", lexer=ReadyTokens, start="expression", transformer=TreeBuilder())


def parse_expression(
    source: str, names: RootNames, dialect: Dialect = GRAPH, start: int = 0, end: int | None = None
) -> Node:
    """Return the tree of the expression in ``source[start:end]``; its offsets count from the start of ``source``."""
    stop = len(source) if end is None else end
    tokens = Lexer(source, names, dialect, start, stop).tokens()
    if not tokens:
        raise ExpressionError.at("the expression is empty", source, start)
    try:
        return cast(Node, _lark().parse(cast(Any, tokens)))
    except UnexpectedToken as problem:
        raise _explain(problem, tokens, source, stop) from None
    except SyntaxProblem as problem:
        raise ExpressionError.at(problem.message, source, problem.offset) from None


def _explain(problem: UnexpectedToken, tokens: list[Token], source: str, end: int) -> ExpressionError:
    token = cast(Any, problem.token)
    expected = set(problem.expected)
    position = len(tokens) if token.type == "$END" else tokens.index(token)
    before = tokens[position - 1] if position else None
    if before is not None and before.type == "NAME" and before.value in _ONLY_IN_SCRIPTS:
        return ExpressionError.at(_ONLY_IN_SCRIPTS[before.value], source, before.offset)
    if token.type == "$END":
        what = (
            _MISSING_VALUE if "NUMBER" in expected else f"expected {_expected_text(expected)} before the end"
        )
        return ExpressionError.at(f"the expression ends too early: {what}", source, end)
    return ExpressionError.at(_message(token, expected), source, token.offset)


def _message(token: Token, expected: set[str]) -> str:
    if token.type == "EQUAL":
        return "an expression cannot assign; compare with =="
    if token.type == "LBRACE" and "NUMBER" not in expected:
        return "unexpected '{': an expression has no blocks of statements"
    shown = repr(token.value) if token.type == "STRING" else f"'{token.value}'"
    if "NUMBER" in expected:
        return f"unexpected {shown}: {_MISSING_VALUE}"
    if "INFIX" in expected:
        return f"unexpected {shown}: an operator is missing before it"
    return f"unexpected {shown}: expected {_expected_text(expected)}"


def _expected_text(expected: set[str]) -> str:
    return " or ".join(sorted(_EXPECTED[name] for name in expected if name in _EXPECTED)) or "something else"
