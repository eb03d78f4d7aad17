"""Compiled Python workflows as plain data: written by the compiler, stored by a program, run by the machine."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

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
