"""Names of options: a call with an unknown one is refused with a suggestion, and with the caller's file and line."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from dalsegno.errors import InvalidInput
from dalsegno.model.suggestion import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


def refuses_unknown_options(call: str) -> Callable[[F], F]:
    """Decorate a function with named options. ``call``: how users write it, such as ``@app.task``."""

    def decorate(function: F) -> F:
        options = _options(function)

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            for name in given:
                if name not in options:
                    raise InvalidInput(_unknown(call, name, options))
            return function(*args, **given)

        return checked  # type: ignore[return-value]  # the signature is that of the function

    return decorate


def _options(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    named = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def _unknown(call: str, name: str, options: list[str]) -> str:
    meant = did_you_mean(name, options).removesuffix("?")
    ending = "?" if meant else "."
    return (
        f"{caller_place(3)}: {call} has no option '{name}'{meant}{ending} Its options: {', '.join(options)}"
    )


def caller_place(levels: int) -> str:
    """Return ``file:line`` of the caller so many levels up."""
    frame = sys._getframe(levels)  # noqa: SLF001 - inspect.stack() would read the source of every caller
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
