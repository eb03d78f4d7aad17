"""Expressions and scripts: public names only."""

from dalsegno.lang.compiler import Reference
from dalsegno.lang.conditions import COMPARISON_OPERATORS, compare, compile_condition
from dalsegno.lang.errors import ExpressionError, ExpressionFailed
from dalsegno.lang.expression import Entropy, Expression, Lookup, compile_expression
from dalsegno.lang.interpolation import compile_string
from dalsegno.lang.limits import DEFAULT_LIMITS, MAX_NESTING, Limits
from dalsegno.lang.names import RESERVED_IDS, SPECIAL_ROOTS, RootNames

__all__ = [
    "COMPARISON_OPERATORS",
    "DEFAULT_LIMITS",
    "MAX_NESTING",
    "RESERVED_IDS",
    "SPECIAL_ROOTS",
    "Entropy",
    "Expression",
    "ExpressionError",
    "ExpressionFailed",
    "Limits",
    "Lookup",
    "Reference",
    "RootNames",
    "compare",
    "compile_condition",
    "compile_expression",
    "compile_string",
]
