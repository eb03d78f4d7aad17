"""Conditions of graphs: an expression, a constant, or a list of comparisons joined by ``and`` / ``or``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dalsegno.lang.errors import ExpressionError, ExpressionFailed, ScriptThrow
from dalsegno.lang.expressions.expression import Entropy, Expression, Lookup, compile_expression
from dalsegno.lang.expressions.interpolation import compile_string
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Limits, Meter
from dalsegno.lang.runtime.operators import LOOSE, Operator
from dalsegno.lang.values.kinds import Host, Value, truthy


def _is_empty(value: Value) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _test_of_one(test: Callable[[Value], bool]) -> Operator:
    return lambda host, left, right: test(left)


UNARY_TESTS: dict[str, Operator] = {
    "is_null": _test_of_one(lambda value: value is None),
    "is_not_null": _test_of_one(lambda value: value is not None),
    "is_empty": _test_of_one(_is_empty),
    "is_not_empty": _test_of_one(lambda value: not _is_empty(value)),
    "is_true": _test_of_one(truthy),
    "is_false": _test_of_one(lambda value: not truthy(value)),
}
"""Tests that need no ``op2``."""

_ALIASES = {
    "==": ("===", "=", "eq", "equals", "equal"),
    "!=": ("!==", "<>", "ne", "neq", "not_equals", "not_equal"),
    ">": ("gt", "greater_than"),
    ">=": ("gte", "ge", "greater_than_or_equal"),
    "<": ("lt", "less_than"),
    "<=": ("lte", "le", "less_than_or_equal"),
    "contains": ("includes",),
    "not contains": ("not_contains",),
    "startsWith": ("starts_with", "startswith"),
    "not startsWith": ("not_starts_with",),
    "endsWith": ("ends_with", "endswith"),
    "not endsWith": ("not_ends_with",),
    "matches": ("regex", "match"),
    "not matches": ("not_matches",),
    "in": (),
    "not in": ("not_in",),
}
_COMPARISONS: dict[str, Operator] = UNARY_TESTS | {
    spelling: LOOSE[name] for name, aliases in _ALIASES.items() for spelling in (name, *aliases)
}
_UNARY_ALIASES = {
    "exists": "is_not_null",
    "not_exists": "is_null",
    "empty": "is_empty",
    "not_empty": "is_not_empty",
}
_COMPARISONS |= {alias: UNARY_TESTS[name] for alias, name in _UNARY_ALIASES.items()}

COMPARISON_OPERATORS = frozenset(_COMPARISONS)
"""Every spelling that `compare` and the list form accept."""


def _operator(name: Any) -> Operator:
    found = _COMPARISONS.get(name) if isinstance(name, str) else None
    if found is None:
        known = ", ".join([*_ALIASES, *UNARY_TESTS])
        raise ExpressionError(f"unknown operator {name!r}; known are {known}")
    return found


def compare(operator: str, left: Any, right: Any = None) -> bool:
    """Evaluate one comparison by the rules of conditions; the operator is given by sign or name."""
    host = Host(DEFAULT_LIMITS, 0.0, os.urandom)
    try:
        return bool(_operator(operator)(host, left, right))
    except ScriptThrow as thrown:
        raise ExpressionFailed(thrown.code, thrown.message) from None


class _Constant(Expression):
    """A value that needs no evaluation."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        super().__init__("", ())
        self.value = value

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
        return self.value


Test: TypeAlias = tuple[Operator, Expression, Expression]


class Condition(Expression):
    """Comparisons joined by ``and`` (all) or ``or`` (any); evaluates to a boolean."""

    __slots__ = ("any_suffices", "tests")

    def __init__(self, tests: Sequence[Test], any_suffices: bool) -> None:
        operands = [operand for _, left, right in tests for operand in (left, right)]
        super().__init__("", tuple(reference for operand in operands for reference in operand.references))
        self.tests = tuple(tests)
        self.any_suffices = any_suffices

    def evaluate(
        self,
        lookup: Lookup,
        *,
        now: float,
        limits: Limits | None = None,
        local: Mapping[str, Any] | None = None,
        entropy: Entropy = os.urandom,
        meter: Meter | None = None,
    ) -> bool:
        host = Host(limits or DEFAULT_LIMITS, now, entropy, meter=meter)

        def holds(test: Test) -> bool:
            operator, left, right = test
            values = [
                operand.evaluate(
                    lookup, now=now, limits=limits, local=local, entropy=entropy, meter=host.meter
                )
                for operand in (left, right)
            ]
            try:
                return bool(operator(host, *values))
            except ScriptThrow as thrown:
                raise ExpressionFailed(thrown.code, thrown.message, left.source) from None

        return any(map(holds, self.tests)) if self.any_suffices else all(map(holds, self.tests))


class _Truth(Expression):
    """An expression whose result is the truth value of another one's."""

    __slots__ = ("inner",)

    def __init__(self, inner: Expression) -> None:
        super().__init__(inner.source, inner.references)
        self.inner = inner

    def evaluate(
        self,
        lookup: Lookup,
        *,
        now: float,
        limits: Limits | None = None,
        local: Mapping[str, Any] | None = None,
        entropy: Entropy = os.urandom,
        meter: Meter | None = None,
    ) -> bool:
        value = self.inner.evaluate(lookup, now=now, limits=limits, local=local, entropy=entropy, meter=meter)
        return truthy(value)


def compile_condition(spec: Any, operator: str | None, names: RootNames) -> Expression:
    """Compile a condition in the form that documents use; its value is a boolean.

    ``operator`` joins the comparisons of a list.
    """
    if isinstance(spec, bool):
        return _Constant(spec)
    if isinstance(spec, str):
        return _Truth(compile_expression(spec, names=names, condition=True))
    if isinstance(spec, dict):
        spec = [spec]
    if not isinstance(spec, list):
        raise ExpressionError("a condition is an expression, true or false, or a list of comparisons")
    joiner = "and" if operator is None else str(operator).lower()
    if joiner not in ("and", "or"):
        raise ExpressionError(f"comparisons are joined by 'and' or 'or', not {operator!r}")
    tests = [_test(item, position, names) for position, item in enumerate(spec)]
    if not tests:
        raise ExpressionError("the list of comparisons is empty")
    return Condition(tests, joiner == "or")


def _test(item: Any, position: int, names: RootNames) -> Test:
    try:
        if not isinstance(item, dict) or "op1" not in item or "operator" not in item:
            raise ExpressionError("a comparison needs 'op1', 'operator' and 'op2'")
        operator = _operator(item["operator"])
        if "op2" not in item and operator not in UNARY_TESTS.values():
            raise ExpressionError(f"operator '{item['operator']}' needs 'op2'")
        return operator, _operand(item["op1"], names), _operand(item.get("op2"), names)
    except ExpressionError as error:
        where = f"comparison {position + 1}: {error.message}"
        raise ExpressionError(where, error.source, error.column, error.line) from None


def _operand(value: Any, names: RootNames) -> Expression:
    compiled = compile_string(value, names, condition=True) if isinstance(value, str) else value
    return compiled if isinstance(compiled, Expression) else _Constant(compiled)
