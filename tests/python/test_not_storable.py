"""What cannot be stored fails at the await, with an error that names variable, type, line and the way out."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import threading
from dataclasses import dataclass
from typing import Any

from dalsegno.lang.python import PythonMachine, compile_workflow
from tests.python.driving import drive
from tests.python.tasks import echo
from tests.rows import rows

# ruff: noqa: PLW0108, PLW2101 - variables and values that only have to be alive


class Client:
    """Frees something when it goes, so it cannot be rebuilt."""

    def __del__(self):
        pass

    def get(self, value):
        return value


@dataclass
class Holder:
    inside: Any


@contextlib.contextmanager
def connection():
    yield 1


def unnameable():
    @dataclass
    class Hidden:
        n: int = 1

    return Hidden()


async def alive(x):
    client = Client()
    await echo(x)
    return client.get(x)


async def alive_deep(x):
    state = {"a": [1, {"client": Holder((1, Client()))}]}
    await echo(x)
    return state


async def alive_generator(x):
    for item in (n for n in range(3)):
        await echo(item)


async def alive_native_iterator(x):
    for row in csv.reader(["a,b"]):
        await echo(row)


async def alive_match(x):
    found = re.match("a", "a")
    await echo(1)
    return found.group()


async def alive_lock(x):
    with threading.Lock():
        await echo(1)


async def alive_manager(x):
    with connection() as number:
        await echo(number)


async def alive_file(x):
    with io.StringIO("text") as file:
        await echo(1)
        return file.read()


async def alive_file_of_a_caller(x):
    async def inner(value):
        return await echo(value)

    with io.StringIO("text"):
        return await inner(1)


async def alive_lines(x):
    for line in io.StringIO("text"):
        await echo(line)


async def alive_file_variable(x):
    file = io.StringIO("text")
    await echo(1)
    return file.read()


async def alive_method(x):
    return Client().get(await echo(x))


async def alive_in_closure(x):
    client = Client()
    get = lambda value: client.get(value)  # noqa: E731
    await echo(1)
    return get(1)


async def alive_class(x):
    hidden = unnameable()
    await echo(1)
    return hidden.n


async def alive_function(x):
    function = type(unnameable()).__init__
    await echo(1)
    return function


async def alive_on_the_stack(x):
    return [Client(), await echo(1)]


async def alive_key(x):
    data = {Client(): 1}
    await echo(1)
    return data


async def alive_subclass(x):
    class_of = type("Special", (dict,), {})
    data = class_of(a=1)
    await echo(1)
    return data


async def alive_lock_inside(x):
    data = {"deep": [threading.Lock()]}
    await echo(1)
    return data


async def alive_view(x):
    view = memoryview(b"abc")
    await echo(1)
    return view


COMPLAINTS = [
    (
        alive,
        "variable 'client' is of type {module}.Client, which cannot be stored across the await",
        "inside a task",
    ),
    (
        alive_deep,
        "variable 'state' holds, at ['a'][1]['client'].inside[1], a value of type {module}.Client",
        "",
    ),
    (alive_generator, "the iterator of a 'for' loop is of type generator", "Use a list instead: list(…)"),
    (alive_native_iterator, "the iterator of a 'for' loop is of type _csv.reader", "Loop over a list"),
    (alive_match, "variable 'found' is of type re.Match", "Make it again after the await"),
    (
        alive_lock,
        "the context manager of a 'with' block is of type _thread.lock",
        "let its 'with' block end before",
    ),
    (
        alive_manager,
        "the context manager of a 'with' block is of type contextlib._GeneratorContextManager",
        "",
    ),
    (
        alive_file,
        "the context manager of a 'with' block is of type _io.StringIO",
        "Use it inside a task, or let its 'with' block end before the await",
    ),
    (alive_lines, "the iterator of a 'for' loop is of type _io.StringIO", "Loop over a list"),
    (
        alive_file_variable,
        "variable 'file' is of type _io.StringIO",
        "Make it again after the await, or use it",
    ),
    (
        alive_lock_inside,
        "variable 'data' holds, at ['deep'][0], a value of type _thread.lock",
        "Make it again after the await, or use it inside a task",
    ),
    (alive_view, "variable 'view' is of type memoryview", "Make it again after the await, or use it"),
    (
        alive_method,
        "the method 'get' that is about to be called holds, at .__self__, a value of type {module}.Client",
        "",
    ),
    (alive_in_closure, "variable 'get' holds, at .<variable client>, a value of type {module}.Client", ""),
    (
        alive_class,
        "variable 'hidden' is of type {module}.unnameable.<locals>.Hidden",
        "Import the class Hidden",
    ),
    (alive_function, "variable 'function' is of type function", "Import it in the workflow's module"),
    (alive_on_the_stack, "a part of an expression is of type {module}.Client", ""),
    (alive_key, "variable 'data' holds, at (a key), a value of type {module}.Client", ""),
    (alive_subclass, "variable 'data' is of type {module}.Special", ""),
]


@rows(("function", "said", "cure"), COMPLAINTS, ids=[each[0].__name__ for each in COMPLAINTS])
def test_complaint_names_what_is_in_the_way(function, said, cure):
    machine = drive(function, 1, "hot")
    assert machine.status == "failed"
    error = machine.error
    assert error.code == "NotStorable"
    assert said.format(module=__name__) in error.message
    assert cure in error.message
    line = int(re.search(r"in line (\d+)", error.message)[1])
    assert function.__code__.co_firstlineno < line <= function.__code__.co_firstlineno + 6
    assert error.stack == (f"{function.__name__} ({__file__}:{line})",)


def test_manager_of_a_caller_is_told_from_an_iterator():
    message = drive(alive_file_of_a_caller, 1, "hot").error.message
    assert "the context manager of a 'with' block is of type _io.StringIO" in message


def test_what_the_failing_run_asked_for_is_not_done():
    machine = PythonMachine.start(compile_workflow(alive), 1)
    assert machine.status == "failed"
    assert machine.take_effects() == []


async def tries_to_go_on(x):
    client = Client()
    try:
        await echo(1)
    except BaseException:  # noqa: BLE001
        return "went on"
    return client


def test_it_cannot_be_caught():
    assert drive(tries_to_go_on, 1, "hot").error.code == "NotStorable"


async def only_dead(x):
    client = Client()
    value = client.get(x)
    match = re.match("a", "a")
    first = match.group()
    await echo(1)
    client = None
    function = lambda: captured  # noqa: E731
    captured = Client()
    result = function().get(5)
    await echo(2)
    captured = 1
    return [value, first, client, result]


def test_dead_variables_are_no_problem():
    assert drive(only_dead, 3, "stored").result == [3, "a", None, 5]


async def dead_in_one_branch(x):
    client = Client()
    if x > 100:
        await echo(1)
        return client.get(x)
    size = client.get(x)
    await echo(size)
    return size


def test_a_variable_that_only_another_branch_reads_is_dead():
    assert drive(dead_in_one_branch, 3, "stored").result == 3
    assert "'client'" in drive(dead_in_one_branch, 300, "stored").error.message


async def alive_for_the_handler(x):
    client = Client()
    try:
        await echo(1)
    except ValueError:
        return client.get(1)
    return 2


def test_a_variable_that_a_handler_reads_is_alive():
    assert "'client'" in drive(alive_for_the_handler, 1, "stored").error.message


async def alive_for_the_next_round(x):
    client = None
    for n in range(3):
        if client is not None:
            client.get(n)
        client = Client()
        await echo(n)


def test_a_variable_that_the_next_round_reads_is_alive():
    assert "'client'" in drive(alive_for_the_next_round, 1, "stored").error.message


async def overwritten(x):
    for n in range(3):
        client = Client()
        client.get(n)
        await echo(n)
    return "fine"


def test_a_variable_that_the_next_round_overwrites_is_dead():
    assert drive(overwritten, 1, "stored").result == "fine"
