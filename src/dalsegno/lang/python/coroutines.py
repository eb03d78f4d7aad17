"""Async Python that no task stands for: coroutine functions and context managers, recognised before anything runs.

Only what a name certainly means is judged; what cannot be told from the source is judged when it is called.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from dalsegno.lang.python.asyncio_spellings import INSTEAD, OURS
from dalsegno.lang.python.timeouts import Timeout

_VERBS = "dalsegno.lang.python.verbs"
_JOINING = frozenset((_VERBS, name) for name in ("gather", "first", "race", "cancel")) | {
    ("asyncio.tasks", "gather")
}


def not_a_task(name: str) -> str:
    return (
        f"'{name}' is a coroutine function but no task, so its progress could not be stored. "
        "Make it a task (@app.task), or define it inside the workflow"
    )


def no_promise(name: str) -> str:
    return (
        f"'{name}' is a nested async function, which runs in the workflow's own thread of control, one at a time. "
        "Await it directly, or make it a task or a workflow of its own"
    )


def no_manager(shown: str) -> str:
    return f"'async with' in a workflow is for timeout() alone, not for {shown}: use it inside a task"


def home_and_name(function: Any) -> tuple[str, str]:
    return str(getattr(function, "__module__", "")), str(getattr(function, "__name__", ""))


def is_coroutine_function(value: Any) -> bool:
    """asyncio's own are told apart elsewhere: some have a counterpart here."""
    return inspect.iscoroutinefunction(value) and not _of_asyncio(value)


def joins_promises(value: Any) -> bool:
    return home_and_name(value) in _JOINING


def promises_in(call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call, and what stands in a list or comprehension that it unpacks."""
    for argument in call.args:
        match argument:
            case ast.Starred(value=ast.List(elts=items) | ast.Tuple(elts=items)):
                yield from items
            case ast.Starred(value=ast.ListComp(elt=item) | ast.GeneratorExp(elt=item)):
                yield item
            case _:
                yield argument


def makes_foreign_manager(value: Any, *, called: bool) -> bool:
    """Whether ``async with`` on this, or on what calling it gives, certainly is not for ``timeout``."""
    if _of_asyncio(value):
        name = home_and_name(value)[1]
        return name not in OURS and name not in INSTEAD  # the latter have an advice of their own
    if not called:
        return hasattr(value, "__aenter__") and not isinstance(value, Timeout)
    if isinstance(value, type):
        return not issubclass(value, Timeout)
    return isinstance(value, FunctionType) and inspect.isasyncgenfunction(inspect.unwrap(value))


def _of_asyncio(value: Any) -> bool:
    return home_and_name(value)[0].startswith("asyncio.")
