"""Compiled expressions: the results of `compile_expression`, and their evaluation."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dalsegno.lang.errors import ExpressionFailed, ScriptThrow
from dalsegno.lang.expressions.compiler import Compiler, Reference
from dalsegno.lang.expressions.names import RootNames, skips_output
from dalsegno.lang.expressions.plain_paths import find_path, follow, missing_link, split_links
from dalsegno.lang.expressions.syntax.parser import parse_expression
from dalsegno.lang.runtime.code import CodeUnit
from dalsegno.lang.runtime.interpreter import Evaluation
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits, Meter
from dalsegno.lang.runtime.prepared_code import builds_values, steps_of
from dalsegno.lang.values.kinds import Host
from dalsegno.lang.values.sizes import Measure, is_small
from dalsegno.lang.values.to_text import find_foreign

Lookup: TypeAlias = Callable[[str], Any]
"""Returns the value of a root key; raises `KeyError` if this execution has none."""

Entropy: TypeAlias = Callable[[int], bytes]
"""Returns this many random bytes."""

_NO_VARIABLES: Mapping[str, Any] = {}


class Expression(ABC):
    """An expression ready to run, as often as needed and from any thread."""

    __slots__ = ("references", "roots", "source")

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
