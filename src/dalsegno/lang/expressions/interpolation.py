"""Strings with expressions in them: ``{{ expr }}``, exact references, and references inside text.

Only text of the definition is read as an expression; a value that came from data is inserted unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from dalsegno.lang.errors import ExpressionError, ExpressionFailed, ScriptThrow
from dalsegno.lang.expressions.expression import (
    Entropy,
    Expression,
    Lookup,
    PathExpression,
    compile_span,
    follow,
    link_offset,
)
from dalsegno.lang.expressions.names import NODE_ROOT, RootNames, skips_output
from dalsegno.lang.expressions.syntax.lexer import GRAPH, Lexer
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits, Meter
from dalsegno.lang.values.kinds import Host
from dalsegno.lang.values.to_text import to_text

_MARK = re.compile(r"\{\{|\$")
# Outside braces a `$` is never part of a member: it is text, or begins the next reference.
_EXACT_LINKS = re.compile(
    r"(?:\??\.[A-Za-z_]\w*|(?:\?\.)?\[(?:-?\d{1,9}|\"[^\"\\]*\"|'[^'\\]*')\])*", re.ASCII
)
_TEXT_LINKS = re.compile(r"(?:\.[A-Za-z_]\w*|\[\d{1,9}\])*", re.ASCII)
_QUOTED_NAME = re.compile(r"\[([\"'])([^\"'\\]+)\1\]")
_CONFUSES_BRACES = re.compile(r"[{\"'`/]")


class TextReference(PathExpression):
    """A reference inside longer text. It never fails: a missing value is empty.

    A dot may also end a sentence (``Hi $u.name.Welcome``): after a value without members, the rest of the path is text.
    """

    __slots__ = ("end",)

    def __init__(self, source: str, start: int, end: int, key: str, links: int) -> None:
        super().__init__(source, start, end, key, links, lenient=True)
        self.end = end

    def evaluate(
        self,
        lookup: Lookup,
        *,
        now: float,
        limits: Limits | None = None,
        local: Mapping[str, Any] | None = None,
        entropy: Entropy = os.urandom,
        meter: Meter | None = None,
    ) -> Any:
        try:
            value = lookup(self.key)
            return follow(value, self.parts, skips_output(self.key), False, _NothingThere)
        except KeyError:
            return None
        except _NothingThere as stopped:
            if not isinstance(stopped.value, (str, bool, int, float)):
                return None
            rest = self.source[link_offset(self.source, self.links, stopped.position) : self.end]
            host = Host(limits or DEFAULT_LIMITS, now, entropy, meter=meter)
            return to_text(stopped.value, host) + rest


class _NothingThere(Exception):  # a signal between two functions of this file
    def __init__(self, value: Any, position: int) -> None:
        super().__init__()
        self.value = value
        self.position = position


class TextExpression(Expression):
    """Text with values in it; evaluates to a string."""

    __slots__ = ("parts",)

    def __init__(self, source: str, parts: tuple[str | Expression, ...]) -> None:
        inner = [part for part in parts if isinstance(part, Expression)]
        super().__init__(source, tuple(reference for part in inner for reference in part.references))
        self.parts = parts

    def evaluate(
        self,
        lookup: Lookup,
        *,
        now: float,
        limits: Limits | None = None,
        local: Mapping[str, Any] | None = None,
        entropy: Entropy = os.urandom,
        meter: Meter | None = None,
    ) -> str:
        host = Host(limits or DEFAULT_LIMITS, now, entropy, meter=meter)
        texts: list[str] = []
        offset = 0
        try:
            for part in self.parts:
                if isinstance(part, Expression):
                    offset = part.references[0].offset if part.references else offset
                    value = part.evaluate(
                        lookup, now=now, limits=limits, local=local, entropy=entropy, meter=host.meter
                    )
                    part = "" if value is None else to_text(value, host)
                host.meter.allocate(len(part), "the text")
                texts.append(part)
        except ScriptThrow as thrown:
            raise ExpressionFailed.at(thrown.code, thrown.message, self.source, offset) from None
        return "".join(texts)


def compile_string(source: str, names: RootNames, condition: bool = False) -> str | Expression:
    """Compile a string of a document: return the string itself if it holds no expression, else an expression.

    Raise `ExpressionError` for the first ``{{ }}`` that does not compile.
    """
    if "$" not in source and "{{" not in source:
        return source
    key = (source, condition, "text")
    known: str | Expression | None = names.cache.get(key)
    if known is None:
        known = names.cache[key] = _compile(source, names, condition)
    return known


def _compile(source: str, names: RootNames, condition: bool) -> str | Expression:
    if (
        source.startswith("{{")
        and source.find("}}") == len(source) - 2
        and not _CONFUSES_BRACES.search(source, 2)
    ):
        return compile_span(source, 2, len(source) - 2, names, condition)
    if _is_exact_reference(source, names):
        return compile_span(source, 0, len(source), names, condition)
    parts = _Splitter(source, names, condition).parts()
    if len(parts) == 1 and isinstance(parts[0], Expression) and not isinstance(parts[0], TextReference):
        return parts[0]
    if any(isinstance(part, Expression) for part in parts):
        return TextExpression(source, tuple(parts))
    text = "".join(part for part in parts if isinstance(part, str))
    return source if text == source else text


def _is_exact_reference(source: str, names: RootNames) -> bool:
    found = names.find(source, 1) if source.startswith("$") else None
    return found is not None and _EXACT_LINKS.fullmatch(source, found[1]) is not None


class _Splitter:
    """Splits a string into text and expressions."""

    def __init__(self, source: str, names: RootNames, condition: bool) -> None:
        self.source = source
        self.names = names
        self.condition = condition
        self.found: list[str | Expression] = []

    def parts(self) -> list[str | Expression]:
        position = 0
        while position < len(self.source):
            mark = _MARK.search(self.source, position)
            start = mark.start() if mark else len(self.source)
            self.text(self.source[position:start])
            if mark is None:
                break
            position = self.braces(start) if mark.group() == "{{" else self.dollar(start)
        return self.found

    def text(self, text: str) -> None:
        if text:
            self.found.append(text)

    def braces(self, start: int) -> int:
        end = self.end_of_braces(start + 2)
        self.found.append(compile_span(self.source, start + 2, end, self.names, self.condition))
        return end + 2

    def end_of_braces(self, start: int) -> int:
        """Return the offset of the closing ``}}``: the next one, unless quotes or braces before it may hide another."""
        end = self.source.find("}}", start)
        if end < 0:
            raise ExpressionError.at("'{{' is never closed by '}}'", self.source, start - 2)
        if _CONFUSES_BRACES.search(self.source, start, end):
            return Lexer(self.source, self.names, GRAPH, start).end_of_interpolation()
        return end

    def dollar(self, start: int) -> int:
        if self.source.startswith("$$", start):
            self.text("$")
            return start + 2
        found = self.names.find(self.source, start + 1)
        if found is not None and found[0] == NODE_ROOT:
            found = self.quoted_node(found[1])
        if found is None:
            self.text("$")
            return start + 1
        key, links = found
        match = _TEXT_LINKS.match(self.source, links)
        end = match.end() if match else links
        self.found.append(TextReference(self.source, start, end, key, links))
        return end

    def quoted_node(self, position: int) -> tuple[str, int] | None:
        match = _QUOTED_NAME.match(self.source, position)
        key = self.names.resolve(match.group(2)) if match else None
        return (key, match.end()) if match and key else None
