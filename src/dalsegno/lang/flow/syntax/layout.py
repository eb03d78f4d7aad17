"""Statements and brackets of scripts: where a statement ends, what a bracket is for, and which body must follow.

The lexer inserts each ``;`` that the source omits (`SEMI` with an empty value), so that the grammar sees one after
every simple statement. It tracks the enclosing brackets and the previous token.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

from dalsegno.lang.errors import line_and_column
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.expressions.syntax.lexer import SCRIPT, TEMPLATE_TEXT, Lexer, Token, unescape
from dalsegno.lang.flow.syntax.keywords import STATEMENT_WORDS
from dalsegno.lang.runtime.limits import MAX_NESTING, TOO_DEEP

OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(OPENERS.values())
_CLOSER_KINDS = {"(": "RPAR", "[": "RSQB", "{": "RBRACE"}
_BLOCKS = frozenset({"block", "arrow", "function"})
_HEAD_WORDS = frozenset({"IF", "WHILE", "FOR", "CATCH"})
_NAMED_HEADS = frozenset({"FUNCTION", "FUNCTION_VALUE", "WORKFLOW"})


class State(Enum):
    """The kind of token that may come next."""

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
    """A bracket. ``role`` says what it is for; ``keyword`` is the word whose body follows it, as in ``if (…)``."""

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
    """Return the role of a ``(`` after these tokens, and the keyword whose head it opens."""
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


SKIPPED = r"(?>\s+|//[^\n]*|/\*(?>.*?\*/))*+"
"""Space and comments, without backtracking."""

IDENTIFIER = r"[A-Za-z_$][A-Za-z0-9_$]*+"
_READS_AS_OBJECT = re.compile(SKIPPED + rf"""(?:{IDENTIFIER}{SKIPPED}[:,]|["']|\[|\.\.\.)""", re.DOTALL)
_OPENS_BODY = re.compile(SKIPPED + r"\{", re.DOTALL)

_BEGINS_STATEMENT = frozenset(
    {"NAME", "NUMBER", "STRING", "LITERAL", "PREFIX", "LBRACE", "BLOCK_LBRACE", "FUNCTION_VALUE"}
) | {word.upper() for word in STATEMENT_WORDS - {"else", "catch", "finally"}}
_BEGINS_AFTER_NEWLINE = frozenset({"LPAR", "LSQB", "TEXT_START", "INCREMENT"})
_NO_NAMES = RootNames.of()


class Layout(Lexer):
    """The lexer's layout rules: `state` describes the previous token, `brackets` the enclosing brackets."""

    def __init__(self, source: str, start: int = 0) -> None:
        super().__init__(source, _NO_NAMES, SCRIPT, start)
        self.brackets: list[Bracket] = []
        self.closed_last: Bracket | None = None
        self.state = State.START
        self.first = 0
        self.body_of: Token | None = None

    def tokens(self) -> list[Token]:
        while self.position < self.end:
            self.scan()
        if self.brackets:
            raise self.problem(self.brackets[-1].never_closed(), self.brackets[-1].token.offset)
        if self.body_of is not None:
            raise self.problem(self.missing_body(), self.body_of.offset)
        self.end_statement()
        return self.found

    # statements

    def in_statements(self) -> bool:
        return not self.brackets or self.brackets[-1].holds_statements

    def end_statement(self) -> None:
        """End a statement. Before ``}`` and at the end of the source it needs no ``;``."""
        if self.state in (State.OPERAND, State.ENDED, State.RETURNING):
            self.found.append(Token("SEMI", "", self.position))
            self.state = State.START

    def end_line(self) -> None:
        """Insert the ``;`` before an unreadable token, if it begins a line."""
        if self.newline and self.in_statements():
            self.end_statement()

    def separate(self, kind: str) -> None:
        """Insert the ``;`` that the source omits before a token of this kind."""
        if self.state in (State.OPERAND, State.ENDED):
            begins = kind in _BEGINS_STATEMENT or (self.newline and kind in _BEGINS_AFTER_NEWLINE)
        else:
            begins = self.state is State.RETURNING and self.newline
        if begins and self.in_statements():
            self.end_statement()

    def add(self, kind: str, value: Any, offset: int, state: State = State.OPERAND) -> None:
        if self.body_of is not None and kind != "BLOCK_LBRACE":
            self.refuse_body(kind)
        if self.state is not State.OPEN:
            self.separate(kind)
            if self.state is State.START:
                self.first = len(self.found)
        self.found.append(Token(kind, value, offset, self.newline))
        self.newline = False
        self.state = state

    def refuse_body(self, kind: str) -> None:
        keyword, self.body_of = self.body_of, None
        if keyword is not None and not (keyword.type == "ELSE" and kind == "IF"):
            self.body_of = keyword
            raise self.problem(self.missing_body(), keyword.offset)

    def missing_body(self) -> str:
        word = self.body_of.value if self.body_of else ""
        named = {"function": "function name(…)", "workflow": "workflow name(…)"}
        shown = named.get(word, word if word in ("else", "try", "finally") else f"{word} (…)")
        return f"the body of '{word}' needs braces: write {shown} {{ … }}"

    def after_operand(self) -> bool:
        return self.state is State.OPERAND

    def is_key(self) -> bool:
        return bool(self.brackets) and self.brackets[-1].role == "object" and super().is_key()

    # brackets

    def open_bracket(
        self, kind: str, text: str, offset: int, role: str, keyword: Token | None = None
    ) -> None:
        self.separate(kind)
        starts = self.state is State.START
        state = State.START if role in ("block", "arrow", "function") and text == "{" else State.OPEN
        self.add(kind, text, offset, state)
        self.brackets.append(Bracket(self.found[-1], len(self.found) - 1, role, starts, keyword))
        if len(self.brackets) > MAX_NESTING:
            raise self.problem(TOO_DEEP, offset)

    def parenthesis(self, text: str, offset: int) -> None:
        if text == "[":
            self.open_bracket("LSQB", text, offset, "list")
            return
        role, keyword = role_of_parenthesis(self.found)
        if keyword is not None:
            self.newline = False
        self.open_bracket("LPAR", text, offset, role, keyword)

    def brace(self, offset: int) -> None:
        role = self.role_of_brace()
        self.body_of = None
        self.open_bracket("LBRACE" if role == "object" else "BLOCK_LBRACE", "{", offset, role)

    def role_of_brace(self) -> str:
        if self.body_of is not None:
            self.state = State.OPEN
            return "function" if self.body_of.type == "FUNCTION_VALUE" else "block"
        if self.found and self.found[-1].type == "CATCH":
            return "block"
        ahead = _READS_AS_OBJECT.match(self.source, self.position)
        if self.state is State.ARROW:
            return "object" if ahead and not ahead.group().endswith("[") else "arrow"
        self.check_definition()
        self.separate("BLOCK_LBRACE")
        return "block" if self.state is State.START and not ahead else "object"

    def check_definition(self) -> None:
        """Report ``name(…) {`` on one line at the start of a statement: a word is missing."""
        closed = self.closed_last
        if self.newline or closed is None or closed.end != len(self.found) - 1 or closed.token.type != "LPAR":
            return
        name = self.found[self.first]
        if name.type == "NAME" and closed.index == self.first + 1 and self.in_statements():
            message = f"'{name.value}(…) {{' is not a statement: write function {name.value}(…) {{ … }} to define one"
            raise self.problem(message, name.offset)

    def close(self, text: str, offset: int) -> None:
        bracket = self.brackets[-1] if self.brackets else None
        if bracket is None:
            raise self.problem(f"'{text}' closes nothing", offset)
        if bracket.token.value == "${" and text == "}":
            self.add("INTERPOLATION_END", text, offset, State.OPEN)
            self.brackets.pop()
            self.template_text()
            return
        if OPENERS.get(bracket.token.value) != text:
            raise self.problem(mismatch(self.source, bracket, text), offset)
        if bracket.holds_statements:
            self.end_statement()
        self.add(bracket.closer, text, offset, bracket.state_after)
        self.brackets.pop()
        bracket.end = len(self.found) - 1
        self.closed_last = bracket
        if bracket.keyword is not None:
            self.head_closed(bracket)

    def head_closed(self, bracket: Bracket) -> None:
        keyword = bracket.keyword
        if keyword is None:
            return
        is_call = keyword.type == "WORKFLOW" and not _OPENS_BODY.match(self.source, self.position)
        if is_call and self.found[bracket.index - 1] is keyword:
            keyword.type = "NAME"
            self.state = State.OPERAND
        else:
            self.body_of = keyword

    def on_backtick(self, text: str, offset: int) -> None:
        self.open_bracket("TEXT_START", text, offset, "text")
        self.template_text()

    def template_text(self) -> None:
        match = TEMPLATE_TEXT.match(self.source, self.position, self.end)
        text = match.group() if match else ""
        if text:
            self.add("TEXT", unescape(text, self.source, self.position), self.position, State.OPEN)
        self.position += len(text)
        if self.source.startswith("${", self.position):
            self.position += 2
            self.open_bracket("INTERPOLATION", "${", self.position - 2, "interpolation")
        elif self.position < self.end and self.source[self.position] == "`":
            self.add("TEXT_END", "`", self.position)
            self.brackets.pop()
            self.position += 1
        else:
            raise self.problem(self.brackets[-1].never_closed(), self.brackets[-1].token.offset)
