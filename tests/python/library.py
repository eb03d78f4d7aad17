"""A module that workflows call but do not name the classes of."""

from __future__ import annotations

import functools
from typing import Any

from dalsegno.lang.python import DurableTask


class Hidden(ValueError):
    def __init__(self, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class Declared(Exception):
    code = "DECLINED"


def _raise_declared(value: Any) -> None:
    raise Declared("declined", value)


def raising(value: Any) -> None:
    raise Hidden("from the library", data=object())


def scaled(by: int) -> Any:
    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return by * function(*args, **kwargs)

        return wrapper

    return decorate


@DurableTask
async def hidden(value: Any) -> None:
    raise Hidden(f"hidden {value}")


async def _declared(value: Any) -> None:
    _raise_declared(value)


declared = DurableTask(_declared, "declared", raises=(Declared,))
undeclared = DurableTask(_declared, "undeclared")
