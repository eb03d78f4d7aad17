"""More than the first syntax error of a script: what is broken is taken out, and the rest is parsed again.

The smallest part that can be taken out is the head of a statement (``if (…)``), else the statement around the error.
Whatever is taken out is overwritten with spaces, so that all places stay what they were. Where a bracket or a quote is
missing, nothing behind it can be told with certainty: then only what stands before it is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dalsegno.lang.errors import ExpressionError, FlowSyntaxError
from dalsegno.lang.lexer import Token
from dalsegno.lang.limits import TOO_DEEP
from dalsegno.lang.script.boundaries import (
    end_of_statement,
    head_around,
    index_of,
    start_of_statement,
)
from dalsegno.lang.script.brackets import CLOSERS
from dalsegno.lang.script.complaints import spans_lines
from dalsegno.lang.script.forms import EMPTY
from dalsegno.lang.script.front_matter import split_front_matter
from dalsegno.lang.script.layout import IDENTIFIER
from dalsegno.lang.script.lexer import ScriptLexer
from dalsegno.lang.script.parsing import Parsed, parse_program

MOST_PROBLEMS = 20
MOST_WORK = 1_000_000
"""Characters that are parsed for the sake of further errors: long sources get fewer tries."""

_IDENTIFIER = re.compile(IDENTIFIER)
_BEGINS_TEXT = ('"', "'", "`", "/*")


@dataclass(slots=True)
class Recovered:
    """``parsed``: what remains, if that is a program and can be judged; ``hidden``: names that the removed parts use,
    of which nothing can be said."""

    problems: list[FlowSyntaxError]
    parsed: Parsed | None = None
    hidden: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Cut:
    start: int
    end: int
    filler: str = ""
    is_certain: bool = True
    """Whether what remains means what it meant."""


def recover(source: str, first: FlowSyntaxError) -> Recovered:
    """All syntax errors that are no consequences of others, in the order of the source."""
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
    """Whether taking something out did not help."""
    return (problem.line, problem.column) in {(known.line, known.column) for known in found.problems}


def _without(text: str, cut: _Cut) -> str:
    removed = re.sub(r"[^\n]", " ", text[cut.start : cut.end])
    return text[: cut.start] + cut.filler + removed[len(cut.filler) :] + text[cut.end :]


def _cut(text: str, start: int, problem: FlowSyntaxError) -> _Cut | None:
    """None where nothing sensible can be taken out."""
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
    """Whether a bracket, a quote or the end of a comment is missing or too many."""
    is_open = lexer.position >= lexer.end and bool(lexer.brackets)
    return is_open or lexer.source.startswith((*CLOSERS, *_BEGINS_TEXT), offset)


def _rest(lexer: ScriptLexer, offset: int) -> _Cut:
    """From the statement of the program that cannot be told from what follows."""
    if lexer.brackets:
        begin = start_of_statement(lexer.found, lexer.brackets[0].index, offset)
    elif lexer.source.startswith(tuple(CLOSERS), offset):
        begin = offset
    else:
        begin = start_of_statement(lexer.found, len(lexer.found), offset)
    return _Cut(min(begin, offset), lexer.end, is_certain=False)
