"""Nested async functions as values: created by the machine, called by user code, awaited as frames."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from dalsegno.lang.runtime.promises import Labelled


class NestedFunction:
    """An ``async def`` inside a workflow, with the variables it shares with the functions around it."""

    __slots__ = ("binder", "cells", "number")

    def __init__(
        self, number: int, binder: Callable[..., tuple[Any, ...]], cells: tuple[CellType, ...]
    ) -> None:
        self.number = number
        """The number of its code in the program."""
        self.binder = binder
        """A plain function of the same signature that returns the arguments in the order of the parameters."""
        self.cells = cells

    @property
    def __name__(self) -> str:
        return self.binder.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> NestedCall:
        return NestedCall(self, self.binder(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<async function {self.binder.__qualname__}>"


class NestedCall(Labelled):
    """The result of calling a nested async function. It runs when it is awaited, which can happen only once."""

    __slots__ = ("arguments", "awaited", "function")

    def __init__(self, function: NestedFunction, arguments: tuple[Any, ...], awaited: bool = False) -> None:
        self.function = function
        self.arguments = arguments
        self.awaited = awaited

    def __repr__(self) -> str:
        return f"<call of {self.function.__name__}>"
