"""Python workflows on every stack."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal

import pytest

from dalsegno import TaskError, WorkflowFailed, first, gather, race, run, signal, sleep, start, timeout
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
