"""The lexer of scripts. Context-dependent decisions are made here, so that the grammar stays LALR(1):

- where a statement ends, and whether ``{`` opens a block or an object (layout.py);
- whether ``function`` begins a statement or a value;
- whether ``[a, b]`` and ``{a, b}`` at the start of a statement are patterns to assign to;
- words that are keywords in one place only (``async``, ``of``, ``workflow``).
"""

from __future__ import annotations

import re

from dalsegno.lang.flow.syntax.keywords import (
    FOREIGN_CHARACTERS,
    FOREIGN_CLASSES,
    FOREIGN_OPERATORS,
    FOREIGN_WORDS,
    LITERAL_WORDS,
    NO_SHIFTS,
    STATEMENT_WORDS,
)
from dalsegno.lang.flow.syntax.layout import CLOSERS, IDENTIFIER, OPENERS, SKIPPED, Layout, State

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<name>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<punctuation>\?\.(?![0-9])|\?(?!\?)|\.\.\.|\.(?![0-9])|=>|=(?!=)|[,;:()\[\]{}])
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<number>0[xXbBoO]\w*|(?:[0-9]|\.[0-9])(?:[eE][+-][0-9]|\w|\.(?=[0-9]))*)
  | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
  | (?P<compound>(?:\*\*|[-+*/%]|\?\?|\|\||&&)=(?!=))
  | (?P<increment>\+\+|--)
  | (?P<operator>===|!==|\*\*|\?\?|&&|\|\||==|!=|<=|>=|[-+*/%<>!])
  | (?P<backtick>`)
""",
    re.VERBOSE | re.DOTALL,
)
_DEFINES_WORKFLOW = re.compile(SKIPPED + rf"(?:{IDENTIFIER}{SKIPPED})?+\(", re.DOTALL)
_AFTER_ASYNC = re.compile(rf"\s+(?:(?:function|workflow)\b|{IDENTIFIER}\s*=>)")
_NEXT_NAME = re.compile(rf"\s+({IDENTIFIER})")
_FUNCTION_NAME = re.compile(SKIPPED + r"[A-Za-z_$]", re.DOTALL)
_PUNCTUATION = {
    "?": "QUESTION", ":": "COLON", ".": "DOT", "?.": "OPTIONAL", ",": "COMMA", "...": "ELLIPSIS", ";": "SEMI",
    "=>": "ARROW", "=": "EQUAL", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE",
}  # fmt: skip


class ScriptLexer(Layout):
    """One pass over a program."""

    pattern = _TOKEN

    # one method per group of the pattern

    def on_name(self, text: str, offset: int) -> None:
        if self.after_dot() or self.is_key():
            self.add("NAME", text, offset)
        elif text in STATEMENT_WORDS:
            self.statement_word(text, offset)
        elif text in LITERAL_WORDS:
            self.add("LITERAL", {"true": True, "false": False}.get(text), offset)
        elif text in ("in", "of") and self.heads_loop():
            self.loop_word(text, offset)
        elif text == "in":
            self.add("INFIX", text, offset, State.OPEN)
        elif text in ("await", "typeof"):
            self.add("PREFIX", text, offset, State.OPEN)
        elif text in FOREIGN_WORDS:
            raise self.problem(self.instead_of(text), offset)
        else:
            self.plain_name(text, offset)

    def instead_of(self, text: str) -> str:
        """Return the advice for a foreign word; ``new Date()`` gets other advice than ``new Order()``."""
        made = _NEXT_NAME.match(self.source, self.position) if text == "new" else None
        return FOREIGN_CLASSES.get(made.group(1) if made else "", FOREIGN_WORDS[text])

    def plain_name(self, text: str, offset: int) -> None:
        if self.found and not self.newline:
            self.check_neighbour(text, offset)
        if text == "async" and _AFTER_ASYNC.match(self.source, self.position):
            return  # accepted, without effect
        if text == "workflow" and not self.brackets and _DEFINES_WORKFLOW.match(self.source, self.position):
            self.separate("NAME")
            if self.state is State.START:
                self.add("WORKFLOW", text, offset, State.OPEN)
                return
        self.add("NAME", text, offset)

    def check_neighbour(self, text: str, offset: int) -> None:
        """Check a name after another token on its line: it begins a statement, unless that can only be a mistake."""
        before = self.found[-1]
        if before.type in ("BREAK", "CONTINUE"):
            raise self.problem(f"there are no labels: '{before.value}' takes no name", offset)
        if self.state is State.OPERAND and text in FOREIGN_OPERATORS:
            raise self.problem(FOREIGN_OPERATORS[text], offset)
        if self.state is State.OPERAND and before.type == "NAME" and before.value == "not":
            raise self.problem(FOREIGN_OPERATORS["not"], before.offset)

    def statement_word(self, text: str, offset: int) -> None:
        if text == "function":
            self.function_word(offset)
        elif text in ("break", "continue"):
            self.add(text.upper(), text, offset, State.ENDED)
        elif text == "return":
            self.add("RETURN", text, offset, State.RETURNING)
        else:
            self.add(text.upper(), text, offset, State.OPEN)
            if text in ("else", "try", "finally"):
                self.body_of = self.found[-1]

    def function_word(self, offset: int) -> None:
        if self.source.startswith("*", self.position):
            raise self.problem("there are no generators: write 'function' without '*'", offset)
        self.separate("FUNCTION_VALUE")
        if self.state is not State.START:
            self.add("FUNCTION_VALUE", "function", offset, State.OPEN)
        elif _FUNCTION_NAME.match(self.source, self.position):
            self.add("FUNCTION", "function", offset, State.OPEN)
        else:
            raise self.problem("a function needs a name here: write function name(…) { … }", offset)

    def heads_loop(self) -> bool:
        """Return whether everything since ``for (`` is one name or pattern, with or without ``let``."""
        if not self.brackets or self.brackets[-1].role != "for" or self.state is not State.OPERAND:
            return False
        first = self.brackets[-1].index + 1
        first += self.found[first].type in ("LET", "CONST")
        if first == len(self.found) - 1:
            return self.found[first].type == "NAME"
        closed = self.closed_last
        return closed is not None and closed.index == first and closed.end == len(self.found) - 1

    def loop_word(self, text: str, offset: int) -> None:
        closed = self.closed_last
        if closed is not None and closed.index == self.brackets[-1].index + 1 and closed.token.value in "[{":
            closed.token.type = f"PATTERN_{closed.token.type}"
        self.add(text.upper(), text, offset, State.OPEN)

    def on_operator(self, text: str, offset: int) -> None:
        if text in "<>" and self.source.startswith(text, self.position):
            raise self.problem(NO_SHIFTS[text], offset)
        if text == "/" and self.source.startswith("*", self.position):
            raise self.problem("the comment is never closed by */", offset)
        if self.state is State.OPERAND:
            if text != "!":
                self.add("INFIX", {"===": "==", "!==": "!="}.get(text, text), offset, State.OPEN)
                return
            if not self.newline:
                raise self.problem("'!' cannot be used between two values; did you mean '!='?", offset)
        if text == "/":
            message = "'/' needs a value before it; a pattern is written as a string: value.matches(\"^a+$\")"
            raise self.problem(message, offset)
        if text != "!":
            self.check_increment()
        if text not in "!-+" or (self.state is State.ENDED and text != "!" and not self.newline):
            raise self.problem(f"'{text}' needs a value before it", offset)
        self.add("PREFIX", text, offset, State.OPEN)

    def check_increment(self) -> None:
        """Refuse ``i++ + 2``: the operand of ``+`` has no value."""
        last = self.found[-1] if self.found else None
        if self.state is State.ENDED and not self.newline and last is not None and last.type == "INCREMENT":
            raise self.problem(_no_value(last.value), last.offset)

    def on_compound(self, text: str, offset: int) -> None:
        if text == "**=":
            raise self.problem("there is no '**=': write a = a ** b", offset)
        if self.state is not State.OPERAND:
            raise self.problem(f"'{text}' needs something to assign to before it", offset)
        self.add("COMPOUND", text, offset, State.OPEN)

    def on_increment(self, text: str, offset: int) -> None:
        self.separate("INCREMENT")
        if self.state is State.OPERAND:
            self.add("INCREMENT", text, offset, State.ENDED)
        elif self.state is State.START or self.found[-1].type in ("ARROW", "SEMI", "COMMA", "LPAR"):
            self.add("INCREMENT", text, offset, State.OPEN)
        else:
            raise self.problem(_no_value(text), offset)

    def on_punctuation(self, text: str, offset: int) -> None:
        if text in CLOSERS:
            self.close(text, offset)
        elif text == "{":
            self.brace(offset)
        elif text in OPENERS:
            self.parenthesis(text, offset)
        elif text == ";":
            in_statements = self.in_statements()
            self.add("SEMI", text, offset, State.START if in_statements else State.OPEN)
        elif text == "=>":
            self.arrow(offset)
        else:
            self.check_sign(text, offset)
            self.add(_PUNCTUATION[text], text, offset, State.OPEN)

    def check_sign(self, text: str, offset: int) -> None:
        if text == "=":
            self.find_pattern()
        elif text == ":" and self.in_statements() and self.found and len(self.found) - 1 == self.first:
            name = self.found[-1]
            if name.type == "NAME":
                raise self.problem(f"there are no labels: '{name.value}:' names nothing", name.offset)

    def find_pattern(self) -> None:
        """Find ``[a, b] =`` and ``{a, b} =`` at the start of a statement, also in parentheses.

        They assign to a pattern.
        """
        closed = self.closed_last
        if closed is None or closed.end != len(self.found) - 1 or closed.token.type not in ("LSQB", "LBRACE"):
            return
        around = self.brackets[-1] if self.brackets else None
        if closed.starts_statement or (
            around and around.starts_statement and around.index == closed.index - 1
        ):
            closed.token.type = f"PATTERN_{closed.token.type}"

    def arrow(self, offset: int) -> None:
        closed = self.closed_last
        self.add("ARROW", "=>", offset, State.ARROW)
        if closed is None or closed.end != len(self.found) - 2 or closed.token.type != "LPAR":
            return
        closed.token.type = "ARROW_LPAR"
        before = self.found[closed.index - 1] if closed.index else None
        if before and before.type == "NAME" and before.value == "async" and not closed.token.newline_before:
            before.type = "ASYNC"

    def refuse(self) -> None:
        character = self.source[self.position]
        if character in "\"'":
            raise self.problem(f"the string is never closed by {character}", self.position)
        if character in FOREIGN_CHARACTERS:
            raise self.problem(FOREIGN_CHARACTERS[character], self.position)
        if character.isalpha():
            message = f"unexpected character {character!r}: names are written with a–z, A–Z, 0–9, _ and $"
            raise self.problem(message, self.position)
        message = f"unexpected character {character!r}: it means nothing in a script; as text it needs quotes"
        raise self.problem(message, self.position)


def _no_value(increment: str) -> str:
    return f"'{increment}' is a statement of its own and has no value: write it on a line before"
