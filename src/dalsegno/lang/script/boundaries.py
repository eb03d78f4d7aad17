"""Where a broken statement begins and ends, told without a parser: by its brackets and lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dalsegno.lang.lexer import Token
from dalsegno.lang.script.layout import SKIPPED
from dalsegno.lang.script.lexer import ScriptLexer

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
"""What can stand between the parentheses of a head and says nothing, by the head's keyword."""

_TEMPLATE = re.compile(r"`[^`\\]*(?:\\.[^`\\]*)*`?", re.DOTALL)
_GOES_ON = re.compile(
    SKIPPED + r"(?:(?:else|catch|finally)\b|\?\.|[.?:&|=,)\]]|[-+*/%<>](?![-+/*])|!=)", re.DOTALL
)
"""What, at the start of a line, belongs to the statement before it."""


def index_of(tokens: Sequence[Token], offset: int) -> int:
    """Of the first token from a place on. A ``;`` that the lexer wrote stands where the next token ends."""
    for number, token in enumerate(tokens):
        if token.offset >= offset and (token.type != "SEMI" or token.value):
            return number
    return len(tokens)


def head_around(text: str, tokens: Sequence[Token], index: int, offset: int) -> tuple[int, int, str] | None:
    """The inside of the parentheses after ``if``, ``for``, ``function f`` … around a place, and what may replace it."""
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
    """The innermost bracket that is open before a token."""
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
    """Where the statement begins that a token is in; ``default`` if there is no token at all."""
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
    """Whether a ``;`` is one of ``for (…; …; …)``."""
    opening = _opening_before(tokens, index)
    return opening is not None and tokens[opening].type == "LPAR"


def _ends_statement(tokens: Sequence[Token], opening: int) -> bool:
    """Whether the end of a block that begins here can be the end of a statement: not after ``try``, nor where it is
    the body of a function that is a value."""
    before = tokens[opening - 1].type if opening else ""
    if before in ("ARROW", "TRY"):
        return False
    if before != "RPAR":
        return True
    head = _opening_before(tokens, opening - 1)
    words = [token.type for token in tokens[max(0, (head or 0) - 2) : head]]
    return "FUNCTION_VALUE" not in words


def end_of_statement(text: str, begin: int, offset: int) -> int:
    """Where a statement that begins here and is broken at ``offset`` ends: at a ``;``, a ``}`` or a line's end."""
    for place, sign, depth in _signs(text, begin):
        if depth < 0:
            return place
        if depth == 0 and place >= offset:
            if sign == ";":
                return place + 1
            if sign == "\n" and not _GOES_ON.match(text, place):
                return place
    return len(text)


def _signs(text: str, begin: int) -> Iterator[tuple[int, str, int]]:
    """Brackets, semicolons and ends of lines from here on, each with the depth behind it; what stands in strings and
    comments is none of them."""
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
