"""Compiled expressions: the results of `compile_expression`, and their evaluation.

Plain paths such as ``$fetch.body.users[0].name``, the most common expression: read and run without the parser.

They mean exactly the same as in the full compiler; tests compare the two.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, TypeAlias

from dalsegno.lang.errors import ExpressionFailed, ScriptThrow
from dalsegno.lang.expressions.compiler import Compiler, Reference
from dalsegno.lang.expressions.names import NODE_ROOT, RootNames, skips_output
from dalsegno.lang.expressions.syntax.parser import parse_expression
from dalsegno.lang.runtime.code import CodeUnit
from dalsegno.lang.runtime.interpreter import Evaluation
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits, Meter
from dalsegno.lang.runtime.prepared_code import builds_values, steps_of
from dalsegno.lang.values.kinds import Host
from dalsegno.lang.values.members import MISSING, absent, read_index, read_member
from dalsegno.lang.values.sizes import Measure, is_small
from dalsegno.lang.values.to_text import find_foreign

PathPart: TypeAlias = str | int

LINKS = re.compile(r"(?:\.[A-Za-z_][\w$]*|\[\d{1,9}\])*", re.ASCII)
_LINK = re.compile(r"\.([A-Za-z_][\w$]*)|\[(\d+)\]", re.ASCII)


def split_links(text: str) -> tuple[PathPart, ...]:
    """Split a text that `LINKS` matched into its parts."""
    if "[" not in text:
        return tuple(text.split(".")[1:])
    return tuple(name or int(index) for name, index in _LINK.findall(text))


def find_path(source: str, start: int, end: int, names: RootNames) -> tuple[str, int] | None:
    """Return root key and offset of the links if ``source[start:end]`` is a plain path, else None."""
    found = names.find(source, start + 1) if source.startswith("$", start) else None
    if found is None or found[0] == NODE_ROOT:
        return None
    match = LINKS.match(source, found[1], end)
    return found if match is not None and match.end() == end else None


def follow(
    value: Any,
    parts: tuple[PathPart, ...],
    may_skip: bool,
    lenient: bool,
    explain: Callable[[Any, int], Exception],
) -> Any:
    """Return the value at the end of the path; ``explain`` creates the error for a missing link at a position.

    ``may_skip``: a first part ``output`` that is not a real key means the value itself.
    """
    for position, part in enumerate(parts):
        if type(value) is dict and part in value:
            value = value[part]
            continue
        if position == 0 and may_skip and part == "output":
            continue
        found = read_member(value, part) if isinstance(part, str) else read_index(value, part)
        if found is MISSING:
            if lenient:
                return None
            raise explain(value, position)
        value = found
    return value


def link_offset(source: str, links: int, position: int) -> int:
    """Return the offset of the link at ``position``."""
    return list(islice(_LINK.finditer(source, links), position + 1))[-1].start()


def missing_link(source: str, start: int, links: int, position: int, value: Any) -> ExpressionFailed:
    """Return the error for the link at ``position`` of the path that starts at ``start``."""
    offset = link_offset(source, links, position)
    match = _LINK.match(source, offset)
    name = match.group(1) if match else None
    part = name or int(match.group(2) if match else 0)
    path = source[start : offset + 1 + len(name) if name else offset]
    thrown = absent(value, part, path)
    return ExpressionFailed.at(thrown.code, thrown.message, source, offset + bool(name))


# -- expressions ---------------------------------------------------------------------------------------------


Lookup: TypeAlias = Callable[[str], Any]
"""Returns the value of a root key; raises `KeyError` if this execution has none."""

Entropy: TypeAlias = Callable[[int], bytes]
"""Returns this many random bytes."""

_NO_VARIABLES: Mapping[str, Any] = {}


class Expression(ABC):
    """An expression ready to run, as often as needed and from any thread."""

    __slots__ = ("references", "roots", "source")

    needs_meter = True
    """False if the source alone bounds its work."""

    def __init__(self, source: str, references: tuple[Reference, ...]) -> None:
        self.source = source
        self.references = references
        self.roots: frozenset[str] = frozenset([reference.root for reference in references])

    @abstractmethod
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
        """Return the value as plain JSON. Inputs are shared with it, never changed. Raise `ExpressionFailed` only.

        ``now`` is Unix time in seconds; ``local`` holds the variables that the names were compiled with. A ``meter``
        bounds several evaluations together and replaces ``limits``, which bound each alone.
        """


class MachineExpression(Expression):
    """Bytecode, run by the machine."""

    __slots__ = ("builds", "steps", "unit")

    def __init__(self, unit: CodeUnit, references: tuple[Reference, ...]) -> None:
        super().__init__(unit.source, references)
        self.unit = unit
        self.steps = steps_of(unit)
        self.builds = builds_values(unit)

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
        host = Host(limits or DEFAULT_LIMITS, now, entropy, meter=meter)
        evaluation = Evaluation(self.unit, self.steps, host, lookup, local or _NO_VARIABLES)
        try:
            evaluation.step_through()
            result = evaluation.outcome
            if self.builds and (type(result) is list or type(result) is dict) and not is_small(result):
                Measure(host.meter, "the result")(result)
            reason = find_foreign(result, host) if self.unit.makes_foreign else None
        except ScriptThrow as thrown:
            raise ExpressionFailed.at(thrown.code, thrown.message, self.source, evaluation.offset) from None
        except ArithmeticError:
            message = "a number is too large for this operation"
            raise ExpressionFailed.at("TypeError", message, self.source, evaluation.offset) from None
        except (MemoryError, RecursionError):
            message = "the evaluation needs more memory than there is"
            raise ExpressionFailed.at("LimitExceeded", message, self.source, evaluation.offset) from None
        finally:
            if meter is not None:
                evaluation.settle()
        if reason is not None:
            start = self.unit.functions[0].offsets[0]
            raise ExpressionFailed.at("TypeError", f"the result holds {reason}", self.source, start)
        return 0 if type(result) is float and result == 0 else result  # minus zero stays inside the machine


class PathExpression(Expression):
    """A plain reference, followed without the machine."""

    __slots__ = ("key", "lenient", "links", "parts", "start")

    needs_meter = False

    def __init__(self, source: str, start: int, end: int, key: str, links: int, lenient: bool) -> None:
        super().__init__(source, (Reference(key, start),))
        self.key = key
        self.start = start
        self.links = links
        self.lenient = lenient
        self.parts = split_links(source[links:end])

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
        except KeyError:
            if self.lenient:
                return None
            shown = self.key if self.key.startswith("$") else f"${self.key}"
            message = f"{shown} has no value in this execution; `?.` or `??` allow for that"
            raise ExpressionFailed.at("PROPERTY_NOT_FOUND", message, self.source, self.start) from None
        return follow(value, self.parts, skips_output(self.key), self.lenient, self.explain)

    def explain(self, value: Any, position: int) -> ExpressionFailed:
        return missing_link(self.source, self.start, self.links, position, value)


def compile_span(source: str, start: int, end: int, names: RootNames, condition: bool = False) -> Expression:
    """Compile ``source[start:end]``; positions in errors and references count from the start of ``source``."""
    while start < end and source[start].isspace():
        start += 1
    while end > start and source[end - 1].isspace():
        end -= 1
    path = find_path(source, start, end, names)
    if path is not None:
        return PathExpression(source, start, end, path[0], path[1], condition)
    tree = parse_expression(source, names, start=start, end=end)
    compiler = Compiler(source, names, condition)
    return MachineExpression(compiler.unit(tree), tuple(compiler.references))


def compile_expression(source: str, *, names: RootNames, condition: bool = False) -> Expression:
    """Compile an expression of a graph; `ExpressionError` says what is wrong and where.

    ``condition`` selects the rules of conditions: a missing path is null, numeric strings compare with numbers as
    numbers, and ``{{ }}`` may enclose the whole. Compiled sources are cached on ``names``.
    """
    key = (source, condition)
    known = names.cache.get(key)
    if known is None:
        start, end = _without_braces(source) if condition else (0, len(source))
        known = names.cache[key] = compile_span(source, start, end, names, condition)
    found: Expression = known
    return found


def _without_braces(source: str) -> tuple[int, int]:
    """Return the extent between ``{{`` and ``}}`` if they enclose the whole source."""
    stripped = source.strip()
    if stripped.startswith("{{") and stripped.find("}}") == len(stripped) - 2:
        return source.index("{{") + 2, source.rindex("}}")
    return 0, len(source)
