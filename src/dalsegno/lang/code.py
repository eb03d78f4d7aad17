"""Compiled programs as plain data: what the compiler writes and the machine runs.

An instruction is a triple ``(opcode, a, b)`` of integers. Offsets into the source stand beside the instructions, so
that an error knows its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Instruction: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """One function. Its frame's cells are parameters, then other variables, then captured ones.

    Captured cells count from the end (-1, -2 …), because how many variables precede them is known last.
    """

    name: str
    instructions: tuple[Instruction, ...]
    offsets: tuple[int, ...]
    captures: tuple[int, ...]
    """Cells of the enclosing frame, in the order in which they are appended to this one's."""
    parameters: int
    has_rest: bool
    variables: int
    """Parameters included."""


@dataclass(frozen=True, slots=True)
class CodeUnit:
    """All functions of one source; the first one is where it starts."""

    source: str
    functions: tuple[FunctionCode, ...]
    constants: tuple[bool | int | float | str | None, ...]
    makes_foreign: bool
    """Whether the result may hold what is no JSON (NaN, functions) and must be looked through."""
