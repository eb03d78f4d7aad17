"""Python workflows on every stack."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import itertools
import threading
from collections.abc import Iterable, Sequence

import pytest

from dalsegno import (
    NodeContext,
    TaskError,
    WorkflowFailed,
    first,
    gather,
    race,
    run,
    signal,
    sleep,
    start,
    timeout,
)
from tests.scenarios.stage import Stage


@dataclasses.dataclass
class Order:
    id: int
    total: decimal.Decimal
    placed: dt.date


class OutOfStock(Exception):
    pass


def test_arguments_and_results_are_typed_across_tasks(stage: Stage) -> None:
    @stage.app.task
    async def price(order: Order) -> decimal.Decimal:
        assert isinstance(order, Order)
        return order.total * 2

    @stage.app.workflow
    async def checkout(order: Order, factor: int = 1) -> decimal.Decimal:
        doubled = await price(order)
        assert isinstance(doubled, decimal.Decimal)
        return doubled * factor

    order = Order(1, decimal.Decimal("10.50"), dt.date(2026, 1, 2))
    assert stage.app.start(checkout, order, factor=3).result(10) == decimal.Decimal("63.00")


def test_numbers_stay_what_they_are_on_every_way(stage: Stage) -> None:
    @stage.app.task
    def half(value: float) -> float:
        assert type(value) is int or value != int(value) or value == 6.0
        return value // 2 if type(value) is int else value / 2

    @stage.app.workflow
    async def child(value: float) -> float:
        return value

    @stage.app.workflow
    async def numbers(whole: float, real: float, more: Iterable[float]) -> list[str]:
        kept = [whole, real, *more]
        found = [await half(whole), await half(real), await child(whole), await child(real)]
        return [repr(each) for each in (*kept, *found)]

    @stage.app.workflow
    async def whole(value: float) -> float:
        return value

    found = stage.app.start(numbers, 6, 6.0, (1, 2.0)).result(10)
    assert found == ["6", "6.0", "1", "2.0", "3", "3.0", "6", "6.0"]
    assert repr(stage.app.start(whole, 6).result(10)) == "6"
    assert repr(stage.app.start(whole, 6.0).result(10)) == "6.0"
    assert repr(stage.app.start("whole", 6.0).result(10)) == "6.0"


def test_star_parameters_of_workflows_and_tasks(stage: Stage) -> None:
    @stage.app.task
    def joined(*words: str, sep: str = "-", **marks: int) -> str:
        return sep.join([*words, *(f"{name}{value}" for name, value in marks.items())])

    @stage.app.task
    def total(*numbers: decimal.Decimal) -> decimal.Decimal:
        return sum(numbers, decimal.Decimal(0))

    @stage.app.task
    def named(**marks: int) -> int:
        return sum(marks.values())

    @stage.app.task
    def placed(first: int, second: int = 2, /, *rest: int, ctx: NodeContext) -> list[int]:
        assert ctx.execution_id
        return [first, second, *rest]

    @stage.app.workflow
    async def listed(*days: dt.date, **options: int) -> list[object]:
        return [
            [day.year for day in days],
            options,
            await joined("a", "b", x=1),
            await joined("a", sep="+"),
            str(await total(decimal.Decimal("1.5"), decimal.Decimal(2))),
            str(await total()),
            await named(a=1),
            await named(),
            await placed(1),
            await placed(1, 3, 4, 5),
        ]

    expected = ["a-b-x1", "a", "3.5", "0", 1, 0, [1, 2], [1, 3, 4, 5]]
    day = dt.date(2026, 1, 2)
    assert stage.app.start(listed, day, day, more=1).result(10) == [[2026, 2026], {"more": 1}, *expected]
    assert stage.app.start("listed", days=["2025-01-02"], more=2).result(10) == [
        [2025],
        {"more": 2},
        *expected,
    ]
    assert stage.app.start(listed).result(10) == [[], {}, *expected]


class Basket:
    def __init__(self) -> None:
        self.items: list[str] = []
        self.owner = self


class Connection:
    """Nothing that could be stored by itself."""

    def __init__(self, url: str) -> None:
        self.url, self.lock = url, threading.Lock()


def test_instances_and_registered_types_live_across_awaits(stage: Stage) -> None:
    stage.app.register_type(Connection, lambda connection: connection.url, Connection)

    @stage.app.workflow
    async def collecting(names: Sequence[str]) -> list[object]:
        basket, connection = Basket(), Connection("db")
        numbers = itertools.count(1)
        for name in itertools.chain(names, ["end"]):
            await signal("next")
            basket.items.append(f"{next(numbers)} {name}")
        return [basket.items, basket.owner is basket, connection.url]

    handle = stage.app.start(collecting, ["a", "b"])
    for _ in range(3):
        handle.signal("next")
    assert handle.result(10) == [["1 a", "2 b", "3 end"], True, "db"]


def test_objects_keep_their_identity_across_awaits(stage: Stage) -> None:
    @stage.app.task
    async def nothing() -> None:
        return None

    @stage.app.workflow
    async def aliasing() -> list[bool]:
        a = [1]
        b = {"same": a}
        await nothing()
        b["same"].append(2)
        return [a is b["same"], a == [1, 2]]

    assert stage.app.start(aliasing).result(10) == [True, True]


def test_exceptions_of_tasks_arrive_as_what_they_are(stage: Stage) -> None:
    @stage.app.task
    async def reserve(item: str) -> None:
        raise OutOfStock(item)

    @stage.app.task
    async def divide(n: int) -> float:
        return 1 / n

    @stage.app.workflow
    async def careful() -> list[str]:
        seen = []
        try:
            await reserve("tea")
        except OutOfStock as error:
            seen.append(f"{type(error).__name__} {error.args[0]}")
        try:
            await divide(0)
        except ArithmeticError as error:
            seen.append(type(error).__name__)
        return seen

    assert stage.app.start(careful).result(10) == ["OutOfStock tea", "ZeroDivisionError"]


def test_an_unknown_exception_is_a_task_error_with_its_type(stage: Stage) -> None:
    def hidden() -> type[Exception]:
        class Secret(Exception):
            pass

        return Secret

    @stage.app.task
    async def fails() -> None:
        raise hidden()("psst")

    @stage.app.workflow
    async def catching() -> str:
        try:
            await fails()
        except TaskError as error:
            return error.type
        return "nothing"

    assert stage.app.start(catching).result(10) == "Secret"


def test_gather_first_and_race(stage: Stage) -> None:
    @stage.app.task
    async def give(value: int) -> int:
        if value < 0:
            raise ValueError(value)
        return value

    @stage.app.task
    async def never(ctx) -> None:  # type: ignore[no-untyped-def]
        await stage.door("never").passing(ctx.idempotency_key)

    @stage.app.workflow
    async def joins() -> list:
        all_of_them = await gather(*[give(n) for n in range(5)])
        won = await first(give(-1), give(7))
        quick = await race(give(8), never())
        both = await gather(give(-2), give(9), return_exceptions=True)
        return [all_of_them, won, quick, [type(one).__name__ for one in both]]

    result = stage.app.start(joins).result(10)
    assert result == [[0, 1, 2, 3, 4], 7, 8, ["ValueError", "int"]]


def test_a_timeout_is_raised_at_the_await_inside_it(stage: Stage) -> None:
    @stage.app.task
    async def never(ctx) -> None:  # type: ignore[no-untyped-def]
        await stage.door("never").passing(ctx.idempotency_key)

    @stage.app.workflow
    async def patient() -> str:
        try:
            async with timeout("1h"):
                await never()
        except TimeoutError:
            return "too late"
        return "in time"

    handle = stage.app.start(patient)
    stage.until_comers(handle, "never")
    stage.pass_time(3600)
    assert handle.result(10) == "too late"


def test_sleep_signal_and_children(stage: Stage) -> None:
    @stage.app.task
    async def double(n: int) -> int:
        return n * 2

    @stage.app.workflow
    async def child(n: int) -> int:
        return await double(n)

    @stage.app.workflow
    async def parent() -> list:
        await sleep("1d")
        answer = await signal("answer")
        own = await child(answer)
        scripted = await run("scripted", {"n": own})
        name = start(child, 1)
        return [own, scripted, len(name)]

    stage.app.deploy_script("return inputs.n + 1", "scripted")
    handle = stage.app.start(parent)
    stage.until_event(handle, "Suspended", "timer")
    stage.pass_time(86400)
    handle.signal("answer", 21)
    assert handle.result(10) == [42, 43, 32]


def test_a_failed_workflow_shows_the_users_own_lines(stage: Stage) -> None:
    @stage.app.workflow
    async def broken(n: int) -> float:
        return 1 / n

    with pytest.raises(WorkflowFailed) as caught:
        stage.app.start(broken, 0).result(10)
    assert caught.value.error["type"] == "ZeroDivisionError"
    assert "test_python_workflows.py" in str(caught.value)
    assert "return 1 / n" in str(caught.value)


def test_cancel_runs_finally(stage: Stage) -> None:
    @stage.app.task
    async def undo() -> None:
        stage.seen.append("undone")

    @stage.app.workflow
    async def saga() -> None:
        try:
            await signal("never")
        finally:
            await undo()

    handle = stage.app.start(saga)
    stage.until_event(handle, "Suspended", "signal never")
    handle.cancel()
    assert stage.end_of(handle).state == "CANCELLED"
    assert stage.seen == ["undone"]


def test_a_graph_and_a_script_start_a_python_workflow(stage: Stage) -> None:
    @stage.app.workflow(name="adder")
    async def adder(a: int, b: int) -> int:
        return a + b

    assert stage.app.start(adder, 1, 2).result(10) == 3
    assert stage.run_script('return await Workflow.run("adder", {a: 20, b: 22})').output == 42


def test_the_picture_shows_line_and_variables(stage: Stage) -> None:
    @stage.app.workflow
    async def waiting() -> None:
        order = {"id": 7}
        await signal("go")
        print(order)  # noqa: T201 - keeps it alive

    handle = stage.app.start(waiting)
    stage.until_event(handle, "Suspended", "signal go")
    seen = handle.picture()
    assert seen is not None
    assert seen.source == 'await signal("go")'
    assert seen.variables["order"] == {"id": 7}


def test_a_single_task_is_an_execution_of_its_own(stage: Stage) -> None:
    @stage.app.task(retries=2)
    def work(a: int, b: int = 1) -> int:
        return a + b

    handle = stage.app.start(work, 1, b=2)
    assert handle.result(10) == 3
    assert handle.status().kind == "task"
