"""Builds the syntax tree during parsing; one method per rule of the grammar."""

from __future__ import annotations

from typing import Any

from lark import Transformer

from dalsegno.lang.expressions.syntax.lexer import Token
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
from dalsegno.lang.values.numbers import number_text

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
