"""Several worker processes on one store deliver the same things: every history tells each of them once.

Each parent has a child, a timer, a signal and a question; the signal is sent twice with one id, and the question is
answered by two callers at once. ``make test`` starts 40 parents, ``make chaos`` 200.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.engine.client import Client
from dalsegno.engine.operations.approvals import Approval
from dalsegno.errors import Conflict
from dalsegno.testing.histories import Asked
from tests.chaos.counting import check_histories
from tests.chaos.processes import Workers
from tests.scenarios.children import workflow
from tests.scenarios.documents import graph, wait
from tests.scenarios.stage import all_events

SHORT, LONG = 40, 200
PATIENCE = 120.0
CHILD = 'return await Task.run("step", inputs.n)'
SCRIPT = """
const given = await Workflow.run("child", {n: inputs.n})
await Timer.delay(0.02)
const go = await Signal.when("go")
const answer = await approval({message: "go on?"})
return [given, go, answer.decision]
"""
GRAPH = graph(
    "c > w > s > ask",
    {
        "c": workflow("child", {"n": "{{ $trigger.n }}"}),
        "w": wait(0.02),
        "s": {"type": "wait", "parameters": {"resume": "signal", "signal": "go"}},
        "ask": {"type": "approval", "parameters": {"message": "go on?"}},
    },
    name="graph",
)
ONCE = {
    "script": {
        "ExecutionStarted": 1, "ChildStarted": 1, "ChildEnded": 1, "TimerFired": 1, "SignalReceived": 2,
        "NodeWaiting": 1, "TaskCompleted": 1, "ExecutionCompleted": 1,
    },
    "graph": {
        "ExecutionStarted": 1, "ChildStarted": 1, "ChildEnded": 1, "NodeWaiting": 4, "SignalReceived": 2,
        "NodeCompleted": 4, "ExecutionCompleted": 1,
    },
}  # fmt: skip
"""How often each kind is told of one parent: the answer to its question is a signal, too."""
BY_THE_WAY = frozenset(("Suspended", "NodeStarted", "TaskStarted"))
"""How often these come depends on who is quicker."""


async def start(client: Client, parents: int) -> dict[str, str]:
    """Kinds by execution. All at once: the more is owed, the more often two processes deliver the same."""
    kinds = [kind for _ in range(parents // 2) for kind in ONCE]
    names = await asyncio.gather(*[client.start(kind, {"n": n}) for n, kind in enumerate(kinds)])
    return dict(zip(names, kinds, strict=True))


async def talk(client: Client, executions: Sequence[str]) -> None:
    """Sends the parents what they wait for, all of it twice, until nothing is asked or owed any more."""
    await asyncio.gather(*[client.signal(name, "go", 1, "once") for name in executions * 2])
    left = set(executions)
    async with asyncio.timeout(PATIENCE):
        while left:
            asked = await client.pending_approvals()
            await asyncio.gather(*[answer(client, each) for each in asked])
            left -= {each.execution for each in asked}
            await asyncio.sleep(0.1)
        while await client.stack.ledger.outbox(1):  # noqa: ASYNC110 - other processes deliver
            await asyncio.sleep(0.01)


async def answer(client: Client, asked: Approval) -> None:
    """One of two answers is accepted."""
    answers = await asyncio.gather(
        *[client.decide(asked.execution, asked.node, "approved", by=by) for by in ("ann", "bob")],
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers if answer is not None] == [Conflict]


def run(url: str, processes: int, parents: int) -> None:
    app = App(url)
    with Workers(url) as workers:
        for _ in range(processes):
            workers.start()
        app.deploy_script(CHILD, "child")
        app.deploy_script(SCRIPT, "script")
        app.deploy(GRAPH)
        kinds = app.host.call(start(app.client, parents))
        app.host.call(talk(app.client, list(kinds)))
        for name in kinds:
            app.handle(name).wait(PATIENCE)
        check_histories(app, {name: Asked(("once",)) for name in kinds})
        for name, kind in kinds.items():
            told = Counter(each.kind for each in all_events(app.handle(name)) if each.kind not in BY_THE_WAY)
            assert told == ONCE[kind], name
    app.close()


def test_three_processes_on_postgres_tell_everything_once(postgres_url: str) -> None:
    run(postgres_url, processes=3, parents=SHORT)


def test_two_processes_on_sqlite_tell_everything_once(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path}/histories.db", processes=2, parents=SHORT)


@pytest.mark.chaos
def test_three_processes_on_postgres_tell_everything_once_of_many(postgres_url: str) -> None:
    run(postgres_url, processes=3, parents=LONG)


@pytest.mark.chaos
def test_two_processes_on_sqlite_tell_everything_once_of_many(tmp_path: Path) -> None:
    run(f"sqlite:///{tmp_path}/histories.db", processes=2, parents=LONG)
