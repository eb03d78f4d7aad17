"""What a worker lacks the code of and another one has: it is offered to others, and tried here ever less often."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event
from typing import Any, cast

import pytest

from dalsegno import App
from dalsegno.adapters.memory import MemoryArchive, MemoryStore
from dalsegno.engine.operations.troubles import StuckReason
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.worker import tokens as releaser
from dalsegno.engine.worker.capabilities import Capabilities, NotRunnableHere, task_offer, version_offer
from dalsegno.engine.worker.directory import LiveWorkers, WorkerInfo, read_info, write_info
from dalsegno.errors import Unavailable
from dalsegno.model.definition import Definition
from dalsegno.model.token import Lease
from dalsegno.ports.ledger import Ledger, WorkerView
from dalsegno.testing.clock import FakeClock
from tests.engine.broken_steps import ELSEWHERE, NOT_HERE, break_steps, noting_pauses
from tests.engine.gates import gated, let_pass
from tests.scenarios.documents import echo, graph
from tests.waiting import until

VERSION = Definition("order", 1, "d", "python", b"")


def test_offer_that_nobody_takes_sleeps_every_fourth_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        told: list[StuckReason] = []
        assert app.engine.worker is not None
        monkeypatch.setattr(app.engine.worker.releaser, "trouble", told.append)
        monkeypatch.setattr(releaser, "OFFERED_PAUSE", 0.05)
        pauses: list[float] = []
        monkeypatch.setattr(releaser, "put_off", noting_pauses(app, pauses))
        app.deploy(graph("a", {"a": echo(1)}))
        break_steps(app, 9, ELSEWHERE, monkeypatch)

        assert app.start("scenario").result(timeout=30) == 1
    assert [trouble.tries for trouble in told] == [1, 2]
    assert pauses == pytest.approx([0.05, 0.1], abs=0.02)
    assert [step.park.attempt for step in gate.passed if step.park is not None] == [1, 1]


def test_worker_tells_its_tasks_and_versions() -> None:
    app = App("memory:")

    @app.task
    async def price(n: int) -> int:
        return n

    @app.workflow
    async def order(n: int) -> int:
        return await price(n)

    with app.running():
        handle = app.start(order, 1)
        assert handle.result(30) == 1
        version = handle.status().definition
        [view] = app.host.call(app.client.stack.ledger.workers())
    assert set(read_info(view.info).offers) == {task_offer("price"), version_offer(version)}


def archive() -> MemoryArchive:
    return MemoryArchive(MemoryStore(), FakeClock())


class Known(LiveWorkers):
    """As if these were the living workers."""

    def __init__(self, *infos: WorkerInfo) -> None:
        self._infos = infos

    async def any(self, wanted: Callable[[WorkerInfo], bool]) -> bool:
        return any(map(wanted, self._infos))


@pytest.mark.parametrize(
    ("infos", "is_there"),
    [
        ((), False),
        ((WorkerInfo(("default",)),), False),
        ((WorkerInfo(("default",), offers=(version_offer("d"),)),), True),
        ((WorkerInfo(("default",), offers=(version_offer("e"), task_offer("d"))),), False),
        ((WorkerInfo(("billing",), offers=(version_offer("d"),)),), False),
        ((WorkerInfo(("billing",)), WorkerInfo(("default", "x"), offers=(version_offer("d"),))), True),
    ],
    ids=["nobody", "no offers", "offered", "something else", "another queue", "the second"],
)
async def test_only_who_serves_the_queue_counts(infos: tuple[WorkerInfo, ...], is_there: bool) -> None:
    elsewhere = Capabilities(Known(*infos), Workflows(), archive())
    if is_there:
        with pytest.raises(
            NotRunnableHere, match="uses 'a', 'b', which the program of this process does not have"
        ):
            await elsewhere.look_for_version(VERSION, frozenset("ba"), "default")
    else:
        await elsewhere.look_for_version(VERSION, frozenset("ba"), "default")


class Roll:
    """The workers that a store knows, or that it does not answer."""

    def __init__(self) -> None:
        self.offers: tuple[str, ...] = ()
        self.away = False
        self.asked = 0

    def now(self) -> float:
        return 100.0

    async def workers(self) -> list[WorkerView]:
        self.asked += 1
        if self.away:
            raise Unavailable("it does not answer")
        info = WorkerInfo(("default",), offers=self.offers)
        return [WorkerView("elsewhere:1", 200.0, 0, write_info(info))]


@pytest.fixture
def roll() -> Roll:
    return Roll()


@pytest.fixture
def elsewhere(roll: Roll) -> Capabilities:
    return Capabilities(LiveWorkers(cast("Ledger", roll)), Workflows(), archive())


async def is_elsewhere(elsewhere: Capabilities) -> bool:
    try:
        await elsewhere.look_for_version(VERSION, frozenset("a"), "default")
    except NotRunnableHere:
        return True
    return False


async def test_that_somebody_has_it_is_remembered_and_that_nobody_has_is_asked_again(
    roll: Roll, elsewhere: Capabilities
) -> None:
    assert not await is_elsewhere(elsewhere)
    roll.offers = (version_offer("d"),)
    assert [await is_elsewhere(elsewhere) for _ in range(3)] == [True] * 3
    assert roll.asked == 2


async def test_store_that_cannot_be_asked_fails_nothing(roll: Roll, elsewhere: Capabilities) -> None:
    roll.away = True
    with pytest.raises(NotRunnableHere, match="cannot check whether another worker has version:d"):
        await elsewhere.look_for_version(VERSION, frozenset("a"), "default")


def test_join_that_is_offered_again_and_again_still_knows_that_its_branches_have_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        monkeypatch.setattr(releaser, "OFFERED_PAUSE", 0.05)
        app.deploy(DIAMOND)
        fail_joins(app, 5, monkeypatch)

        assert app.start("scenario").result(timeout=30) == 3
    assert len([step for step in gate.passed if step.park is not None]) == 1


DIAMOND = """
name: scenario
nodes:
  - {id: a, type: task, parameters: {task: echo, input: 1}}
  - {id: b, type: task, parameters: {task: echo, input: 2}}
  - {id: c, type: task, parameters: {task: echo, input: 3}, dependencies: [a, b]}
"""


def fail_joins(app: App, times: int, patch: pytest.MonkeyPatch) -> None:
    """The first steps of join tokens are for others."""
    steps = app.engine.steps
    run = steps.step
    tries: list[str] = []

    async def step(lease: Lease, *given: Any) -> object:
        if lease.kind == "join":
            tries.append(lease.reason)
            if len(tries) <= times:
                raise ELSEWHERE
        return await run(lease, *given)

    patch.setattr(steps, "step", step)


def test_task_that_is_called_off_while_it_is_offered_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(let_pass, monkeypatch) as (app, _):
        worker = app.engine.worker
        assert worker is not None
        handing_back, ledger = Event(), app.engine.stack.ledger
        release = ledger.release

        async def slowly(name: str, leases: Any) -> None:
            handing_back.set()
            await asyncio.sleep(0.5)
            await release(name, leases)

        async def elsewhere(*_: object) -> None:
            raise ELSEWHERE

        monkeypatch.setattr(ledger, "release", slowly)
        monkeypatch.setattr(app.tasks, "look_elsewhere", elsewhere)
        app.deploy_script('return await Task.run("nobodys", 1)', "s")
        handle = app.start("s")
        assert handing_back.wait(30)
        handle.cancel()

        until(lambda: handle.status().state == "CANCELLED" and not worker.running, "nothing is left")
        assert not worker._called_off


def test_node_that_this_process_cannot_run_still_knows_that_its_signal_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        app.deploy(graph("a", {"a": {"type": "wait", "parameters": {"resume": "signal", "signal": "go"}}}))
        handle = app.start("scenario")
        until(lambda: any(step.park is not None for step in gate.passed), "it waits")
        break_steps(app, 3, NOT_HERE, monkeypatch)
        handle.signal("go", 7)

        assert handle.result(timeout=30) == 7
