"""Compiled Python workflows as plain data: written by the compiler, stored by a program, run by the machine.

The instructions of Python programs. Numbers are part of stored programs: never reuse or change one.

The machine runs only control flow. Code between two branches is a *fragment*: user code compiled by Python.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct


class Op(IntEnum):
    """``a`` and ``b`` are the operands; the stack is written with its top at the right."""

    RUN = 1
    """Call fragment ``a`` with the ``b`` topmost values, push its result."""
    EXECUTE = 2
    """Call fragment ``a`` with the ``b`` topmost values, drop its result."""
    LOAD = 3
    """Push variable ``a``."""
    STORE = 4
    """Pop into variable ``a``."""
    CLEAR = 5
    """Unbind variable ``a`` if it is bound."""
    RENEW = 6
    """Give variable ``a`` a fresh, unbound cell: closures over the old one keep it."""
    NOTHING = 7
    """Push None."""
    POP = 8
    COPY = 9
    """Push the ``a`` topmost values a second time."""
    TUCK = 10
    """``x y -> y x y``."""
    CUT = 11
    """``… x -> x``: keep the top, drop everything between it and depth ``a``."""
    UNWRAP = 12
    """Replace a one-element tuple by its element."""
    JUMP = 13
    JUMP_IF_FALSE = 14
    """Pop; go to ``a`` if it was false."""
    JUMP_IF_TRUE = 15
    JUMP_IF_NONE = 16
    """Go to ``a`` and pop if the top is None; else leave it."""
    FALSE_OR_POP = 17
    """Go to ``a`` and leave the top if it is false; else pop."""
    TRUE_OR_POP = 18
    ITERATE = 19
    """``iterable -> iterator``."""
    NEXT = 20
    """Push the iterator's next item; when there is none, pop the iterator and go to ``a``."""
    APPEND = 21
    """Pop into the list ``a`` places below the top."""
    ADD = 22
    """Pop into the set ``a`` places below the top."""
    ENTRY = 23
    """Pop value and key into the dict ``a`` places below them."""
    NEW_LIST = 24
    NEW_SET = 25
    NEW_DICT = 26
    AWAIT = 27
    """Replace a promise by its value, or suspend and come back to this instruction."""
    RETURN = 28
    CATCH = 29
    """Pop an exception and begin to handle it."""
    CAUGHT = 30
    """Push the exception being handled."""
    MATCHES = 31
    """Pop a class (or tuple of them); go to ``a`` unless the exception being handled is one."""
    DONE = 32
    """End the handling of the innermost exception."""
    AGAIN = 33
    """Raise the exception being handled again."""
    RAISE = 34
    """Pop an exception and raise it unchanged."""
    RESUME_AT = 35
    """Push ``a``: where to continue after a ``finally`` block; -1 continues raising."""
    FINALLY = 36
    """``payload where``: a ``finally`` block begins."""
    END_FINALLY = 37
    """Pop where; raise the payload, or jump there and leave it."""
    ENTER = 38
    """``manager -> manager value``: enter a ``with`` block, asynchronous if ``a``."""
    LEAVE = 39
    """``manager x -> x``: leave it without an exception."""
    ESCAPE = 40
    """``manager exception ->``: leave it with one; go to ``a`` if the manager swallowed it, else raise it."""
    FUNCTION = 41
    """``binder -> function``: make the nested async function ``a``."""


# -- compiled workflows --------------------------------------------------------------------------------------


Instruction: TypeAlias = tuple[int, int, int]


class Handler(Struct, frozen=True, array_like=True):
    """The handler of exceptions raised by instructions ``start`` to ``stop`` (exclusive).

    The stack is cut to ``depth`` and the exceptions being handled to ``handled`` before ``target`` gets the exception.
    """

    start: int
    stop: int
    target: int
    depth: int
    handled: int


class FunctionCode(Struct, frozen=True):
    """The workflow itself, or one of its nested async functions."""

    name: str
    qualname: str
    line: int
    instructions: tuple[Instruction, ...]
    lines: tuple[int, ...]
    handlers: tuple[Handler, ...]
    """Innermost first."""
    variables: tuple[str, ...]
    """One cell each: own variables, then captured ones, then those of the workflow's surroundings."""
    parameters: tuple[str, ...]
    own: int
    """The number of variables that belong to this function."""
    captured: tuple[int, ...]
    """The enclosing function's cells that follow the own ones."""
    live: tuple[str, ...]
    """Per instruction, as a hexadecimal mask: variables that are read later before they are written."""
    shared: str
    """Mask of the variables that a nested function may also hold."""
    syntax: list[object]
    """The fragments: one wrapper module as packed by `compile.source`."""
    rest: str = ""
    """The parameter that takes all further positional arguments (``*rest``), if there is one."""
    named: str = ""
    """The parameter that takes all further keyword arguments (``**named``), if there is one."""
