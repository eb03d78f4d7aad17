"""A retry of a script or Python workflow begins with the machine before the turn that failed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from dalsegno import gather, race, signal, sleep, start
from dalsegno.errors import Conflict
from dalsegno.handle import Handle
from dalsegno.ports.node import NodeError
from tests.scenarios.stage import Stage

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])


class Shop:
    """Tasks that count their completed runs, and fail while they are ``broken``."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.done: Counter[str] = Counter()
        self.keys: dict[str, list[str]] = {}
        self.broken: set[str] = set()

        async def charge(ctx, order: Any) -> Any:  # type: ignore[no-untyped-def]
            return self._do("charge", ctx.idempotency_key, order)

        async def ship(ctx, order: Any) -> Any:  # type: ignore[no-untyped-def]
            return self._do("ship", ctx.idempotency_key, order)

        async def mail(ctx, order: Any) -> Any:  # type: ignore[no-untyped-def]
            return self._do("mail", ctx.idempotency_key, order)

        async def slow(ctx, order: Any) -> Any:  # type: ignore[no-untyped-def]
            await stage.door("slow").passing(ctx.idempotency_key)
            return self._do("slow", ctx.idempotency_key, order)

        self.charge, self.ship, self.mail, self.slow = map(stage.app.task, (charge, ship, mail, slow))

    def _do(self, name: str, key: str, order: Any) -> Any:
        self.keys.setdefault(name, []).append(key)
        if name in self.broken:
            raise NodeError(f"{name} is broken", code="BROKEN")
        self.done[name] += 1
        return f"{name} {order}"


@pytest.fixture
def shop(stage: Stage) -> Shop:
    return Shop(stage)


def failed(stage: Stage, handle: Handle) -> Handle:
    ended = stage.end_of(handle)
    assert ended.state == "FAILED", (ended.state, ended.output)
    return handle


def retried(stage: Stage, handle: Handle, **options: Any) -> Any:
    again = stage.app.host.call(stage.app.client.rerun(handle.id, **options))
    return stage.end_of(stage.app.handle(again))


def bought(stage: Stage, shop: Shop, language: str) -> Handle:
    if language == "script":
        return stage.start_script(
            'let paid = await Task.run("charge", 7)\n'
            'let sent = await Task.run("ship", 7)\n'
            'let told = await Task.run("mail", 7)\n'
            "return [paid, sent, told]"
        )

    @stage.app.workflow
    async def order(number: int) -> list[str]:
        paid = await shop.charge(number)
        sent = await shop.ship(number)
        told = await shop.mail(number)
        return [paid, sent, told]

    return stage.app.start(order, 7)


@LANGUAGES
@pytest.mark.parametrize("broken", ["charge", "ship", "mail"])
def test_what_has_completed_does_not_run_again(stage: Stage, shop: Shop, language: str, broken: str) -> None:
    shop.broken = {broken}
    first = failed(stage, bought(stage, shop, language))
    shop.broken = set()

    again = retried(stage, first)

    assert (again.state, again.output) == ("COMPLETED", ["charge 7", "ship 7", "mail 7"])
    assert shop.done == {"charge": 1, "ship": 1, "mail": 1}
    assert len(set(shop.keys[broken])) == 2
    view = again.handle.status()
    assert (view.parent, view.relation) == (first.id, "retry")
    assert first.status().state == "FAILED"


@LANGUAGES
def test_a_retry_that_fails_can_be_retried_and_an_execution_more_than_once(
    stage: Stage, shop: Shop, language: str
) -> None:
    shop.broken = {"ship", "mail"}
    first = failed(stage, bought(stage, shop, language))
    second = retried(stage, first)
    assert second.state == "FAILED"
    shop.broken = {"mail"}
    third = retried(stage, second.handle)
    assert third.state == "FAILED"
    shop.broken = set()

    again, other = retried(stage, third.handle), retried(stage, first)

    assert again.output == other.output == ["charge 7", "ship 7", "mail 7"]
    assert shop.done == {"charge": 1, "ship": 2, "mail": 2}
    assert again.handle.status().parent == third.id


@LANGUAGES
def test_a_retry_from_the_start_runs_everything(stage: Stage, shop: Shop, language: str) -> None:
    shop.broken = {"ship"}
    first = failed(stage, bought(stage, shop, language))
    shop.broken = set()
    again = retried(stage, first, from_start=True)
    assert (again.state, shop.done["charge"]) == ("COMPLETED", 2)


@LANGUAGES
def test_one_failed_of_several_is_asked_again_and_a_pending_one_awaited(
    stage: Stage, shop: Shop, language: str
) -> None:
    shop.broken = {"ship"}
    if language == "script":
        first = stage.start_script(
            'let done = Task.run("charge", 1)\nawait done\n'
            'return await Promise.all([done, Task.run("slow", 1), Task.run("ship", 1)])'
        )
    else:

        @stage.app.workflow
        async def several() -> list[str]:
            done = shop.charge(1)
            await done
            return await gather(done, shop.slow(1), shop.ship(1))

        first = stage.app.start(several)
    failed(stage, first)
    stage.until_comers(first, "slow")
    shop.broken = set()
    again = [stage.app.handle(stage.app.host.call(stage.app.client.rerun(first.id))) for _ in range(2)]
    for one in again:
        stage.until_event(one, "TaskCompleted", "ship")
        assert any("slow" in wait.sentence for wait in one.why()), one.why()
    stage.door("slow").open()

    for one in again:
        assert stage.end_of(one).output == ["charge 1", "slow 1", "ship 1"]
    assert shop.done == {"charge": 1, "slow": 1, "ship": 2}


@LANGUAGES
def test_calls_of_the_failed_turn_are_taken_up(stage: Stage, shop: Shop, language: str) -> None:
    """Twice: the retry fails at the same place, and its retry takes them up as well."""
    bug = [True]

    async def stock(n: int) -> bool:
        return bug[0]

    stock_task = stage.app.task(stock)
    if language == "script":
        first = stage.start_script(
            'await Task.run("mail", 1)\n'
            'let paid = Task.run("charge", 1)\nlet more = Task.run("charge", 2)\nlet same = Task.run("charge", 1)\n'
            "let x = Inputs.bug.now\n"
            "return [await paid, await more, await same]",
            {},
        )
        failed(stage, first)
        second = retried(stage, first)
        assert second.state == "FAILED"
        assert shop.done["charge"] == 3
        return
    fails = [True]

    @stage.app.workflow
    async def careless() -> list[str]:
        await stock_task(1)
        paid, more, same = shop.charge(1), shop.charge(2), shop.charge(1)
        if fails[0]:
            raise ValueError("a bug")
        return [await paid, await more, await same]

    first = failed(stage, stage.app.start(careless))
    second = retried(stage, first)
    assert second.state == "FAILED"
    fails[0] = False
    third = retried(stage, second.handle)
    assert third.output == ["charge 1", "charge 2", "charge 1"]
    assert shop.done["charge"] == 3
    assert stage.app is not None


@LANGUAGES
def test_a_signal_and_a_timer_belong_to_the_failed_turn_again(
    stage: Stage, shop: Shop, language: str
) -> None:
    shop.broken = {"ship"}
    if language == "script":
        first = stage.start_script(
            'let timer = Timer.delay("60s")\n'
            'let said = await Signal.next("go")\n'
            'await Task.run("ship", said)\n'
            'let more = await Signal.next("go")\n'
            "await timer\n"
            "return [said, more]"
        )
    else:

        @stage.app.workflow
        async def told() -> list[str]:
            timer = sleep("60s")
            said = await signal("go")
            await shop.ship(said)
            more = await signal("go")
            await timer
            return [said, more]

        first = stage.app.start(told)
    stage.until_event(first, "Suspended", "signal go")
    first.signal("go", "a")
    first.signal("go", "b")
    failed(stage, first)
    shop.broken = set()
    again = stage.app.handle(stage.app.host.call(stage.app.client.rerun(first.id)))
    stage.until_event(again, "Suspended", "timer")
    stage.pass_time(60)
    assert stage.end_of(again).output == ["a", "b"]


@LANGUAGES
def test_a_failed_child_goes_on_from_its_own_failure(stage: Stage, shop: Shop, language: str) -> None:
    shop.broken = {"ship"}
    if language == "script":
        stage.app.deploy_script('await Task.run("charge", 1)\nreturn await Task.run("ship", 1)', "child")
        first = stage.start_script(
            'let a = await Task.run("mail", 1)\nlet b = await Workflow.run("child", {})\nreturn [a, b]'
        )
    else:

        @stage.app.workflow
        async def child() -> str:
            await shop.charge(1)
            return await shop.ship(1)

        @stage.app.workflow
        async def parent() -> list[str]:
            told = await shop.mail(1)
            return [told, await child()]

        first = stage.app.start(parent)
    failed(stage, first)
    shop.broken = set()
    again = retried(stage, first)
    assert again.output == ["mail 1", "ship 1"]
    assert shop.done == {"mail": 1, "charge": 1, "ship": 1}


@LANGUAGES
def test_a_failed_race_is_asked_again(stage: Stage, shop: Shop, language: str) -> None:
    shop.broken = {"ship"}
    if language == "script":
        first = stage.start_script(
            'await Task.run("charge", 1)\nreturn await Promise.race([Task.run("slow", 1), Task.run("ship", 1)])'
        )
    else:

        @stage.app.workflow
        async def racing() -> str:
            await shop.charge(1)
            return await race(shop.slow(1), shop.ship(1))

        first = stage.app.start(racing)
    failed(stage, first)
    shop.broken = set()
    assert retried(stage, first).output == "ship 1"
    assert shop.done["charge"] == 1


def test_a_pending_task_that_fails_afterwards_is_asked_again(stage: Stage, shop: Shop) -> None:
    shop.broken = {"ship", "slow"}
    first = stage.start_script(
        'await Task.run("charge", 1)\nreturn await Promise.all([Task.run("slow", 1), Task.run("ship", 1)])'
    )
    failed(stage, first)
    stage.until_comers(first, "slow")
    stage.door("slow").open()
    stage.until("the task has failed", first, lambda: len(shop.keys.get("slow", [])) == 1)
    shop.broken = set()
    assert retried(stage, first).output == ["slow 1", "ship 1"]
    assert shop.done == {"charge": 1, "slow": 1, "ship": 1}


def test_error_handling_that_has_run_is_not_run_again(stage: Stage, shop: Shop) -> None:
    shop.broken = {"ship"}

    @stage.app.workflow
    async def saga() -> None:
        await shop.charge(1)
        try:
            await shop.ship(1)
        except Exception:
            await shop.mail("refund")
            raise

    first = failed(stage, stage.app.start(saga))
    shop.broken = set()
    with pytest.raises(Conflict, match="its error handling has already run"):
        retried(stage, first)
    assert retried(stage, first, from_start=True).state == "COMPLETED"


def test_settled_failures_are_not_asked_again(stage: Stage, shop: Shop) -> None:
    shop.broken = {"ship"}
    bug = [True]

    @stage.app.workflow
    async def lenient() -> int:
        found = await gather(shop.charge(1), shop.ship(1), return_exceptions=True)
        if bug[0]:
            raise ValueError("a bug")
        return len(found)

    first = failed(stage, stage.app.start(lenient))
    shop.broken, bug[0] = set(), False
    assert retried(stage, first).output == 2
    assert (shop.done, len(shop.keys["ship"])) == ({"charge": 1}, 1)


def test_a_detached_workflow_of_the_failed_turn_is_not_started_again(stage: Stage, shop: Shop) -> None:
    bug = [True]

    @stage.app.workflow
    async def told() -> str:
        return await shop.mail(1)

    @stage.app.workflow
    async def starter() -> str:
        await shop.charge(1)
        start(told)
        if bug[0]:
            raise ValueError("a bug")
        return "started"

    first = failed(stage, stage.app.start(starter))
    bug[0] = False
    again = retried(stage, first)
    assert again.output == "started"
    stage.until("the detached one has run", first, lambda: shop.done["mail"] == 1)
    assert shop.done == {"charge": 1, "mail": 1}


def test_a_key_that_the_program_gave_stays(stage: Stage, shop: Shop) -> None:
    shop.broken = {"ship"}
    first = stage.start_script(
        'await Task.run("charge", 1)\nreturn await Task.with({key: "mine"}).run("ship", 1)'
    )
    failed(stage, first)
    shop.broken = set()
    assert retried(stage, first).output == "ship 1"
    assert set(shop.keys["ship"]) == {"mine"}


def test_a_failed_call_with_a_large_input_is_refused_before_anything_starts(stage: Stage, shop: Shop) -> None:
    shop.broken = {"ship"}
    first = stage.start_script(
        'await Task.run("charge", 1)\nreturn await Task.run("ship", "x".repeat(90000))'
    )
    failed(stage, first)
    shop.broken = set()
    with pytest.raises(Conflict, match="its input is large"):
        retried(stage, first)
    assert retried(stage, first, from_start=True).state == "COMPLETED"


@LANGUAGES
def test_large_variables_and_results_come_along(stage: Stage, shop: Shop, language: str) -> None:
    """They are blobs of the failed execution; pruning those of earlier turns must leave the results."""
    size = 400_000
    shop.broken = {"ship"}
    if language == "script":
        first = stage.start_script(
            f'let own = "y".repeat({size})\n'
            f'let late = Task.run("echo", "x".repeat({size}))\n'
            "await late\n"
            'await Task.run("ship", 1)\n'
            'own = own + "z"\n'
            'await Task.run("mail", 1)\n'
            "return own.length + (await late).length"
        )
    else:

        async def same(text: str) -> str:
            return text

        echo = stage.app.task(same)

        @stage.app.workflow
        async def large() -> int:
            own, late = "y" * size, echo("x" * size)
            await late
            await shop.ship(1)
            own += "z"
            await shop.mail(1)
            return len(own) + len(await late)

        first = stage.app.start(large)
    failed(stage, first)
    shop.broken = set()
    again = retried(stage, first)
    assert (again.state, again.output) == ("COMPLETED", 2 * size + 1), again.error
