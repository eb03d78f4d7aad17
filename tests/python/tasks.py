"""Tasks that the workflows of these tests call. Each notes its calls, so that side effects can be compared.

They copy, because called by a workflow they get and give copies; CPython is to see the same.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dalsegno.lang.python import DurableTask

calls: list[tuple[str, Any]] = []


class Refused(Exception):
    """An exception with a constructor of its own."""

    def __init__(self, order: str, amount: int) -> None:
        super().__init__(order, amount)
        self.order = order
        self.amount = amount

    def __str__(self) -> str:
        return f"{self.order} was refused: {self.amount}"


class Lost(LookupError):
    pass


@DurableTask
async def echo(value: Any) -> Any:
    calls.append(("echo", deepcopy(value)))
    return deepcopy(value)


@DurableTask
async def double(x: Any) -> Any:
    calls.append(("double", deepcopy(x)))
    return x * 2


@DurableTask
async def add(left: int, right: int = 1) -> int:
    calls.append(("add", [left, right]))
    return left + right


@DurableTask
async def fail(message: str) -> None:
    calls.append(("fail", message))
    raise ValueError(message)


@DurableTask
async def refuse(order: str) -> None:
    raise Refused(order, 7)


@DurableTask
async def lose(what: str) -> None:
    raise Lost(what)


@DurableTask
async def nothing() -> None:
    calls.append(("nothing", None))
