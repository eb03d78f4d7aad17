"""What the lexer of scripts remembers: the brackets around the place it has reached, and what came just before."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from dalsegno.lang.errors import line_and_column
from dalsegno.lang.lexer import Token

OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(OPENERS.values())
_CLOSER_KINDS = {"(": "RPAR", "[": "RSQB", "{": "RBRACE"}
_BLOCKS = frozenset({"block", "arrow", "function"})
_HEAD_WORDS = frozenset({"IF", "WHILE", "FOR", "CATCH"})
_NAMED_HEADS = frozenset({"FUNCTION", "FUNCTION_VALUE", "WORKFLOW"})


class State(Enum):
    """What may come next."""

    START = auto()
    """A statement."""
    OPEN = auto()
    """A value."""
    OPERAND = auto()
    """An operator, a call …, or the next statement."""
    ENDED = auto()
    """Only the next statement: after ``break``, ``i++`` or the body of an arrow function."""
    RETURNING = auto()
    """A value on the same line, or the next statement."""
    ARROW = auto()
    """The body of an arrow function."""


_STATES_AFTER = {"block": State.START, "arrow": State.ENDED}


class Bracket:
    """``role`` says what the bracket is for; ``keyword`` is the word whose body follows it, as in ``if (…)``."""

    __slots__ = ("end", "index", "keyword", "role", "starts_statement", "token")

    def __init__(
        self, token: Token, index: int, role: str, starts_statement: bool, keyword: Token | None
    ) -> None:
        self.token = token
        self.index = index
        self.role = role
        self.starts_statement = starts_statement
        self.keyword = keyword
        self.end = -1
        """Index of the closing token."""

    @property
    def holds_statements(self) -> bool:
        return self.role in _BLOCKS

    @property
    def closer(self) -> str:
        return "BLOCK_RBRACE" if self.role in _BLOCKS else _CLOSER_KINDS[self.token.value]

    @property
    def state_after(self) -> State:
        return _STATES_AFTER.get(self.role, State.OPERAND)

    def never_closed(self) -> str:
        if self.token.value == "`":
            return "the template text is never closed by `"
        return f"'{self.token.value}' is never closed"


def mismatch(source: str, bracket: Bracket, found: str) -> str:
    opener = bracket.token
    line, column = line_and_column(source, opener.offset)
    wanted = OPENERS.get(opener.value, "}")
    return f"expected '{wanted}' here, found '{found}': '{opener.value}' was opened at line {line}, column {column}"


def role_of_parenthesis(found: Sequence[Token]) -> tuple[str, Token | None]:
    """What a ``(`` after these tokens is for, and the keyword whose head it opens."""
    last = found[-1] if found else None
    if last is None:
        return "group", None
    if last.type in _HEAD_WORDS:
        return last.type.lower(), last
    if last.type in _NAMED_HEADS:
        return "parameters", last
    if last.type == "NAME" and len(found) > 1 and found[-2].type in _NAMED_HEADS:
        return "parameters", found[-2]
    return "group", None
