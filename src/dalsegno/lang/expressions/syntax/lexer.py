"""The lexer of expressions. Context-dependent decisions are made here, so that the grammar stays LALR(1):

- whether ``-``, ``in``, ``not`` … precede an operand (``PREFIX``) or connect two (``INFIX``);
- whether ``(`` opens the parameters of an arrow function;
- where a root such as ``$http-1`` ends, which depends on the graph's node ids;
- keywords after a dot, which are plain names.

Escape sequences of strings and template literals.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from dalsegno.lang.errors import ExpressionError
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.runtime.limits import MAX_NESTING, MAX_SOURCE, TOO_DEEP
from dalsegno.lang.values.kinds import number_literal

_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r": ""}
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class _BadEscape(Exception):
    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def _expand(match: re.Match[str]) -> str:
    body = match.group(1)
    if len(body) == 1:
        if body in "ux":
            message = f"'\\{body}' needs hexadecimal digits (\\u0041, \\u{{1F600}}, \\x41)"
            raise _BadEscape(message, match.start())
        return _SIMPLE.get(body, body)
    number = int(body[1:].strip("{}"), 16)
    if number > 0x10FFFF:
        message = f"'\\{body}' is beyond the last Unicode character (\\u{{10FFFF}})"
        raise _BadEscape(message, match.start())
    return chr(number)


def unescape(text: str, source: str, offset: int) -> str:
    """Return ``text``, which begins at ``offset`` of the source, with its escapes expanded.

    Pairs of ``\\u`` surrogates become one character.
    """
    if "\\" in text:
        try:
            text = _ESCAPE.sub(_expand, text)
        except _BadEscape as problem:
            raise ExpressionError.at(str(problem), source, offset + problem.position) from None
    if _SURROGATE.search(text):
        try:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "half a surrogate pair is not a character: write both halves, or \\u{…}"
            raise ExpressionError.at(message, source, offset) from None
    return text


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, so that every Unicode encoding can represent it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- tokens --------------------------------------------------------------------------------------------------


class Token:
    """A token, with the attributes that lark (``type``) and the tree builder (``value``, ``offset``) need."""

    __slots__ = ("newline_before", "offset", "type", "value")

    # Lark copies these to its end marker. Tokens keep offsets only; lines are counted when an error is shown.
    start_pos: ClassVar[None] = None
    end_pos: ClassVar[None] = None
    line: ClassVar[None] = None
    column: ClassVar[None] = None
    end_line: ClassVar[None] = None
    end_column: ClassVar[None] = None

    def __init__(self, kind: str, value: Any, offset: int, newline_before: bool = False) -> None:
        self.type = kind
        self.value = value
        self.offset = offset
        self.newline_before = newline_before


@dataclass(frozen=True, slots=True)
class Dialect:
    """The words that are operators. Graph expressions have more of them than scripts."""

    infix_words: dict[str, str]
    prefix_words: dict[str, str]
    has_roots: bool


SCRIPT = Dialect({"in": "in"}, {"typeof": "typeof"}, has_roots=False)
GRAPH = Dialect(
    {
        "in": "in",
        "and": "&&",
        "or": "||",
        "contains": "contains",
        "matches": "matches",
        "startsWith": "startsWith",
        "endsWith": "endsWith",
    },
    {"typeof": "typeof", "not": "not"},
    has_roots=True,
)

_LITERAL_WORDS = {"true": True, "false": False, "null": None, "undefined": None}
_PUNCTUATION = {
    "?": "QUESTION", ":": "COLON", ".": "DOT", "?.": "OPTIONAL", ",": "COMMA", "...": "ELLIPSIS",
    "=>": "ARROW", "=": "EQUAL", "(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", "{": "LBRACE", "}": "RBRACE",
}  # fmt: skip
_OPENERS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = {closer: opener for opener, closer in _OPENERS.items()}
_ENDS_OPERAND = frozenset(
    {"NUMBER", "STRING", "NAME", "ROOT", "LITERAL", "RPAR", "RSQB", "RBRACE", "TEXT_END"}
)

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)
  | (?P<number>(?:0[xX]|0[bB]|\d|\.\d)(?:[eE][+-]\d|[\w]|\.(?=\d))*)
  | (?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
  | (?P<name>[A-Za-z_][\w$]*)
  | (?P<dollar>\$[\w$]*)
  | (?P<operator>===|!==|\*\*|\?\?|&&|\|\||==|!=|<=|>=|[-+*/%<>!](?!=)|[<>])
  | (?P<punctuation>\?\.(?!\d)|\.\.\.|=>|[?:.,=()\[\]{}])
  | (?P<backtick>`)
  | (?P<letter>[^\W\d_])
""",
    re.VERBOSE | re.DOTALL,
)
TEMPLATE_TEXT = re.compile(r"[^`\\$]*(?:(?:\\.|\$(?!\{))[^`\\$]*)*", re.DOTALL)
_NOT_WORD = re.compile(r"\s+(in|contains|matches|startsWith|endsWith)\b")
_COLON_FOLLOWS = re.compile(r"\s*:")
_SAME_OPERATOR = {"===": "==", "!==": "!="}


class Lexer:
    """One pass over ``source[start:end]``; `tokens` returns them all."""

    pattern: ClassVar[re.Pattern[str]] = _TOKEN

    def __init__(
        self, source: str, names: RootNames, dialect: Dialect, start: int = 0, end: int | None = None
    ):
        self.source = source
        self.names = names
        self.dialect = dialect
        self.position = start
        self.end = len(source) if end is None else end
        self.found: list[Token] = []
        self.open: list[Token] = []
        self.last_closed: Token | None = None
        self.newline = False

    def tokens(self) -> list[Token]:
        if self.end - self.position > MAX_SOURCE:
            raise self.problem(f"the source is longer than {MAX_SOURCE:,} characters", self.position)
        while self.position < self.end:
            self.scan()
        if self.open:
            opener = self.open[-1]
            raise self.problem(f"'{opener.value}' is never closed", opener.offset)
        return self.found

    def end_of_interpolation(self) -> int:
        """Return the offset of the ``}}`` that closes an expression starting here.

        Strings and objects may contain ``}}``.
        """
        while self.position < self.end:
            if not self.open and self.source.startswith("}}", self.position):
                return self.position
            self.scan()
        raise self.problem("'{{' is never closed by '}}'", self.end)

    def problem(self, message: str, offset: int) -> ExpressionError:
        return ExpressionError.at(message, self.source, offset)

    def scan(self) -> None:
        """Read one token, or skip one run of space."""
        match = self.pattern.match(self.source, self.position, self.end)
        if match is None:
            self.refuse()
            return
        kind = str(match.lastgroup)
        offset = self.position
        self.position = match.end()
        getattr(self, f"on_{kind}")(match.group(), offset)

    def refuse(self) -> None:
        character = self.source[self.position]
        if character in "\"'":
            raise self.problem(f"the string is never closed by {character}", self.position)
        if character in "=+-*/%&|":
            raise self.problem("an expression cannot assign; compare with ==", self.position)
        raise self.problem(f"unexpected character {character!r}", self.position)

    def add(self, kind: str, value: Any, offset: int) -> None:
        self.found.append(Token(kind, value, offset, self.newline))
        self.newline = False

    def after_operand(self) -> bool:
        return bool(self.found) and self.found[-1].type in _ENDS_OPERAND

    def after_dot(self) -> bool:
        return bool(self.found) and self.found[-1].type in ("DOT", "OPTIONAL")

    def is_key(self) -> bool:
        """Return whether the word just read is a key of an object literal."""
        before = self.found[-1].type if self.found else ""
        return before in ("LBRACE", "COMMA") and bool(_COLON_FOLLOWS.match(self.source, self.position))

    # one method per group of the pattern

    def on_space(self, text: str, offset: int) -> None:
        self.newline = self.newline or "\n" in text

    on_comment = on_space

    def on_number(self, text: str, offset: int) -> None:
        if self.after_operand() and text.startswith("."):
            self.position = offset + 1
            self.add("DOT", ".", offset)
            return
        try:
            self.add("NUMBER", number_literal(text), offset)
        except ValueError as problem:
            raise self.problem(str(problem), offset) from None

    def on_string(self, text: str, offset: int) -> None:
        self.add("STRING", unescape(text[1:-1], self.source, offset + 1), offset)

    def on_name(self, text: str, offset: int) -> None:
        if self.after_dot() or self.is_key():
            self.add("NAME", text, offset)
        elif self.after_operand():
            self.infix_word(text, offset)
        elif text in _LITERAL_WORDS:
            self.add("LITERAL", _LITERAL_WORDS[text], offset)
        elif text in self.dialect.prefix_words:
            self.add("PREFIX", self.dialect.prefix_words[text], offset)
        elif self.dialect.has_roots and self.source.startswith("-", self.position):
            self.hyphenated(text, offset)
        else:
            self.add("NAME", text, offset)

    def infix_word(self, text: str, offset: int) -> None:
        if text in self.dialect.infix_words:
            self.add("INFIX", self.dialect.infix_words[text], offset)
            return
        negated = _NOT_WORD.match(self.source, self.position) if text == "not" else None
        if negated and self.dialect.has_roots:
            self.position = negated.end()
            self.add("INFIX", f"not {negated.group(1)}", offset)
            return
        self.add("NAME", text, offset)

    def hyphenated(self, text: str, offset: int) -> None:
        """Read a bare ``http-1.body``: the node ``http-1`` if there is one, else ``http`` minus one."""
        found = self.names.find(self.source, offset)
        if found and found[1] > offset + len(text) and found[1] <= self.end:
            self.position = found[1]
            self.add("ROOT", found[0], offset)
        else:
            self.add("NAME", text, offset)

    def on_letter(self, text: str, offset: int) -> None:
        """Read a word in another alphabet: only node ids and names may be written so."""
        found = self.names.find(self.source, offset) if self.dialect.has_roots else None
        if found is None or found[1] > self.end:
            raise self.problem(f"unexpected character {text!r}", offset)
        self.position = found[1]
        self.add("ROOT", found[0], offset)

    def on_dollar(self, text: str, offset: int) -> None:
        found = None
        if self.dialect.has_roots and not self.after_dot():
            found = self.names.find(self.source, offset + 1)
        if found and found[1] <= self.end:
            self.position = found[1]
            self.add("ROOT", found[0], offset)
        else:
            self.add("NAME", text, offset)

    def on_operator(self, text: str, offset: int) -> None:
        if text == "/" and self.source.startswith("*", self.position):
            raise self.problem("the comment is never closed by */", offset)
        if self.after_operand():
            if text == "!":
                raise self.problem("'!' cannot be used between two values; did you mean '!='?", offset)
            self.add("INFIX", _SAME_OPERATOR.get(text, text), offset)
        elif text in "!-+":
            self.add("PREFIX", text, offset)
        else:
            raise self.problem(f"'{text}' needs a value before it", offset)

    def on_punctuation(self, text: str, offset: int) -> None:
        if self.dialect.has_roots and self.braces(text, offset):
            return
        self.add(_PUNCTUATION[text], text, offset)
        if text in _OPENERS:
            self.opened()
        elif text in _CLOSERS:
            self.closed(_CLOSERS[text])
        elif text == "=>" and self.last_closed is not None and self.found[-2].type == "RPAR":
            self.last_closed.type = "ARROW_LPAR"

    def braces(self, text: str, offset: int) -> bool:
        """Read braces: ``{{ x }}`` inside an expression is ``(x)``; an object cannot start with two braces."""
        if text == "{" and self.source.startswith("{", self.position):
            self.add("LPAR", "{{", offset)
            self.opened()
        elif (
            text == "}"
            and self.open
            and self.open[-1].value == "{{"
            and self.source.startswith("}", self.position)
        ):
            self.add("RPAR", "}}", offset)
            self.last_closed = self.open.pop()
        else:
            return False
        self.position += 1
        return True

    def opened(self) -> None:
        self.open.append(self.found[-1])
        if len(self.open) > MAX_NESTING:
            raise self.problem(TOO_DEEP, self.found[-1].offset)

    def closed(self, opener: str) -> None:
        closer = self.found[-1]
        if not self.open:
            raise self.problem(f"'{closer.value}' closes nothing", closer.offset)
        self.last_closed = self.open.pop()
        if self.last_closed.value == "${" and closer.value == "}":
            closer.type = "INTERPOLATION_END"
            self.template_text()
        elif self.last_closed.value != opener:
            wanted = _OPENERS.get(self.last_closed.value, "}}" if self.last_closed.value == "{{" else "}")
            raise self.problem(f"expected '{wanted}' here, found '{closer.value}'", closer.offset)

    def on_backtick(self, text: str, offset: int) -> None:
        self.add("TEXT_START", text, offset)
        self.opened()
        self.template_text()

    def template_text(self) -> None:
        """Read the literal part of a template up to the next ``${`` or the closing backtick."""
        match = TEMPLATE_TEXT.match(self.source, self.position, self.end)
        text = match.group() if match else ""
        if text:
            self.add("TEXT", unescape(text, self.source, self.position), self.position)
        self.position += len(text)
        if self.source.startswith("${", self.position):
            self.add("INTERPOLATION", "${", self.position)
            self.opened()
            self.position += 2
        elif self.position < self.end and self.source[self.position] == "`":
            self.add("TEXT_END", "`", self.position)
            self.open.pop()
            self.position += 1
        else:
            raise self.problem("the template text is never closed by `", self.open[-1].offset)
