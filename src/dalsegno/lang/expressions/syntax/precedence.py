"""Operator precedence as a table, and the conversion of a flat sequence to a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dalsegno.lang.expressions.syntax.lexer import Token
from dalsegno.lang.expressions.syntax.tree import Await, Binary, Logical, Node, Step, Unary
from dalsegno.lang.runtime.limits import MAX_NESTING, TOO_DEEP

LOGICAL = frozenset({"??", "||", "&&"})
MEMBERSHIP = ("in", "contains", "matches", "startsWith", "endsWith")
COMPARISONS = frozenset(
    {"==", "!=", "<", "<=", ">", ">=", *MEMBERSHIP, *(f"not {word}" for word in MEMBERSHIP)}
)

# Loosest first. `not` is between `&&` and the comparisons, the other prefix operators are tight.
INFIX_POWER = {
    "??": 1,
    "||": 2,
    "&&": 3,
    **dict.fromkeys(("==", "!="), 5),
    **dict.fromkeys((*MEMBERSHIP, *(f"not {word}" for word in MEMBERSHIP)), 6),
    **dict.fromkeys(("<", "<=", ">", ">="), 7),
    **dict.fromkeys(("+", "-"), 8),
    **dict.fromkeys(("*", "/", "%"), 9),
    "**": 11,
}
PREFIX_POWER = {"not": 4, "!": 10, "-": 10, "+": 10, "typeof": 10, "await": 10}
_RIGHT_ASSOCIATIVE = frozenset({"**"})


class SyntaxProblem(Exception):
    """A violated rule of the language at an offset; the parser adds the source."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def depth_over(children: Iterable[int], offset: int) -> int:
    """Return the depth of a node over children of these depths; refuse nodes that are nested too deep."""
    depth = max(children, default=0) + 1
    if depth > MAX_NESTING:
        raise SyntaxProblem(TOO_DEEP, offset)
    return depth


@dataclass(frozen=True, slots=True)
class Prefixed:
    """An operand with the operators before it, not yet applied because they may bind looser than what follows."""

    operators: tuple[Token, ...]
    operand: Node


class _Resolver:
    """Dijkstra's shunting yard: two stacks, no recursion."""

    def __init__(self) -> None:
        self.operands: list[Node] = []
        self.pending: list[tuple[int, bool, Token]] = []

    def operand(self, item: Node | Prefixed) -> None:
        if isinstance(item, Prefixed):
            self.pending.extend((PREFIX_POWER[token.value], True, token) for token in item.operators)
            item = item.operand
        self.operands.append(item)

    def operator(self, token: Token) -> None:
        power = INFIX_POWER[token.value]
        if token.value == "**" and self.pending and self.pending[-1][1] and self.pending[-1][0] == 10:
            sign = self.pending[-1][2].value
            before = f"{sign} " if sign.isalpha() else sign
            raise SyntaxProblem(
                f"'{sign}' before '**' is ambiguous: write ({before}a) ** b or {before}(a ** b)", token.offset
            )
        self.apply_down_to(power + 1 if token.value in _RIGHT_ASSOCIATIVE else power)
        self.pending.append((power, False, token))

    def apply_down_to(self, power: int) -> None:
        while self.pending and self.pending[-1][0] >= power:
            _, is_prefix, token = self.pending.pop()
            if is_prefix:
                self.operands.append(_prefixed(token, self.operands.pop()))
            else:
                right = self.operands.pop()
                self.operands.append(_combine(self.operands.pop(), token, right))


def _prefixed(token: Token, operand: Node) -> Node:
    depth = depth_over([operand.depth], token.offset)
    if token.value == "await":
        return Await(operand, token.offset, depth)
    return Unary("!" if token.value == "not" else token.value, operand, token.offset, depth)


def _combine(left: Node, token: Token, right: Node) -> Node:
    """Return one node for ``left operator right``, extending a chain to the left instead of nesting."""
    operator = token.value
    if operator in LOGICAL:
        if isinstance(left, Logical) and left.operator == operator:
            left.operands.append(right)
            left.depth = max(left.depth, depth_over([right.depth], token.offset))
            return left
        depth = depth_over([left.depth, right.depth], token.offset)
        return Logical(operator, [left, right], token.offset, depth)
    step = Step(operator, right, token.offset)
    if isinstance(left, Binary):
        left.steps.append(step)
        left.depth = max(left.depth, depth_over([right.depth], token.offset))
        return left
    return Binary(left, [step], token.offset, depth_over([left.depth, right.depth], token.offset))


def resolve_operators(items: Sequence[Node | Prefixed | Token]) -> Node:
    """Return the tree of a sequence ``operand (operator operand)*``."""
    first = items[0]
    if len(items) == 1 and not isinstance(first, (Prefixed, Token)):
        return first
    resolver = _Resolver()
    for item in items:
        if isinstance(item, Token):
            resolver.operator(item)
        else:
            resolver.operand(item)
    resolver.apply_down_to(0)
    return resolver.operands[0]
