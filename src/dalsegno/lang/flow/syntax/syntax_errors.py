"""Findings, each with its position, and messages for syntax errors: what was found, what was expected, and what to
write.

The rules are tried in order; each examines the `ProblemPlace` where the parser stopped and returns a message or None.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, cast

from lark import UnexpectedToken

from dalsegno.lang.errors import FlowSyntaxError, caret_excerpt, line_and_column
from dalsegno.lang.expressions.syntax.lexer import Token
from dalsegno.lang.flow.syntax.keywords import KEYWORDS
from dalsegno.lang.flow.syntax.lexer import ScriptLexer

_SHOWN = 30
_RUNAWAY = "spans several lines: is its closing quote missing?"
_VALUED = frozenset({"NUMBER", "STRING", "LITERAL", "INFIX"})
_OPENING = frozenset(
    {
        "LPAR",
        "ARROW_LPAR",
        "LSQB",
        "PATTERN_LSQB",
        "LBRACE",
        "PATTERN_LBRACE",
        "BLOCK_LBRACE",
        "INTERPOLATION",
    }
)
_CLOSING = frozenset({"RPAR", "RSQB", "RBRACE", "BLOCK_RBRACE", "INTERPOLATION_END"})
_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE", "INTERPOLATION": "INTERPOLATION_END"}
_EXPECTED = {
    "RPAR": "')'", "RSQB": "']'", "RBRACE": "'}'", "COLON": "':'", "NAME": "a name", "ARROW": "'=>'", "EQUAL": "'='",
    "INTERPOLATION_END": "'}'", "BLOCK_LBRACE": "'{'", "LPAR": "'('", "SEMI": "';'", "OF": "'of'", "COMMA": "','",
}  # fmt: skip


class ProblemPlace:
    """The position where the parser stopped.

    It holds the token that the parser could not use, the one before, and the bracket around both.
    """

    def __init__(self, problem: UnexpectedToken, tokens: Sequence[Token], source: str) -> None:
        token = cast(Any, problem.token)
        index = len(tokens) if token.type == "$END" else tokens.index(token)
        self.expected = set(problem.expected)
        self.kind: str = token.type
        self.before = tokens[index - 1] if index else None
        if self.kind == "SEMI" and not token.value:  # inserted by the lexer: the actual token is the next one
            index += 1
        self.token = tokens[index] if index < len(tokens) else None
        self.bracket, self.bracket_before = _bracket(tokens, min(index, len(tokens)))
        self.source = source
        self.offset = self.token.offset if self.token else len(source.rstrip())

    @property
    def found(self) -> str:
        return shown(self.token, self.source) if self.token else "end"

    @property
    def unexpected(self) -> str:
        return f"unexpected {self.found}" if self.token else "the program ends too early"

    @property
    def before_kind(self) -> str:
        return self.before.type if self.before else ""

    @property
    def wants_value(self) -> bool:
        return "NUMBER" in self.expected


def explain(problem: UnexpectedToken, tokens: Sequence[Token], source: str) -> FlowSyntaxError:
    spot = ProblemPlace(problem, tokens, source)
    message = next(filter(None, (rule(spot) for rule in _RULES)))
    hint = runaway_string([spot.before] if spot.before else [], source)
    return FlowSyntaxError.at(message + hint, source, spot.offset)


def runaway_string(tokens: Sequence[Token], source: str) -> str:
    """Return a hint if one of these tokens is a string over several lines: its closing quote may be missing."""
    for token in tokens:
        if token.type == "STRING" and "\n" in text_of(token, source):
            line, _ = line_and_column(source, token.offset)
            return f"; the string that began at line {line} {_RUNAWAY}"
    return ""


def spans_lines(message: str) -> bool:
    """Return whether the message has that hint."""
    return _RUNAWAY in message


def text_of(token: Token, source: str) -> str:
    """Return the token's text in the source."""
    match = ScriptLexer.pattern.match(source, token.offset) if token.type in _VALUED else None
    return match.group() if match else str(token.value)


def shown(token: Token, source: str) -> str:
    text = " ".join(text_of(token, source).split())
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}…'"


def _bracket(tokens: Sequence[Token], index: int) -> tuple[Token | None, Token | None]:
    """Return the innermost bracket that is open before ``index``, and the token before it."""
    depth = 0
    for position in range(index - 1, -1, -1):
        kind = tokens[position].type
        if kind in _CLOSING:
            depth += 1
        elif kind in _OPENING:
            if depth == 0:
                return tokens[position], tokens[position - 1] if position else None
            depth -= 1
    return None, None


# the rules


def _assignment(spot: ProblemPlace) -> str | None:
    if spot.kind in ("INCREMENT", "COMPOUND"):
        return f"{spot.found} is a statement of its own and has no value: write it on a line before"
    if spot.kind != "EQUAL":
        return None
    if spot.bracket_before and spot.bracket_before.type in ("IF", "WHILE"):
        return "a condition cannot assign: compare with =="
    return "an assignment is a statement and has no value: compare with ==, or assign on a line before"


def _stray_word(spot: ProblemPlace) -> str | None:
    if spot.kind == "ELSE":
        return "'else' follows no 'if': it must come right after the '}' of one"
    if spot.kind in ("CATCH", "FINALLY"):
        return f"{spot.found} follows no 'try': it must stand right after the '}}' of one"
    if "CATCH" in spot.expected and spot.before_kind == "BLOCK_RBRACE":
        return "'try' needs catch (error) { … } or finally { … } after its block"
    return None


def _head(spot: ProblemPlace) -> str | None:
    if spot.before_kind in ("IF", "WHILE"):
        word = text_of(spot.before, spot.source) if spot.before else ""
        return f"the condition of '{word}' needs parentheses: write {word} (…) {{ … }}"
    if spot.before_kind == "FOR":
        if spot.found == "'await'":
            return "there is no 'for await': write for (let item of await …) { … }"
        return "'for' needs parentheses: write for (let item of list) { … }"
    if spot.before_kind == "CATCH":
        return "write catch (error) { … } or catch { … }"
    in_head = spot.bracket_before is not None and spot.bracket_before.type == "FOR"
    if in_head and spot.kind in ("COLON", "RPAR", "COMMA") and spot.before_kind not in ("OF", "IN"):
        return (
            f"{spot.unexpected}: write for (let item of list) {{ … }} or for (let i = 0; i < 9; i++) {{ … }}"
        )
    return None


def _name(spot: ProblemPlace) -> str | None:
    """Handle a position where only a name is allowed."""
    if "NAME" not in spot.expected or spot.wants_value or "SEMI" in spot.expected:
        return None
    text = text_of(spot.token, spot.source) if spot.token else ""
    if spot.kind == "ELLIPSIS":
        return "'...' cannot be used in an object pattern: name the keys you need"
    if spot.kind == "LPAR" and spot.before_kind == "OPTIONAL":
        return "there is no '?.(': write value?.method(…), or check the function first"
    after = f" after {shown(spot.before, spot.source)}" if spot.before else ""
    if text in KEYWORDS:
        return f"'{text}' is a keyword and cannot be a name{after}"
    return f"{spot.unexpected}: a name is missing{after}"


def _object_entry(spot: ProblemPlace) -> str | None:
    if spot.bracket is None or spot.bracket.type != "LBRACE":
        return None
    if spot.kind == "LPAR" and spot.before_kind == "NAME":
        name = text_of(spot.before, spot.source) if spot.before else "name"
        return f"an object's function is written {name}: (…) => {{ … }}"
    if spot.kind == "EQUAL":
        return "an object's values follow ':', not '='"
    return None


def _punctuation(spot: ProblemPlace) -> str | None:
    match spot.kind:
        case "ARROW":
            return "'=>' needs parameters before it: write x => … or (x, y) => …"
        case "COLON" if spot.bracket and spot.bracket.type == "BLOCK_LBRACE":
            return "unexpected ':' in a block; an object that a function returns needs parentheses: => ({key: value})"
        case "COMMA" if spot.bracket is None or spot.bracket.type == "BLOCK_LBRACE":
            return "unexpected ',': write one expression per statement"
        case "COMMA" if spot.bracket and spot.bracket.type == "LPAR" and not spot.wants_value:
            return "unexpected ',': parentheses hold one value; a list is written [a, b]"
        case "SEMI" if (
            spot.token and spot.token.value and spot.bracket and spot.bracket.type != "BLOCK_LBRACE"
        ):
            line, _ = line_and_column(spot.source, spot.bracket.offset)
            return f"unexpected ';' inside the '{spot.bracket.value}' of line {line}"
        case "INFIX" | "QUESTION" | "DOT" | "OPTIONAL" if spot.before_kind == "BLOCK_RBRACE":
            return f"{spot.unexpected} after '}}': put the function before it in parentheses"
        case "LPAR" if spot.before_kind == "BLOCK_RBRACE":
            return "unexpected '(' after '}': to call this function, put it in parentheses"
    return None


def _value(spot: ProblemPlace) -> str | None:
    if not spot.wants_value:
        return None
    text = text_of(spot.token, spot.source) if spot.token else ""
    if text in KEYWORDS:
        return f"unexpected '{text}': it begins a statement, but a value is missing here"
    after = f" after {shown(spot.before, spot.source)}" if spot.before else ""
    return f"{spot.unexpected}: a value is missing{after}"


def _otherwise(spot: ProblemPlace) -> str:
    if "INFIX" in spot.expected:
        around = "an operator or ','" if spot.bracket else "an operator"
        return f"{spot.unexpected}: {around} is missing before it"
    return f"{spot.unexpected}: expected {_expected_text(spot)}"


def _expected_text(spot: ProblemPlace) -> str:
    """Return the expected tokens. The parser expects any closing bracket; only one can be closed here."""
    opener = spot.bracket.type.removeprefix("PATTERN_").removeprefix("ARROW_") if spot.bracket else ""
    impossible = {closer for left, closer in _CLOSERS.items() if left != opener}
    if opener:
        impossible |= {"SEMI"}
    if spot.bracket_before is None or spot.bracket_before.type != "FOR":
        impossible |= {"OF"}
    expected = [_EXPECTED[name] for name in spot.expected - impossible if name in _EXPECTED]
    return " or ".join(sorted(expected)) or "something else"


_RULES: tuple[Callable[[ProblemPlace], str | None], ...] = (
    _stray_word,
    _head,
    _object_entry,
    _assignment,
    _name,
    _punctuation,
    _value,
    _otherwise,
)


# -- findings ------------------------------------------------------------------------------------------------

Severity = Literal["error", "warning"]

MAX_FINDINGS = 1_000
"""Maximum number of findings; the first ones are kept."""

ERRORS = frozenset(
    {
        "syntax",
        "undefined-variable",
        "const-assignment",
        "redeclaration",
        "repeated-label",
        "stray-break",
        "argument-count",
        "unknown-option",
        "uncalled-main",
    }
)
WARNINGS = frozenset(
    {
        "unreachable-code",
        "unused-variable",
        "implicit-global",
        "hides-builtin",
        "sequential-async",
        "unknown-task",
        "forgotten-await",
        "leading-zero",
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a script. Line and column count from 1; ``excerpt`` is the line with a caret under the column."""

    rule: str
    severity: Severity
    message: str
    line: int
    column: int
    excerpt: str = field(default="", compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "line": self.line,
            "column": self.column,
            "excerpt": self.excerpt,
        }


class Report:
    """Collects findings by offset, and returns them in source order."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = source.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.noted: list[tuple[int, str, str]] = []
        self.suggestions_left = 20

    def note(self, rule: str, message: str, offset: int) -> None:
        self.noted.append((offset, rule, message))

    def suggest(self, name: str, candidates: Iterable[str]) -> str:
        """Return ``; did you mean …?`` if a name is similar.

        The number of searches is limited, because they are costly.
        """
        if self.suggestions_left == 0:
            return ""
        self.suggestions_left -= 1
        close = difflib.get_close_matches(name, list(islice(candidates, 2_000)), 1)
        return f"; did you mean '{close[0]}'?" if close else ""

    def line_of(self, offset: int) -> int:
        return bisect_right(self.starts, offset, hi=len(self.lines))

    def findings(self) -> list[Finding]:
        return [self._finding(*noted) for noted in sorted(set(self.noted))[:MAX_FINDINGS]]

    def _finding(self, offset: int, rule: str, message: str) -> Finding:
        line = self.line_of(offset)
        column = offset - self.starts[line - 1] + 1
        excerpt = caret_excerpt(self.lines[line - 1], 1, column)
        return Finding(rule, "error" if rule in ERRORS else "warning", message, line, column, excerpt)
