"""What crosses the border between a workflow and its tasks: inputs, results, time limits, exceptions."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

from dalsegno import cancel, gather, run, sleep
from tests.scenarios.documents import graph
from tests.scenarios.stage import Stage


class SoldOut(Exception):
    def __init__(self, name: str, left: list[int]) -> None:
        super().__init__(f"{name} is sold out")
        self.name = name
        self.left = left
        self.lock = object()


class Short(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is short")
        self.name = name


@dataclasses.dataclass
class Leg:
    name: str
    seats: int = 3


@dataclasses.dataclass(frozen=True)
class Trip:
    legs: list[Leg]
    home: Leg | None = None
    by: dict[str, Leg] = dataclasses.field(default_factory=dict)


# -- time limits ------------------------------------------------------------------------------------------------


def _forever(stage: Stage) -> Any:
    @stage.app.task(timeout="50ms")
    async def slow() -> None:
        await asyncio.Event().wait()

    return slow


def test_a_tasks_registered_timeout_is_a_timeout_error_in_python(stage: Stage) -> None:
    slow = _forever(stage)

    @stage.app.workflow
    async def patient() -> str:
        try:
            await slow()
        except TimeoutError as error:
            return str(error)
        return "in time"

    with stage.app.running():
        said = stage.app.start(patient).result(timeout=15)
    assert said == "task 'slow' did not end within its timeout of 0.05 s"


@pytest.mark.parametrize("call", ['Task.run("slow", null)', 'Task.with({timeout: "20ms"}).run("slow", null)'])
def test_a_tasks_timeout_is_a_timeout_error_in_scripts(stage: Stage, call: str) -> None:
    _forever(stage)
    stage.app.deploy_script(f"try {{ await {call} }} catch (e) {{ return [e.code, e.type] }}", "s")
    with stage.app.running():
        assert stage.app.start("s").result(timeout=15) == ["TimeoutError", "TimeoutError"]


def test_graphs_know_a_tasks_timeout_by_its_code(stage: Stage) -> None:
    _forever(stage)
    ended = stage.run(graph("f", {"f": {"type": "task", "parameters": {"task": "slow"}}}))
    assert (ended.error["code"], ended.error["type"]) == ("TIMEOUT", "TimeoutError")


# -- calling off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [True, False])
def test_a_task_whose_promise_is_cancelled_is_interrupted_or_never_begins(
    stage: Stage, at_once: bool
) -> None:
    begun, interrupted = threading.Event(), threading.Event()

    @stage.app.task
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    @stage.app.task
    def begun_or_not() -> bool:
        return at_once or begun.wait(15)

    @stage.app.workflow
    async def impatient() -> str:
        work = endless()
        if not at_once:
            await begun_or_not()
        cancel(work, sleep("1h"))
        try:
            await work
        except asyncio.CancelledError:
            return "called off"
        return "ended"

    with stage.app.running():
        assert stage.app.start(impatient).result(timeout=15) == "called off"
        assert at_once or interrupted.wait(15)
    assert begun.is_set() is not at_once, "what is called off in the turn that asks for it never begins"


def test_a_child_whose_promise_is_cancelled_ends(stage: Stage) -> None:
    @stage.app.workflow
    async def endless() -> None:
        await sleep("1000h")

    @stage.app.workflow
    async def impatient() -> str:
        child = endless()
        cancel(gather(child, sleep("1h")))
        try:
            await child
        except asyncio.CancelledError:
            return "called off"
        return "ended"

    with stage.app.running():
        assert stage.app.start(impatient).result(timeout=15) == "called off"
        [child] = stage.app.executions("endless")
        assert child.wait(timeout=15).state == "CANCELLED"


def test_what_has_ended_is_not_cancelled_any_more(stage: Stage) -> None:
    @stage.app.task
    def one() -> int:
        return 1

    @stage.app.workflow
    async def late() -> int:
        work = one()
        await work
        cancel(work)
        return await work

    with stage.app.running():
        assert stage.app.start(late).result(timeout=15) == 1


# -- results ----------------------------------------------------------------------------------------------------


def test_defaults_of_rebuilt_dataclasses_are_part_of_what_goes_out_again(stage: Stage) -> None:
    @stage.app.task
    def same(trip: Trip) -> Trip:
        return trip

    given = {"legs": [{"name": "a"}], "by": {"x": {"name": "b", "seats": 1}}}
    stage.app.deploy_script('return await Task.run("same", inputs)', "s")
    with stage.app.running():
        found = stage.app.start("s", given).result(timeout=15)
    legs = [{"name": "a", "seats": 3}]
    assert found == {"legs": legs, "home": None, "by": {"x": {"name": "b", "seats": 1}}}


# -- inputs -----------------------------------------------------------------------------------------------------


def _typed_tasks(stage: Stage) -> None:
    @stage.app.task(retries=3)
    def whole(x: int) -> Any:
        return x

    @stage.app.task
    def text(x: str) -> Any:
        return x

    @stage.app.task
    def broken(x: float) -> Any:
        return x

    @stage.app.task
    def flag(x: bool) -> Any:
        return x

    @stage.app.task
    def many(x: list) -> Any:  # type: ignore[type-arg]
        return x

    @stage.app.task
    def fields(x: dict) -> Any:  # type: ignore[type-arg]
        return x

    @stage.app.task
    def maybe(x: int | None) -> Any:
        return x

    @stage.app.task
    def anything(x: Any) -> Any:
        return x

    @stage.app.task
    def lenient(x: int = None) -> Any:  # type: ignore[assignment]  # noqa: RUF013 - people write it
        return x

    @stage.app.task
    def preset(x: int = 7) -> Any:
        return x

    @stage.app.task
    def pair(x: int = 1, y: str = "b") -> Any:
        return [x, y]


FITTING = [
    ("whole", 3, 3),
    ("text", "a", "a"),
    ("broken", 1.5, 1.5),
    ("broken", 2, 2),
    ("flag", True, True),
    ("many", [1, "a"], [1, "a"]),
    ("fields", {"a": 1}, {"a": 1}),
    ("maybe", None, None),
    ("maybe", 4, 4),
    ("anything", "abc", "abc"),
    ("lenient", None, None),
    ("preset", None, 7),
    ("pair", None, [1, "b"]),
    ("pair", {"y": "c"}, [1, "c"]),
]
UNFIT = [
    ("whole", "abc", "task 'whole': 'x' does not fit int: Expected `int`, got `str`"),
    ("whole", None, "task 'whole': 'x' does not fit int"),
    ("text", 1, "task 'text': 'x' does not fit str"),
    ("broken", "1.5", "task 'broken': 'x' does not fit float"),
    ("flag", 1, "task 'flag': 'x' does not fit bool"),
    ("many", {"a": 1}, "task 'many': 'x' does not fit list"),
    ("fields", [1], "task 'fields': 'x' does not fit dict"),
    ("maybe", "a", "task 'maybe': 'x' does not fit"),
    ("lenient", "a", "task 'lenient': 'x' does not fit"),
    ("pair", {"x": "a"}, "task 'pair': 'x' does not fit int"),
]


@pytest.mark.parametrize(("task", "given", "expected"), FITTING)
def test_inputs_that_fit_are_taken(stage: Stage, task: str, given: Any, expected: Any) -> None:
    _typed_tasks(stage)
    stage.app.deploy_script("return await Task.run(inputs.task, inputs.given)", "s")
    with stage.app.running():
        assert stage.app.start("s", {"task": task, "given": given}).result(timeout=15) == expected


@pytest.mark.parametrize(("task", "given", "said"), UNFIT)
def test_inputs_that_do_not_fit_their_annotation_fail_at_once(
    stage: Stage, task: str, given: Any, said: str
) -> None:
    _typed_tasks(stage)
    stage.app.deploy_script("await Task.run(inputs.task, inputs.given)", "s")
    with stage.app.running():
        ended = stage.app.start("s", {"task": task, "given": given}).wait(timeout=15)
    assert ended.error is not None
    assert said in ended.error.decode()
    assert b'"type":"InvalidInput"' in ended.error


# -- exceptions -------------------------------------------------------------------------------------------------


def _shop(stage: Stage) -> Any:
    @stage.app.task(raises=(SoldOut, Short))
    def buy(name: str) -> None:
        if name == "salt":
            raise Short(name)
        raise SoldOut(name, [1, 2])

    return buy


def test_an_exception_comes_back_with_its_plain_attributes(stage: Stage) -> None:
    buy = _shop(stage)

    @stage.app.workflow
    async def order(name: str) -> Any:
        try:
            await buy(name)
        except SoldOut as error:
            return [error.name, error.left, str(error), hasattr(error, "lock")]
        except Short as error:
            return [error.name, str(error)]

    with stage.app.running():
        assert stage.app.start(order, "tea").result(timeout=15) == ["tea", [1, 2], "tea is sold out", False]
        assert stage.app.start(order, "salt").result(timeout=15) == ["salt", "salt is short"]


def test_an_exception_keeps_its_attributes_through_a_child_and_an_await(stage: Stage) -> None:
    buy = _shop(stage)

    @stage.app.task
    def nod() -> None: ...

    @stage.app.workflow
    async def inner(name: str) -> None:
        await buy(name)

    @stage.app.workflow
    async def outer(name: str) -> Any:
        try:
            await run("inner", name)
        except SoldOut as error:
            await nod()
            return [error.name, str(error)]

    assert inner.name == "inner"
    with stage.app.running():
        assert stage.app.start(outer, "tea").result(timeout=15) == ["tea", "tea is sold out"]


def test_an_exception_keeps_its_attributes_through_a_script(stage: Stage) -> None:
    _shop(stage)
    stage.app.deploy_script(
        'try { await Task.run("buy", "tea") } catch (e) { await Timer.delay(0)\nthrow e }', "s"
    )

    @stage.app.workflow
    async def outer() -> Any:
        try:
            await run("s")
        except SoldOut as error:
            return error.left

    with stage.app.running():
        assert stage.app.start(outer).result(timeout=15) == [1, 2]
