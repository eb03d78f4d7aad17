"""Tests that walk a table in one test: collecting, setting up and reporting a test takes longer than a row of these."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def rows(
    names: str | Sequence[str],
    table: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[str] = repr,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a function with each row of a table, as ``parametrize`` does, in one test. It is for functions that leave
    nothing behind. All rows are run; those that fail are reported together, each with its row or its id."""
    columns = (names,) if isinstance(names, str) else tuple(names)
    listed = [row if len(columns) > 1 else (row,) for row in table]
    named = [", ".join(str(ids(value)) for value in row) for row in listed] if callable(ids) else list(ids)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def walk(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for number, (row, name) in enumerate(zip(listed, named, strict=True)):
                try:
                    function(**fixtures, **dict(zip(columns, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all of them are reported
                    error.add_note(f"row {number}: {name}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(listed)} rows", failures)
            assert listed, "a table without rows"

        signature = inspect.signature(function)
        left = [each for name, each in signature.parameters.items() if name not in columns]
        walk.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return walk

    return decorate
