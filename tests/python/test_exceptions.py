"""Exceptions across records and snapshots: which class comes back, what ``except`` matches, what a failure shows."""

from __future__ import annotations

import re

import pytest

from dalsegno.lang.python import PythonMachine, compile_workflow, error_value
from dalsegno.lang.python.exceptions import class_names, revive
from dalsegno.lang.runtime.effects import Err, ErrorValue, Ok
from tests.python import library, strangers
from tests.python.driving import MODES, drive
from tests.python.library import declared, hidden, raising
from tests.python.tasks import Refused, echo, fail, refuse


def resumed(function, error):
    machine = PythonMachine.start(compile_workflow(function), 1)
    machine.resume({"p0": Err(error)})
    return machine


# -- what comes back --------------------------------------------------------------------------------------------


async def shows(x):
    try:
        await echo(x)
    except BaseException as error:  # noqa: BLE001
        return [
            type(error).__name__,
            str(error),
            error.args,
            getattr(error, "code", None),
            getattr(error, "type", None),
        ]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            ErrorValue("ValueError", "bad", "ValueError", classes=("builtins.ValueError",), args=("bad", 1)),
            ["ValueError", "('bad', 1)", ["bad", 1], None, None],
        ),
        (ErrorValue("KeyError", "x", classes=("builtins.KeyError",)), ["KeyError", "'x'", ["x"], None, None]),
        (ErrorValue("TimeoutError", "late"), ["TimeoutError", "late", ["late"], None, None]),
        (ErrorValue("CancelledError", "stop"), ["CancelledError", "stop", ["stop"], None, None]),
        (
            ErrorValue("TASK_FAILED", "no", "Exotic", classes=("some.where.Exotic", "builtins.Exception")),
            ["TaskError", "Exotic: no", ["no"], "TASK_FAILED", "Exotic"],
        ),
        (
            ErrorValue("THROWN", "of a script"),
            ["TaskError", "THROWN: of a script", ["of a script"], "THROWN", "THROWN"],
        ),
        (
            ErrorValue("x", "no class", classes=("builtins.print",)),
            ["TaskError", "x: no class", ["no class"], "x", "x"],
        ),
        (
            ErrorValue("x", "never imported", classes=("subprocess.CalledProcessError",)),
            ["TaskError", "x: never imported", ["never imported"], "x", "x"],
        ),
    ],
    ids=lambda value: value.code if isinstance(value, ErrorValue) else "",
)
def test_a_record_becomes_an_exception(error, shown):
    assert resumed(shows, error).result == shown


async def catches_by_module(x):
    try:
        await hidden(x)
    except library.Hidden as error:
        return [type(error).__name__, str(error), error.data]


def test_a_class_in_a_module_that_the_workflow_names_is_rebuilt():
    assert drive(catches_by_module, 1).result == ["Hidden", "hidden 1", None]


async def catches_declared(x):
    try:
        await declared(x)
    except Exception as error:  # noqa: BLE001
        return [type(error).__name__, error.args, error.code]


def test_declared_classes_are_rebuilt(monkeypatch):
    monkeypatch.delitem(globals(), "library")
    assert drive(catches_declared, 1).result == ["Declared", ["declined", 1], "DECLINED"]


def test_classes_that_nobody_names_become_task_errors():
    assert drive(strangers.catches_undeclared, 1).result == ["TaskError", ["('declined', 1)"], "DECLINED"]


def test_except_matches_by_recorded_names():
    assert drive(strangers.catches_by_recorded_name, 1, "hot").result == [
        "Declared: ('declined', 1)",
        "TaskError",
        "Declared",
        False,
    ]


async def native_exception_across_await(x):
    try:
        raising(x)
    except ValueError as error:
        await echo(1)
        return [type(error).__name__, str(error), error.args, error.data is None]


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_of_a_library_survives_an_await_without_what_cannot_be_stored(mode):
    result = drive(native_exception_across_await, 1, mode, lossy=True).result
    assert result == ["Hidden", "from the library", ["from the library"], mode != "hot"]


def test_one_that_nobody_can_name_is_a_task_error_afterwards_and_still_matches():
    result = drive(strangers.native_exception_across_await, 1, "stored", lossy=True).result
    assert result == ["TaskError", "Hidden: from the library", ["from the library"], True]


async def caught_around_a_returned_call(x):
    kept = x

    async def inner():
        await refuse("o-1")

    try:
        return await inner()
    except Refused:
        return kept


@pytest.mark.parametrize("mode", MODES)
def test_what_only_the_callers_handler_reads_is_stored(mode):
    assert drive(caught_around_a_returned_call, 5, mode).result == 5


async def raised_again_after_an_await(x):
    try:
        await refuse("o-1")
    except Refused:
        await echo(1)
        raise


def test_a_failure_keeps_its_record_on_its_way_out():
    record = ErrorValue(
        "REFUSED",
        "no",
        "Refused",
        data={"limit": 5},
        classes=("tests.python.tasks.Refused",),
        args=("o-1", 7),
    )
    program = compile_workflow(raised_again_after_an_await)
    machine = PythonMachine.start(program, 1)
    machine.resume({"p0": Err(record)})
    machine = PythonMachine.loads(program, machine.dumps())
    machine.resume({"p1": Ok(1)})
    error = machine.error
    assert (error.code, error.message, error.type, error.data) == ("REFUSED", "no", "Refused", {"limit": 5})
    assert error.classes == ("tests.python.tasks.Refused",)
    assert error.args == ("o-1", 7)


def test_error_values_of_exceptions():
    value = error_value(Refused("o-1", 7))
    assert (value.code, value.type, value.message) == ("Refused", "Refused", "o-1 was refused: 7")
    assert value.classes == ("tests.python.tasks.Refused", "builtins.Exception", "builtins.BaseException")
    assert value.args == ("o-1", 7)
    assert error_value(library.Declared("x")).code == "DECLINED"
    assert error_value(ValueError(object())).args == ()
    assert error_value(KeyError()).message == "KeyError"
    assert class_names(OSError) == ("builtins.OSError", "builtins.Exception", "builtins.BaseException")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_exceptions_whose_text_fails_are_described_anyway():
    assert error_value(Silent()).message == "<its text is not available: RuntimeError>"


# -- what a failure shows ---------------------------------------------------------------------------------------


def calculate(value):
    return inner(value) + 1


def inner(value):
    raise ArithmeticError(f"cannot calculate {value}")


async def fails_natively(x):
    first = await echo(x)
    return calculate(first)  # here


async def fails_in_nested(x):
    async def step(n):
        await echo(n)
        return calculate(n)

    return await step(x)


async def fails_in_a_task(x):
    value = 1
    await fail(
        f"bad {value}",
    )


async def fails_after_another(x):
    try:
        await fail("first")
    except ValueError as error:
        await echo(1)
        raise RuntimeError("second") from error


def lines(function, text):
    import inspect

    source, first = inspect.getsourcelines(function)
    return [first + index for index, line in enumerate(source) if text in line]


@pytest.mark.parametrize("mode", MODES)
def test_the_stack_shows_the_users_lines_innermost_first(mode):
    error = drive(fails_natively, 5, mode).error
    assert error.stack == (
        f"inner ({__file__}:{lines(inner, 'raise')[0]})",
        f"calculate ({__file__}:{lines(calculate, 'return')[0]})",
        f"fails_natively ({__file__}:{lines(fails_natively, '# here')[0]})",
    )
    assert error.message == "cannot calculate 5"


@pytest.mark.parametrize("mode", MODES)
def test_the_stack_goes_through_nested_async_functions(mode):
    error = drive(fails_in_nested, 5, mode).error
    assert [re.match(r"\w+", entry)[0] for entry in error.stack] == [
        "inner",
        "calculate",
        "step",
        "fails_in_nested",
    ]
    assert error.stack[-1].endswith(f":{lines(fails_in_nested, 'return await')[0]})")


def test_the_traceback_reads_like_pythons_own():
    error = drive(fails_natively, 5, "stored").error
    assert error.data["traceback"] == (
        "Traceback (most recent call last):\n"
        f'  File "{__file__}", line {lines(fails_natively, "# here")[0]}, in fails_natively\n'
        "    return calculate(first)  # here\n"
        f'  File "{__file__}", line {lines(calculate, "return")[0]}, in calculate\n'
        "    return inner(value) + 1\n"
        f'  File "{__file__}", line {lines(inner, "raise")[0]}, in inner\n'
        '    raise ArithmeticError(f"cannot calculate {value}")\n'
        "ArithmeticError: cannot calculate 5"
    )


@pytest.mark.parametrize("mode", MODES)
def test_the_traceback_tells_of_the_cause_even_after_an_await(mode):
    text = drive(fails_after_another, 1, mode).error.data["traceback"]
    cause, effect = text.split("\n\nThe above exception was the direct cause of the following exception:\n\n")
    assert cause.endswith("ValueError: first")
    assert 'await fail("first")' in cause
    assert effect.endswith("RuntimeError: second")
    assert 'raise RuntimeError("second") from error' in effect


def test_a_failed_task_shows_where_it_was_awaited():
    error = drive(fails_in_a_task, 1).error
    assert error.stack == (f"fails_in_a_task ({__file__}:{lines(fails_in_a_task, 'await')[0]})",)


async def fails_in_lambda(x):
    await echo(1)
    pick = lambda data: data["missing"]  # noqa: E731
    await echo(2)
    return [pick(each) for each in [{}]]


@pytest.mark.parametrize("mode", MODES)
def test_lambdas_and_comprehensions_have_their_names_in_the_stack(mode):
    error = drive(fails_in_lambda, 1, mode).error
    names = [entry.split(" ")[0] for entry in error.stack]
    assert [name for name in names if name != "<listcomp>"] == ["<lambda>", "fails_in_lambda"]


def test_a_group_of_exceptions_comes_back_with_its_parts() -> None:
    failed = error_value(ExceptionGroup("all 2 failed", [ValueError("a"), KeyError("b")]))
    found = revive(failed, compile_workflow(shows).naming)
    assert isinstance(found, ExceptionGroup)
    assert found.message == "all 2 failed"
    assert [repr(each) for each in found.exceptions] == ["ValueError('a')", "KeyError('b')"]
    assert error_value(found).code == failed.code
