"""Expressions and scripts: public names only."""

from dalsegno.lang.compiler import Reference
from dalsegno.lang.conditions import COMPARISON_OPERATORS, compare, compile_condition
from dalsegno.lang.effects import (
    Awaitable,
    AwaitSignal,
    Cancel,
    Effect,
    Err,
    ErrorValue,
    Ok,
    Outcome,
    SetTags,
    StartTask,
    StartTimer,
    StartWorkflow,
    WaitingSignal,
)
from dalsegno.lang.errors import ExpressionError, ExpressionFailed, FlowSyntaxError
from dalsegno.lang.expression import Entropy, Expression, Lookup, compile_expression
from dalsegno.lang.flow.machine import Machine
from dalsegno.lang.flow.program import FlowProgram, compile  # noqa: A004  # the name users look for
from dalsegno.lang.interpolation import compile_string
from dalsegno.lang.limits import DEFAULT_LIMITS, MAX_NESTING, Limits, Meter
from dalsegno.lang.names import RESERVED_IDS, SPECIAL_ROOTS, RootNames
from dalsegno.lang.script.findings import Finding
from dalsegno.lang.script.validation import validate
from dalsegno.lang.snapshots import SnapshotError

__all__ = [
    "COMPARISON_OPERATORS",
    "DEFAULT_LIMITS",
    "MAX_NESTING",
    "RESERVED_IDS",
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
    "Reference",
    "RootNames",
    "SetTags",
    "SnapshotError",
    "StartTask",
    "StartTimer",
    "StartWorkflow",
    "WaitingSignal",
    "compare",
    "compile",
    "compile_condition",
    "compile_expression",
    "compile_string",
    "validate",
]
