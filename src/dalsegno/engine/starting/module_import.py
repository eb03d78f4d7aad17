"""Imports of an application's module by a command or worker. While one is under way, nothing may be started.

A module that starts an execution at its top level would start another one in every process that imports it: in each
worker, and at each ``dalsegno resume``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from dalsegno.errors import UsageError


class _ModuleImport:
    """One import. Tasks that begin during it inherit the object, so the end of the import must be visible in them."""

    __slots__ = ("is_under_way", "module")

    def __init__(self, module: str) -> None:
        self.module = module
        self.is_under_way = True


_current: ContextVar[_ModuleImport | None] = ContextVar("dalsegno_module_import", default=None)


@contextmanager
def module_import(module: str) -> Iterator[None]:
    """Mark the block as the import of an application's module."""
    found = _ModuleImport(module)
    before = _current.set(found)
    try:
        yield
    finally:
        found.is_under_way = False
        _current.reset(before)


def refuse_during_import(doing: str) -> None:
    """Raise UsageError if the caller is a module that is being imported. ``doing``: ``starts an execution``."""
    found = _current.get()
    if found is None or not found.is_under_way:
        return
    raise UsageError(
        f"{_place() or found.module} {doing} while '{found.module}' is imported, so every process that imports it, "
        "each worker too, would do it again. Move these lines to the end of the file, under "
        "'if __name__ == \"__main__\":', or into a program of their own"
    )


def _place() -> str:
    """Return ``file:line`` of the statement at the top level of a module that led here; empty if there is none."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack() would read the source of every caller
    while frame.f_code.co_name != "<module>":
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"
