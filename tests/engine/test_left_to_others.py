"""What a worker lacks the code of and another one has: it is offered to others, and tried here ever less often."""

from __future__ import annotations

import pytest

from dalsegno import App
from dalsegno.engine import letting_go
from dalsegno.engine.elsewhere import Elsewhere, RunsElsewhere, task_offer, version_offer
from dalsegno.engine.serving import Colleagues
from dalsegno.engine.troubles import Trouble
from dalsegno.engine.worker_info import WorkerInfo, read_info
from tests.engine.gates import gated, let_pass
from tests.engine.test_worker_refusals import break_steps, flaky, leased, noting_pauses
from tests.scenarios.documents import echo, graph, task

ELSEWHERE = RunsElsewhere("another worker has it")


def test_offer_that_nobody_takes_sleeps_every_other_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(let_pass, monkeypatch) as (app, gate):
        told: list[Trouble] = []
        assert app.engine.worker is not None
        monkeypatch.setattr(app.engine.worker.letting_go, "trouble", told.append)
        monkeypatch.setattr(letting_go, "OFFERED_PAUSE", 0.05)
        pauses: list[float] = []
        monkeypatch.setattr(letting_go, "put_off", noting_pauses(app, pauses))
        app.deploy(graph("a", {"a": echo(1)}))
        break_steps(app, 5, ELSEWHERE, monkeypatch)

        assert app.start("scenario").result(timeout=30) == 1
    assert [trouble.tries for trouble in told] == [1, 2]
    assert pauses == pytest.approx([0.05, 0.1], abs=0.02)
    assert [step.park.attempt for step in gate.passed if step.park is not None] == [1, 1]


def test_offer_uses_up_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    with gated(let_pass, monkeypatch) as (app, _):
        attempts = flaky(app, failures=2)
        app.deploy(graph("a", {"a": task("flaky")}))
        break_steps(app, 3, ELSEWHERE, monkeypatch)

        assert app.start("scenario").result(timeout=30) == "done"
    assert attempts == [1, 2, 3]


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


class Known(Colleagues):
    """As if these were the living workers."""

    def __init__(self, *infos: WorkerInfo) -> None:
        self._infos = infos

    async def look(self) -> tuple[WorkerInfo, ...]:
        return self._infos


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
    elsewhere = Elsewhere(Known(*infos))
    if is_there:
        with pytest.raises(RunsElsewhere, match="no 'a', 'b', which this version of the workflow uses"):
            await elsewhere.look_for_version("d", frozenset("ba"), leased("t"))
    else:
        await elsewhere.look_for_version("d", frozenset("ba"), leased("t"))
