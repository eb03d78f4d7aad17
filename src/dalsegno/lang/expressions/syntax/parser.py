"""The parser of expressions: source to syntax tree, with lark's LALR parser and this package's errors.

Builds the syntax tree during parsing; one method per rule of the grammar.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Transformer, UnexpectedToken
from lark.lexer import Lexer as LarkLexer

from dalsegno.lang.errors import ExpressionError
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.expressions.syntax.lexer import GRAPH, Dialect, Lexer, Token
from dalsegno.lang.expressions.syntax.precedence import Prefixed, SyntaxProblem, depth_over, resolve_operators
from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Call,
    Chain,
    Conditional,
    Entry,
    Index,
    ListLiteral,
    ListPattern,
    Literal,
    Member,
    Name,
    NamePattern,
    Node,
    ObjectLiteral,
    ObjectPattern,
    Root,
    Spread,
    Target,
    TextTemplate,
)
from dalsegno.lang.flow.syntax.keywords import STATEMENT_WORDS
from dalsegno.lang.values.kinds import number_text

Children = list[Any]
"""The input from lark: tokens, and results of other methods of the builder."""


def _without_tokens(children: Children) -> Children:
    return [child for child in children if type(child) is not Token]


def _depth(nodes: Children | tuple[Any, ...], offset: int) -> int:
    return depth_over([node.depth for node in nodes], offset)


class TreeBuilder(Transformer[Token, Node]):
    """Method names are the rule names and aliases of grammar.lark."""

    def conditional(self, children: Children) -> Node:
        test, mark, then, _, otherwise = children
        return Conditional(test, then, otherwise, mark.offset, _depth([test, then, otherwise], mark.offset))

    def sequence(self, children: Children) -> Node:
        return resolve_operators(children)

    def prefixed(self, children: Children) -> Prefixed:
        return Prefixed(tuple(children[:-1]), children[-1])

    def prefixed_chain(self, children: Children) -> Prefixed:
        prefixes = [child for child in children if type(child) is Token]
        return Prefixed(tuple(prefixes), self.chain(children[len(prefixes) :]))

    def chain(self, children: Children) -> Node:
        base, *links = children
        return Chain(base, tuple(links), base.offset, _depth(children, base.offset))

    def member(self, children: Children) -> Member:
        mark, name = children
        return Member(name.value, mark.type == "OPTIONAL", name.offset)

    def index(self, children: Children) -> Index:
        node = children[-2]
        offset = children[0].offset
        return Index(node, children[0].type == "OPTIONAL", offset, _depth([node], offset))

    def call(self, children: Children) -> Call:
        opener, arguments, _ = children
        return Call(tuple(arguments), opener.offset, _depth(arguments, opener.offset))

    def literal(self, children: Children) -> Literal:
        return Literal(children[0].value, children[0].offset)

    def name(self, children: Children) -> Name:
        return Name(children[0].value, children[0].offset)

    def root(self, children: Children) -> Root:
        return Root(children[0].value, children[0].offset)

    def parenthesised(self, children: Children) -> Any:
        return children[1]

    def list_literal(self, children: Children) -> ListLiteral:
        opener, items, _ = children
        return ListLiteral(tuple(items), opener.offset, _depth(items, opener.offset))

    def object_literal(self, children: Children) -> ObjectLiteral:
        opener, entries, _ = children
        return ObjectLiteral(tuple(entries), opener.offset, _depth(entries, opener.offset))

    def text_template(self, children: Children) -> TextTemplate:
        opener, *parts, _ = children
        return TextTemplate(tuple(parts), opener.offset, _depth(parts, opener.offset))

    arguments = entries = targets = fields = staticmethod(_without_tokens)

    def spread(self, children: Children) -> Spread:
        mark, node = children
        return Spread(node, mark.offset, _depth([node], mark.offset))

    def shorthand(self, children: Children) -> Entry:
        (name,) = children
        return Entry(Literal(name.value, name.offset), Name(name.value, name.offset), name.offset, 1)

    def pair(self, children: Children) -> Entry:
        key, _, node = children
        text = number_text(key.value) if key.type == "NUMBER" else key.value
        return Entry(Literal(text, key.offset), node, key.offset, node.depth)

    def computed_pair(self, children: Children) -> Entry:
        opener, key, _, _, node = children
        return Entry(key, node, opener.offset, max(key.depth, node.depth))

    def arrow_of_one(self, children: Children) -> Arrow:
        name, mark, body = children
        target = Target(NamePattern(name.value, name.offset), None, False, name.offset, 1)
        return Arrow((target,), body, mark.offset, _depth([body], mark.offset))

    def arrow(self, children: Children) -> Arrow:
        _, targets, _, mark, body = children
        check_rest_is_last(targets)
        return Arrow(tuple(targets), body, mark.offset, _depth([body, *targets], mark.offset))

    def target(self, children: Children) -> Target:
        pattern = children[0]
        default = children[2] if len(children) > 1 else None
        nodes = [pattern] if default is None else [pattern, default]
        return Target(pattern, default, False, pattern.offset, _depth(nodes, pattern.offset))

    def rest_target(self, children: Children) -> Target:
        mark, pattern = children
        return Target(pattern, None, True, mark.offset, _depth([pattern], mark.offset))

    def name_pattern(self, children: Children) -> NamePattern:
        return NamePattern(children[0].value, children[0].offset)

    def list_pattern(self, children: Children) -> ListPattern:
        opener, targets, _ = children
        check_rest_is_last(targets)
        return ListPattern(tuple(targets), opener.offset, _depth(targets, opener.offset))

    def object_pattern(self, children: Children) -> ObjectPattern:
        opener, fields, _ = children
        depth = _depth([target for _, target in fields], opener.offset)
        return ObjectPattern(tuple(fields), opener.offset, depth)

    def field_shorthand(self, children: Children) -> tuple[str, Target]:
        name = children[0]
        return name.value, self.target([NamePattern(name.value, name.offset), *children[1:]])

    def field_renamed(self, children: Children) -> tuple[str, Target]:
        return children[0].value, self.target(children[2:])


def check_rest_is_last(targets: Children) -> None:
    for target in targets[:-1]:
        if target.rest:
            raise SyntaxProblem("'...' takes everything that is left, so it must come last", target.offset)


# -- parsing -------------------------------------------------------------------------------------------------


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
