"""Bytecode prepared for execution: for each instruction its handler and its resolved operands.

Constants, names, functions, operators and places are looked up once, before the first run, not at every instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dalsegno.lang.runtime.code import CodeUnit, Instruction, Op
from dalsegno.lang.runtime.frames import Step, Steps
from dalsegno.lang.runtime.instructions import BINARY, BINARY_HANDLERS, HANDLERS, UNARY, looking_up
from dalsegno.lang.runtime.limits import COPIED
from dalsegno.lang.stdlib.registry import SCRIPT_FUNCTIONS

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
_BUILDERS = frozenset({Op.LIST, Op.OBJECT, Op.CALL, Op.METHOD})
_LOOKUPS = frozenset(
    {Op.MEMBER, Op.TRY_MEMBER, Op.CHECK_METHOD, Op.TRY_FIELD, Op.LOAD_GLOBAL, Op.STORE_GLOBAL}
)
"""Opcodes that look up a name of the source."""


def steps_of(unit: CodeUnit) -> tuple[Steps, ...]:
    """Return the prepared instructions of each function of the unit."""
    return tuple(
        [tuple([_step(unit, found) for found in function.instructions]) for function in unit.functions]
    )


def builds_values(unit: CodeUnit) -> bool:
    """Return whether the unit may create a value that is larger than its inputs."""
    return unit.makes_foreign or any(
        instruction[0] in _BUILDERS for function in unit.functions for instruction in function.instructions
    )


def _step(unit: CodeUnit, instruction: Instruction) -> Step:
    op, a, b = instruction
    first = _FIRST[op](unit, a) if op in _FIRST else a
    handler = BINARY_HANDLERS[a] if op == Op.BINARY else HANDLERS[op]
    if type(first) is str and len(first) >= COPIED and op in _LOOKUPS:
        handler = looking_up(handler)
    return handler, first, _SECOND[op](unit, b) if op in _SECOND else b
