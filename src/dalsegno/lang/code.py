"""Compiled programs as plain data: what the compiler writes and the machine runs.

An instruction is a triple ``(opcode, a, b)`` of integers. Offsets into the source stand beside the instructions, so
that an error knows its place. These structures are what a stored program consists of: add fields at the end, with a
default, and never change the meaning of one.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

Instruction: TypeAlias = tuple[int, int, int]
Constant: TypeAlias = bool | int | float | str | None


class Scope(Struct, frozen=True, array_like=True, gc=False):
    """Variables that live together: from the instruction after ``start`` to the one before ``stop``.

    They have the slots from ``first`` on. A name is None where the program cannot name the variable.
    """

    start: int
    stop: int
    first: int
    names: tuple[str | None, ...]


class Shelter(Struct, frozen=True, array_like=True, gc=False):
    """What is thrown by the instructions from ``start`` to before ``stop`` goes on at ``target``."""

    start: int
    stop: int
    target: int


class FunctionCode(Struct, frozen=True, array_like=True, gc=False):
    """One function. Its frame's slots are parameters, then other variables.

    A slot whose variable is used by a function inside this one is *boxed*: it holds a cell, which that function
    captures; the others hold their value.
    """

    number: int
    name: str
    instructions: tuple[Instruction, ...]
    offsets: tuple[int, ...]
    captures: tuple[int, ...]
    """Where the enclosing frame has the cells to capture: a slot, or -1, -2 … for its own captured cells."""
    parameters: int
    has_rest: bool
    variables: int
    """Number of slots, parameters included."""
    boxed: tuple[int, ...] = ()
    boxed_at_entry: tuple[int, ...] = ()
    """Those that no SCOPE instruction prepares."""
    scopes: tuple[Scope, ...] = ()
    """Outer ones before inner ones."""
    shelters: tuple[Shelter, ...] = ()
    """Inner ones before outer ones."""
    capture_names: tuple[str, ...] = ()

    def name_of(self, slot: int) -> str:
        """The name of the variable in a slot, for messages."""
        for scope in self.scopes:
            if 0 <= slot - scope.first < len(scope.names):
                return scope.names[slot - scope.first] or "a variable"
        return "a variable"


class Place(Struct, frozen=True, array_like=True, gc=False):
    """A variable, or what members and indexes lead to from one; ``a.b[k].c`` has the links ``b``, None and ``c``."""

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
        """How many of its keys are on the stack."""
        return self.links.count(None)


SLOT, CAPTURED, GLOBAL = range(3)


class CodeUnit(Struct, frozen=True, gc=False):
    """All functions of one source; the first one is where it starts."""

    source: str
    functions: tuple[FunctionCode, ...]
    constants: tuple[Constant, ...]
    makes_foreign: bool = True
    """Whether the result may hold what is no JSON (NaN, functions) and must be looked through."""
    places: tuple[Place, ...] = ()
