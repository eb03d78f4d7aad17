"""Bytecode made ready to run: for each instruction its handler, and what its operands refer to.

Constants, names, functions, operators and places are looked up once, before the first run, not at every instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dalsegno.lang.code import CodeUnit, Instruction
from dalsegno.lang.instructions import BINARY, HANDLERS, UNARY, Handler
from dalsegno.lang.opcodes import Op
from dalsegno.lang.stdlib.script_library import SCRIPT_FUNCTIONS

Step: TypeAlias = "tuple[Handler, Any, Any]"
Steps: TypeAlias = "tuple[Step, ...]"

_FIRST: dict[int, Callable[[CodeUnit, int], Any]] = {
    **dict.fromkeys(
        (Op.CONSTANT, Op.ROOT, Op.EXTERNAL, Op.MEMBER, Op.TRY_MEMBER, Op.CHECK_METHOD, Op.TRY_FIELD,
         Op.LOAD_GLOBAL, Op.STORE_GLOBAL, Op.FAIL),
        lambda unit, a: unit.constants[a],
    ),
    Op.BUILTIN: lambda unit, a: SCRIPT_FUNCTIONS[str(unit.constants[a])],
    Op.FUNCTION: lambda unit, a: unit.functions[a],
    Op.UNARY: lambda unit, a: UNARY[a],
    Op.BINARY: lambda unit, a: BINARY[a],
    Op.ASSIGN: lambda unit, a: unit.places[a],
    Op.READ_PLACE: lambda unit, a: unit.places[a],
}  # fmt: skip
_SECOND: dict[int, Callable[[CodeUnit, int], Any]] = dict.fromkeys(
    (Op.METHOD, Op.FAIL), lambda unit, b: unit.constants[b]
)


def steps_of(unit: CodeUnit) -> tuple[Steps, ...]:
    """For each function of the unit."""
    return tuple(
        [tuple([_step(unit, found) for found in function.instructions]) for function in unit.functions]
    )


def _step(unit: CodeUnit, instruction: Instruction) -> Step:
    op, a, b = instruction
    return (
        HANDLERS[op],
        _FIRST[op](unit, a) if op in _FIRST else a,
        _SECOND[op](unit, b) if op in _SECOND else b,
    )
