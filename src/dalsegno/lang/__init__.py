"""Expressions and scripts: public names only."""

from dalsegno.lang.errors import ExpressionError, ExpressionFailed, FlowSyntaxError, SnapshotError
from dalsegno.lang.expressions.compiler import Reference
from dalsegno.lang.expressions.conditions import COMPARISON_OPERATORS, compare, compile_condition
from dalsegno.lang.expressions.expression import Entropy, Expression, Lookup, compile_expression
from dalsegno.lang.expressions.interpolation import compile_string
from dalsegno.lang.expressions.names import SPECIAL_ROOTS, RootNames
from dalsegno.lang.flow.program import FlowProgram, compile  # noqa: A004  # the name users look for
from dalsegno.lang.flow.runtime.machine import Machine
from dalsegno.lang.flow.syntax.syntax_errors import Finding
from dalsegno.lang.flow.syntax.validation import validate
from dalsegno.lang.runtime.effects import (
    Awaitable,
    AwaitSignal,
    Cancel,
    Effect,
    Err,
    ErrorValue,
    Ok,
    Outcome,
    Publish,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    WaitingSignal,
    WriteStream,
)
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, MAX_NESTING, Limits, Meter

__all__ = [
    "COMPARISON_OPERATORS",
    "DEFAULT_LIMITS",
    "MAX_NESTING",
    "SPECIAL_ROOTS",
    "AwaitSignal",
    "Awaitable",
    "Cancel",
    "Effect",
    "Entropy",
    "Err",
    "ErrorValue",
    "Expression",
    "ExpressionError",
    "ExpressionFailed",
    "Finding",
    "FlowProgram",
    "FlowSyntaxError",
    "Limits",
    "Lookup",
    "Machine",
    "Meter",
    "Ok",
    "Outcome",
    "Publish",
    "Reference",
    "RootNames",
    "SetTags",
    "SnapshotError",
    "StartTask",
    "StartTimer",
    "StartWorkflow",
    "WaitingSignal",
    "WriteStream",
    "compare",
    "compile",
    "compile_condition",
    "compile_expression",
    "compile_string",
    "validate",
]
