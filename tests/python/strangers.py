"""Workflows whose module names tasks and functions of the library, but none of its classes, nor the library itself."""

from __future__ import annotations

from dalsegno.lang.python import TaskError
from tests.python.library import raising, undeclared
from tests.python.tasks import echo


async def catches_undeclared(x):
    try:
        await undeclared(x)
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__, error.args, error.code]


def class_of_the_library():
    from tests.python.library import Declared

    return Declared


async def catches_by_recorded_name(x):
    try:
        try:
            await undeclared(x)
        except (KeyError, ValueError):
            return "never"
    except TaskError as error:
        first = str(error)
    try:
        await undeclared(x)
    except (KeyError, class_of_the_library()) as error:
        return [first, type(error).__name__, error.type, isinstance(error, LookupError)]


async def native_exception_across_await(x):
    try:
        raising(x)
    except ValueError as error:
        await echo(1)
        try:
            raise error
        except ValueError as again:
            return [type(again).__name__, str(again), again.args, hasattr(again, "data")]
