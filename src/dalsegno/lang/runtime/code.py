"""Compiled programs as plain data: written by the compiler, run by the machine.

An instruction is a triple ``(opcode, a, b)`` of integers. Source offsets are kept next to the instructions, so that
an error knows its position. A stored program consists of these structures: add fields at the end, with a default,
and never change the meaning of one.

The instruction set. Numbers are part of the stored format: append, never renumber.

``a`` and ``b`` are the instruction's operands; "-> x" is the stack afterwards.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct


class Op(IntEnum):
    """One line each; the handlers are in instructions.py."""

    CONSTANT = 0  # -> constants[a]
    ROOT = 1  # -> value of the root constants[a]; missing: jump to b with null, or fail if b < 0
    EXTERNAL = 2  # -> variable constants[a] given by the caller
    LOAD = 3  # -> slots[a]
    STORE = 4  # value -> ; slots[a] = value
    BUILTIN = 5  # -> library function constants[a]
    FUNCTION = 6  # -> function a with its captured cells
    MEMBER = 7  # object -> object.constants[a]; b is where the reference starts in the source
    TRY_MEMBER = 8  # as MEMBER, but missing: jump to b with null
    INDEX = 9  # object index -> object[index]; b as in MEMBER
    TRY_INDEX = 10  # as INDEX, but missing: jump to b with null
    OUTPUT = 11  # value -> value.output if there is such a key, else the value itself
    UNARY = 12  # value -> UNARY_OPERATORS[a](value)
    BINARY = 13  # left right -> BINARY_OPERATORS[a](left, right)
    JUMP = 14  # go to b
    JUMP_IF_FALSE = 15  # value -> ; go to b if falsy
    KEEP_IF_FALSE = 16  # value -> value and go to b if falsy, else drop it
    KEEP_IF_TRUE = 17  # value -> value and go to b if truthy, else drop it
    KEEP_IF_PRESENT = 18  # value -> value and go to b if not null, else drop it
    LIST = 19  # -> []
    APPEND = 20  # list value -> list
    EXTEND = 21  # list list -> list
    OBJECT = 22  # -> {}
    PUT = 23  # object key value -> object
    MERGE = 24  # object object -> object
    TEXT = 25  # a values -> their texts joined
    CALL = 26  # function arguments -> result; a arguments, or one list of them if a < 0
    METHOD = 27  # object arguments -> result of calling its method constants[b]; a as in CALL
    CHECK_METHOD = (
        28  # object -> object, or null and jump to b if it is null or an object without constants[a]
    )
    PASSED = 29  # go to b if the call gave at least a + 1 arguments
    DUPLICATE = 30  # value -> value value
    DROP = 31  # value ->
    REST = 32  # list -> list without its first a items
    CHECK_LIST = 33  # value -> value; fails unless it is a list
    CHECK_OBJECT = 34  # value -> value; fails unless it is an object
    TRY_FIELD = 35  # object -> object.constants[a], or nothing and go on; found: jump to b
    RETURN = 36  # value -> ; ends the function
    LOAD_BOXED = 37  # -> value of the cell in slots[a]
    STORE_BOXED = 38  # value -> ; into the cell in slots[a]
    LOAD_CAPTURED = 39  # -> value of the captured cell a
    STORE_CAPTURED = 40  # value -> ; into the captured cell a
    LOAD_GLOBAL = 41  # -> workflow-wide variable constants[a]
    STORE_GLOBAL = 42  # value -> ; workflow-wide variable constants[a] = value
    SCOPE = 43  # creates the variables of slots a to b - 1 again
    RENEW = 44  # gives boxed variables of slots a to b - 1 new cells with the same values
    ASSIGN = 45  # keys value -> ; puts the value at places[a]
    READ_PLACE = 46  # keys -> keys value; what is at places[a]; b: whether a missing last key is null
    MUTATE = 47  # keys arguments -> result of the mutator of places[b]; a as in CALL
    ITERATE = 48  # value -> ; slots[a] = iteration over its items (b = 0) or its keys (b = 1)
    NEXT = 49  # -> next item of the iteration in slots[a], or go to b
    THROW = 50  # value -> ; throws it
    AWAIT = 51  # value -> what it resolves to; suspends where that is not known yet
    FAIL = 52  # throws an error with code constants[a] and message constants[b]
    FINISH = 53  # value -> ; ends the program with it


# -- compiled programs ---------------------------------------------------------------------------------------


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
