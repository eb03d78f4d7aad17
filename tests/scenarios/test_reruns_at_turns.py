"""A rerun at a turn begins with the machine as it was then: what has completed since is known, the rest runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dalsegno import checkpoint, gather, race, signal, sleep
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.errors import Conflict, InvalidInput, KeyReused, NotFound
from dalsegno.handle import Handle
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Ended, Stage

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows that say nothing keep their last turns."""
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")


class Calls:
    def __init__(self, stage: Stage) -> None:
        self.made: list[Any] = []
        self.broken = False

        async def add(number: int) -> int:
            self.made.append(number)
            if self.broken and number > 2:
                raise ValueError("broken")
            return number + 1

        async def text(size: int) -> str:
            self.made.append(size)
            return "x" * size

        self.add, self.text = stage.app.task(add), stage.app.task(text)


@pytest.fixture
def calls(stage: Stage) -> Calls:
    return Calls(stage)


def again(stage: Stage, handle: Handle, at: int | str, key: str | None = None, **asked: Any) -> Ended:
    turn = TurnAsked(at, asked.get("variables", {}), asked.get("answers", {}))
    made = stage.app.host.call(stage.app.client.rerun(handle.id, key=key, turn=turn))
    return stage.end_of(stage.app.handle(made))


def preview(stage: Stage, handle: Handle, at: int | str) -> Any:
    return stage.app.host.call(stage.app.client.preview_retry(handle.id, turn=TurnAsked(at)))


def refusal(stage: Stage, handle: Handle, kind: type[Exception], at: int | str, **asked: Any) -> str:
    with pytest.raises(kind) as raised:
        again(stage, handle, at, **asked)
    return str(raised.value)


def counting(stage: Stage, calls: Calls, language: str, rounds: int = 5) -> Handle:
    if language == "script":
        return stage.start_script(
            f"let total = 0\nfor (let i = 0; i < {rounds}; i++) {{\n  if (i == 3) {{ checkpoint('fourth') }}\n"
            '  total = await Task.run("add", total)\n}\nreturn total'
        )

    @stage.app.workflow
    async def count(rounds: int) -> int:
        total = 0
        for i in range(rounds):
            if i == 3:
                checkpoint("fourth")
            total = await calls.add(total)
        return total

    return stage.app.start(count, rounds)


@LANGUAGES
def test_what_later_turns_called_runs_again(stage: Stage, calls: Calls, language: str) -> None:
    first = counting(stage, calls, language)
    assert first.result(timeout=30) == 5

    for at, made in ((1, [1, 2, 3, 4]), (3, [3, 4]), ("fourth", [4]), (5, [])):
        plan = preview(stage, first, at)
        assert (plan.again, len(plan.known), plan.later) == ((), 1, ("add",) * len(made))
        calls.made.clear()
        ended = again(stage, first, at)
        assert (ended.state, ended.output, calls.made) == ("COMPLETED", 5, made)
        view = ended.handle.status()
        assert (view.relation, view.parent) == ("rerun", first.id)
    assert stage.end_of(first).output == 5


@LANGUAGES
def test_variables_and_answers_are_given(stage: Stage, calls: Calls, language: str) -> None:
    first = counting(stage, calls, language)
    first.result(timeout=30)

    assert again(stage, first, 2, answers={"add": 100}).output == 103
    assert again(stage, first, 2, answers={"p1": 100}).output == 103
    started = again(stage, first, 5, answers={"p4": 77}, variables={"total": -1})
    assert started.output == 77
    facts = stage.app.host.call(stage.app.client.all_events(started.id))[0].data
    assert facts is not None
    assert b'"turn":5' in facts
    assert b'"answered":["p4"]' in facts
    assert b'"set":{"total":-1}' in facts

    said = refusal(stage, first, InvalidInput, 2, variables={"sum": 1})
    assert "has no variable 'sum'; it has i," in said
    assert "those are add (p1)" in refusal(stage, first, InvalidInput, 2, answers={"p7": 1})
    assert "kept are the turns 1 to 5" in refusal(stage, first, NotFound, 9)


@LANGUAGES
def test_failed_execution_branches_off_before_its_failure(stage: Stage, calls: Calls, language: str) -> None:
    calls.broken = True
    first = counting(stage, calls, language)
    assert stage.end_of(first).state == "FAILED"
    assert calls.made == [0, 1, 2, 3]

    calls.broken = False
    calls.made.clear()
    assert preview(stage, first, 4).again == ("add (p3)",)
    assert again(stage, first, 4).output == 5
    assert calls.made == [3, 4]
    assert again(stage, first, 2).output == 5


def joined(stage: Stage, calls: Calls, language: str) -> Handle:
    if language == "script":
        return stage.start_script(
            'let one = Task.run("add", 10), two = Task.run("text", 9000)\n'
            'let timer = Timer.delay("1h")\nlet got = await Signal.next("go")\n'
            "let first = await Promise.race([one, timer])\nlet all = await Promise.all([one, two])\n"
            'await Timer.delay("2h")\nreturn [got, first, all[0], all[1].length]'
        )

    @stage.app.workflow
    async def join() -> list[Any]:
        one, two, timer = calls.add(10), calls.text(9000), sleep("1h")
        got = await signal("go")
        first = await race(one, timer)
        both = await gather(one, two)
        await sleep("2h")
        return [got, first, both[0], len(both[1])]

    return stage.app.start(join)


@LANGUAGES
def test_completed_signals_and_timers_are_known_in_their_order(
    stage: Stage, calls: Calls, language: str
) -> None:
    first = joined(stage, calls, language)
    stage.until_event(first, "TaskCompleted", "add")
    stage.until_event(first, "TaskCompleted", "text")
    first.signal("go", {"by": "ann"})
    turns: Callable[[], list[Any]] = lambda: stage.app.host.call(stage.app.client.turns(first.id))  # noqa: E731
    stage.until("the last wait", first, lambda: turns() and turns()[-1].awaits == "timer")
    stage.pass_time(7201)
    expected = [{"by": "ann"}, 11, 11, 9000]
    assert stage.end_of(first).output == expected

    calls.made.clear()
    for record in turns():
        ended = stage.app.host.call(stage.app.client.rerun(first.id, turn=TurnAsked(record.turn)))
        handle = stage.app.handle(ended)
        if record.turn < turns()[-1].turn:
            stage.until_event(handle, "Suspended", "timer")
            stage.pass_time(7201)
        assert stage.end_of(handle).output == expected
    assert calls.made == []


@ONE_STACK
def test_running_executions_graphs_and_those_that_clean_up_are_refused(stage: Stage, calls: Calls) -> None:
    waiting = stage.start_script('try { await Signal.next("never") } finally { await Task.run("add", 1) }')
    stage.until_event(waiting, "Suspended", "signal never")
    assert "has not ended (RUNNING); cancel it first" in refusal(stage, waiting, Conflict, 1)
    waiting.cancel()
    stage.end_of(waiting)
    assert "had been asked to end by turn 2" in refusal(stage, waiting, Conflict, 2)
    graph = stage.run(
        {"name": "g", "nodes": [{"id": "a", "type": "task", "parameters": {"task": "echo"}}], "edges": []}
    )
    assert "only scripts and Python workflows are rerun at a turn" in refusal(
        stage, graph.handle, InvalidInput, 1
    )


@ONE_STACK
def test_one_key_is_one_branch(stage: Stage, calls: Calls) -> None:
    first = counting(stage, calls, "script")
    first.result(timeout=30)
    one = again(stage, first, 2, key="k")
    assert again(stage, first, 2, key="k").id == one.id
    with pytest.raises(KeyReused):
        again(stage, first, 3, key="k")


@ONE_STACK
def test_branch_goes_on_with_mended_code(stage: Stage, calls: Calls) -> None:
    first = stage.start_script(
        'let total = await Task.run("add", 0)\ntotal = await Task.run("add", total)\nreturn total.wrong.field',
        name="sums",
    )
    assert stage.end_of(first).state == "FAILED"
    stage.app.deploy_script(
        'let total = await Task.run("add", 0)\ntotal = await Task.run("add", total)\nreturn total', "sums"
    )
    made = stage.app.host.call(stage.app.client.rerun(first.id, version="latest", turn=TurnAsked(1)))
    assert stage.end_of(stage.app.handle(made)).output == 2
