"""Compiled programs as plain data: written by the compiler, run by the machine.

An instruction is a triple ``(opcode, a, b)`` of integers. Source offsets are kept next to the instructions, so that
an error knows its position. A stored program consists of these structures: add fields at the end, with a default,
and never change the meaning of one.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Instruction: TypeAlias = tuple[int, int, int]
Constant: TypeAlias = bool | int | float | str | None


class Scope(Struct, frozen=True, array_like=True, gc=False):
    """Variables with the same lifetime: from the instruction after ``start`` to the one before ``stop``.

    They have the slots from ``first`` on. A name is None where the program cannot name the variable.
    """

    start: int
    stop: int
    first: int
    names: tuple[str | None, ...]


class ProtectedRange(Struct, frozen=True, array_like=True, gc=False):
    """An error thrown by the instructions from ``start`` to before ``stop`` continues at ``target``."""

    start: int
    stop: int
    target: int


class FunctionCode(Struct, frozen=True, array_like=True, gc=False):
    """One function. Its frame's slots are parameters, then other variables.

    A slot whose variable is used by an inner function is *boxed*: it holds a cell, which that function captures;
    other slots hold their value.
    """

    number: int
    name: str
    instructions: tuple[Instruction, ...]
    offsets: tuple[int, ...]
    captures: tuple[int, ...]
    """The enclosing frame's cells to capture: a slot, or -1, -2 … for its own captured cells."""
    parameters: int
    has_rest: bool
    variables: int
    """Number of slots, parameters included."""
    boxed: tuple[int, ...] = ()
    boxed_at_entry: tuple[int, ...] = ()
    """Boxed slots that no SCOPE instruction prepares."""
    scopes: tuple[Scope, ...] = ()
    """Outer ones before inner ones."""
    protected_ranges: tuple[ProtectedRange, ...] = ()
    """Inner ones before outer ones."""
    capture_names: tuple[str, ...] = ()

    def name_of(self, slot: int) -> str:
        """Return the name of the variable in a slot, for messages."""
        for scope in self.scopes:
            if 0 <= slot - scope.first < len(scope.names):
                return scope.names[slot - scope.first] or "a variable"
        return "a variable"


class Place(Struct, frozen=True, array_like=True, gc=False):
    """A variable, or a path of members and indexes from one; ``a.b[k].c`` has the links ``b``, None and ``c``."""

    root: int
    """One of `SLOT`, `CAPTURED`, `GLOBAL`."""
    index: int
    """A slot, a captured cell's position, or the position of a global's name among the constants."""
    links: tuple[str | None, ...]
    """None: the key is on the stack."""
    method: str = ""
    """The mutator to call there, if any."""

    @property
    def dynamic(self) -> int:
        """The number of its keys on the stack."""
        return self.links.count(None)


SLOT, CAPTURED, GLOBAL = range(3)


class CodeUnit(Struct, frozen=True, gc=False):
    """All functions of one source; the first one is the entry point."""

    source: str
    functions: tuple[FunctionCode, ...]
    constants: tuple[Constant, ...]
    makes_foreign: bool = True
    """True if the result may hold values without a JSON form (NaN, functions) and must be checked."""
    places: tuple[Place, ...] = ()
