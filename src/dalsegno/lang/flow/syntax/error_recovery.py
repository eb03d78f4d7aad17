"""Recovery from syntax errors: the broken part is removed, and the rest is parsed again to find further errors.

The extent of a broken statement is found without a parser, by its brackets and lines. The smallest part that can be
removed is the head of a statement (``if (…)``), else the statement around the error. A removed part is overwritten with
spaces, so that all offsets stay the same. Where a bracket or a quote is missing, the source after it cannot be judged,
and only the source before it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dalsegno.lang.errors import ExpressionError, FlowSyntaxError
from dalsegno.lang.expressions.syntax.lexer import Token
from dalsegno.lang.flow.syntax.front_matter import split_front_matter
from dalsegno.lang.flow.syntax.layout import CLOSERS, IDENTIFIER, SKIPPED
from dalsegno.lang.flow.syntax.lexer import ScriptLexer
from dalsegno.lang.flow.syntax.parser import EMPTY, Parsed, parse_program
from dalsegno.lang.flow.syntax.syntax_errors import spans_lines
from dalsegno.lang.runtime.limits import TOO_DEEP

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
        "TEXT_START",
    }
)
_CLOSING = frozenset({"RPAR", "RSQB", "RBRACE", "BLOCK_RBRACE", "INTERPOLATION_END", "TEXT_END"})
_FILLERS = {
    "IF": "0",
    "WHILE": "0",
    "FOR": ";0;",
    "CATCH": "_",
    "FUNCTION": "",
    "FUNCTION_VALUE": "",
    "WORKFLOW": "",
}
"""Neutral content for the parentheses of a head, by the head's keyword."""

_TEMPLATE = re.compile(r"`[^`\\]*(?:\\.[^`\\]*)*`?", re.DOTALL)
_CONTINUES_LINE = re.compile(
    SKIPPED + r"(?:(?:else|catch|finally)\b|\?\.|[.?:&|=,)\]]|[-+*/%<>](?![-+/*])|!=)", re.DOTALL
)
"""The start of a line that continues the previous statement."""


def index_of(tokens: Sequence[Token], offset: int) -> int:
    """Return the index of the first token at or after an offset.

    The offset of a ``;`` that the lexer inserted is the end of the next token, so it is skipped.
    """
    for number, token in enumerate(tokens):
        if token.offset >= offset and (token.type != "SEMI" or token.value):
            return number
    return len(tokens)


def head_around(text: str, tokens: Sequence[Token], index: int, offset: int) -> tuple[int, int, str] | None:
    """Return the extent and the replacement of the parentheses around an offset.

    They follow ``if``, ``for``, ``function f`` ….
    """
    opening = _opening_before(tokens, index)
    if opening is None or tokens[opening].type != "LPAR" or opening == 0:
        return None
    keyword = tokens[opening - 1]
    if keyword.type == "NAME" and opening > 1:
        keyword = tokens[opening - 2]
    begin = tokens[opening].offset + 1
    end = next((place for place, sign, depth in _signs(text, begin) if sign == ")" and depth < 0), None)
    filler = _FILLERS.get(keyword.type)
    if filler is None or end is None or not begin <= offset <= end or end - begin < len(filler):
        return None
    return (begin, end, filler) if text[begin:end].strip() not in ("", filler) else None


def _opening_before(tokens: Sequence[Token], index: int) -> int | None:
    """Return the innermost bracket that is open before a token."""
    depth = 0
    for number in range(index - 1, -1, -1):
        if tokens[number].type in _CLOSING:
            depth += 1
        elif tokens[number].type in _OPENING:
            if depth == 0:
                return number
            depth -= 1
    return None


def start_of_statement(tokens: Sequence[Token], index: int, default: int) -> int:
    """Return the start of the statement that contains a token; ``default`` if there is no token."""
    number = min(index, len(tokens))
    while number > 0:
        before = tokens[number - 1]
        if before.type == "BLOCK_LBRACE" or (before.type == "SEMI" and not _is_in_head(tokens, number - 1)):
            break
        if before.type in _CLOSING:
            opening = _opening_before(tokens, number - 1)
            if opening is None or (before.type == "BLOCK_RBRACE" and _ends_statement(tokens, opening)):
                break
            number = opening
            continue
        number -= 1
    while number < len(tokens) - 1 and tokens[number].type == "SEMI":
        number += 1
    return tokens[number].offset if number < len(tokens) else default


def _is_in_head(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a ``;`` is one of ``for (…; …; …)``."""
    opening = _opening_before(tokens, index)
    return opening is not None and tokens[opening].type == "LPAR"


def _ends_statement(tokens: Sequence[Token], opening: int) -> bool:
    """Return whether the end of the block that begins here can be the end of a statement.

    It cannot after ``try``, nor where the block is the body of a function value.
    """
    before = tokens[opening - 1].type if opening else ""
    if before in ("ARROW", "TRY"):
        return False
    if before != "RPAR":
        return True
    head = _opening_before(tokens, opening - 1)
    words = [token.type for token in tokens[max(0, (head or 0) - 2) : head]]
    return "FUNCTION_VALUE" not in words


def end_of_statement(text: str, begin: int, offset: int) -> int:
    """Return the end of a statement that begins here and is broken at ``offset``: a ``;``, a ``}`` or a line's end."""
    for place, sign, depth in _signs(text, begin):
        if depth < 0:
            return place
        if depth == 0 and place >= offset:
            if sign == ";":
                return place + 1
            if sign == "\n" and not _CONTINUES_LINE.match(text, place):
                return place
    return len(text)


def _signs(text: str, begin: int) -> Iterator[tuple[int, str, int]]:
    """Yield brackets, semicolons and line ends from here on, each with the depth after it.

    Those inside strings and comments are skipped.
    """
    depth, position = 0, begin
    while position < len(text):
        match = ScriptLexer.pattern.match(text, position)
        template = _TEMPLATE.match(text, position)
        found = template or match
        piece = found.group() if found is not None else text[position]
        if piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
        if piece in "([{)]};":
            yield position, piece, depth
        elif piece.isspace() and "\n" in piece:
            yield position + piece.index("\n"), "\n", depth
        position += len(piece)


MOST_PROBLEMS = 20
MOST_WORK = 1_000_000
"""Characters to parse in search of further errors: long sources get fewer attempts."""

_IDENTIFIER = re.compile(IDENTIFIER)
_BEGINS_TEXT = ('"', "'", "`", "/*")


@dataclass(slots=True)
class Recovered:
    """The result of a recovery.

    ``parsed``: the remaining program, if it can be judged. ``hidden``: names that the removed parts use, which cannot
    be judged.
    """

    problems: list[FlowSyntaxError]
    parsed: Parsed | None = None
    hidden: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Cut:
    start: int
    end: int
    filler: str = ""
    is_certain: bool = True
    """False if the meaning of the remaining source may have changed."""


def recover(source: str, first: FlowSyntaxError) -> Recovered:
    """Return all syntax errors that are not consequences of others, in source order."""
    found = Recovered([first])
    if first.source != source:
        return found  # too long, or with characters that cannot be shown
    try:
        _, start = split_front_matter(source)
    except FlowSyntaxError:
        return found
    text, is_certain = source, True
    for _ in range(min(MOST_PROBLEMS, MOST_WORK // max(len(source), 1))):
        cut = _cut(text, start, found.problems[-1])
        if cut is None:
            break
        is_certain = is_certain and cut.is_certain
        found.hidden.update(_IDENTIFIER.findall(text, cut.start, cut.end))
        text = _without(text, cut)
        try:
            parsed = parse_program(text)
        except FlowSyntaxError as problem:
            if problem.message == EMPTY or len(found.problems) == MOST_PROBLEMS or _is_known(problem, found):
                break
            found.problems.append(FlowSyntaxError(problem.message, problem.line, problem.column, source))
        else:
            found.parsed = parsed if is_certain else None
            break
    found.problems.sort(key=lambda problem: (problem.line, problem.column))
    return found


def _is_known(problem: FlowSyntaxError, found: Recovered) -> bool:
    """Return whether the removal did not help."""
    return (problem.line, problem.column) in {(known.line, known.column) for known in found.problems}


def _without(text: str, cut: _Cut) -> str:
    removed = re.sub(r"[^\n]", " ", text[cut.start : cut.end])
    return text[: cut.start] + cut.filler + removed[len(cut.filler) :] + text[cut.end :]


def _cut(text: str, start: int, problem: FlowSyntaxError) -> _Cut | None:
    """Return the part to remove; None where nothing sensible can be removed."""
    offset = _offset(text, problem)
    if offset < start or problem.message == TOO_DEEP or spans_lines(problem.message):
        return None
    lexer = ScriptLexer(text, start)
    try:
        tokens: Sequence[Token] = lexer.tokens()
    except ExpressionError:
        tokens = lexer.found
        if _is_structural(lexer, offset):
            return _rest(lexer, offset)
        lexer.end_line()
    index = index_of(tokens, offset)
    head = head_around(text, tokens, index, offset)
    if head is not None:
        return _Cut(*head)
    begin = min(start_of_statement(tokens, index, offset), offset)
    end = end_of_statement(text, begin, offset)
    return _Cut(begin, end) if text[begin:end].strip() else None


def _offset(text: str, problem: FlowSyntaxError) -> int:
    lines = text.split("\n")[: problem.line - 1]
    return sum(len(line) + 1 for line in lines) + problem.column - 1


def _is_structural(lexer: ScriptLexer, offset: int) -> bool:
    """Return whether a bracket, a quote or the end of a comment is missing or superfluous."""
    is_open = lexer.position >= lexer.end and bool(lexer.brackets)
    return is_open or lexer.source.startswith((*CLOSERS, *_BEGINS_TEXT), offset)


def _rest(lexer: ScriptLexer, offset: int) -> _Cut:
    """Return everything from the statement that cannot be separated from the source after it."""
    if lexer.brackets:
        begin = start_of_statement(lexer.found, lexer.brackets[0].index, offset)
    elif lexer.source.startswith(tuple(CLOSERS), offset):
        begin = offset
    else:
        begin = start_of_statement(lexer.found, len(lexer.found), offset)
    return _Cut(min(begin, offset), lexer.end, is_certain=False)
