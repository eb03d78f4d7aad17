"""A table that is walked in one test reports every row that fails."""

from __future__ import annotations

import inspect

import pytest

from tests.rows import rows


def test_every_row_is_run_and_all_that_fail_are_named() -> None:
    seen = []

    @rows(("text", "size"), [("a", 1), ("bb", 3), ("cc", 2), ("d", 7)])
    def walk(base: int, text: str, size: int) -> None:
        seen.append(text)
        assert base + len(text) == size

    assert list(inspect.signature(walk).parameters) == ["base"]
    with pytest.raises(BaseExceptionGroup, match="2 of 4 rows") as caught:
        walk(base=0)
    assert seen == ["a", "bb", "cc", "d"]
    assert [error.__notes__ for error in caught.value.exceptions] == [["row 1: 'bb', 3"], ["row 3: 'd', 7"]]


def test_a_row_that_raises_nothing_where_it_must_fails() -> None:
    @rows("number", [1, 0])
    def walk(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            _ = 1 / number

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows"):
        walk()


def test_a_row_is_named_by_its_id() -> None:
    @rows("number", [1, 2], ids=["one", "two"])
    def walk(number: int) -> None:
        assert number == 1

    with pytest.raises(BaseExceptionGroup) as caught:
        walk()
    assert [error.__notes__ for error in caught.value.exceptions] == [["row 1: two"]]


def test_a_table_without_rows_fails() -> None:
    @rows("number", [])
    def walk(number: int) -> None:
        raise AssertionError("there is no row")

    with pytest.raises(AssertionError, match="without rows"):
        walk()
