"""Exceptions of tasks and children say at the await what they said where they were raised, also after a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dalsegno import sleep
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Stage

pytestmark = ONE_STACK


class Unsaid(Exception):
    """One that cannot be named from a workflow's own module is still rebuilt from its arguments."""


def _decode(data: bytes) -> None:
    data.decode()


def _open() -> None:
    Path("/nonexistent/file").read_text()


def _group() -> None:
    raise ExceptionGroup("grp", [ValueError(1), ExceptionGroup("inner", [KeyError("k"), Unsaid("u")])])


def _raise(error: Any) -> None:
    raise error


RAISED: dict[str, Any] = {
    "bytes": lambda: _decode(b"ab\xff"),
    "file name": _open,
    "group": _group,
    "no arguments": lambda: _raise(Exception),
    "named like its class": lambda: _raise(ValueError("ValueError!")),
    "tuple": lambda: _raise(KeyError(("a", 1))),
    "set": lambda: _raise(ValueError(b"x", {1}, frozenset({2}), [(3,)], {"k": (4,)})),
    "not recordable": lambda: _raise(ValueError(object)),
}


def _seen(error: BaseException) -> list[str]:
    return [type(error).__name__, str(error), repr(error) if "object" not in repr(error) else "-"]


def _as_raised(name: str) -> list[str]:
    try:
        RAISED[name]()
    except BaseException as error:  # noqa: BLE001 - to see what it is
        return _seen(error)
    raise AssertionError("it raises nothing")


@pytest.mark.parametrize("by", ["task", "child"])
@pytest.mark.parametrize("name", RAISED)
def test_an_exception_says_at_the_await_what_it_said(stage: Stage, name: str, by: str) -> None:
    @stage.app.task
    def task() -> None:
        RAISED[name]()

    @stage.app.workflow
    async def child() -> None:
        RAISED[name]()

    @stage.app.workflow
    async def catching() -> list[list[str]]:
        try:
            if by == "task":
                await task()
            else:
                await child()
        except Exception as error:  # noqa: BLE001 - to see what it is
            before = _seen(error)
            await sleep(0)
            return [before, _seen(error)]
        return []

    expected = _as_raised(name)
    assert stage.app.start(catching).result(15) == [expected, expected]


def test_members_of_a_group_are_caught_as_what_they_were(stage: Stage) -> None:
    @stage.app.task
    def task() -> None:
        _group()

    @stage.app.workflow
    async def catching() -> list[Any]:
        try:
            await task()
        except ExceptionGroup as group:
            matching = group.subgroup(KeyError)
            return [[type(one).__name__ for one in group.exceptions], repr(matching)]
        return []

    names, matching = stage.app.start(catching).result(15)
    assert names == ["ValueError", "ExceptionGroup"]
    assert "KeyError('k')" in matching


def test_a_message_is_kept_where_the_arguments_are_too_large_to_be(stage: Stage) -> None:
    @stage.app.task
    def task() -> None:
        _decode(b"a" * 1_000_000 + b"\xff")

    @stage.app.workflow
    async def catching() -> str:
        try:
            await task()
        except UnicodeDecodeError as error:
            return str(error)
        return ""

    assert "can't decode byte 0xff in position 1000000" in stage.app.start(catching).result(15)
