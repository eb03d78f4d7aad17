"""The journal of a machine: which turns of an execution are kept, and what is kept of them."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno import checkpoint, gather, race, signal, sleep
from dalsegno.engine.journal.turn_history import JournaledMachine, TurnRecord
from dalsegno.errors import InvalidInput, NotFound
from dalsegno.handle import Handle
from dalsegno.lang.errors import FlowSyntaxError
from tests.scenarios.conftest import ONE_STACK
from tests.scenarios.stage import Stage

LANGUAGES = pytest.mark.parametrize("language", ["script", "python"])


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows that say nothing keep their last turns."""
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")


def turns(stage: Stage, handle: Handle) -> list[TurnRecord]:
    found: list[TurnRecord] = stage.app.host.call(stage.app.client.turns(handle.id))
    return found


def machine(stage: Stage, handle: Handle, turn: int | str) -> JournaledMachine:
    found: JournaledMachine = stage.app.host.call(stage.app.client.machine_at(handle.id, turn))
    return found


def numbers(stage: Stage, handle: Handle) -> list[int]:
    return [each.turn for each in turns(stage, handle)]


def counted(stage: Stage, language: str, rounds: int, journal: Any = None) -> Handle:
    """Start a workflow that awaits ``rounds`` tasks, one after the other, with a checkpoint before the fourth."""

    async def add(one: int) -> int:
        return one + 1

    task = stage.app.task(add)
    if language == "script":
        head = f"```\njournal: {journal}\n```\n" if journal is not None else ""
        return stage.start_script(
            head + f"let total = 0\nfor (let i = 0; i < {rounds}; i++) {{\n"
            '  if (i == 3) { checkpoint("fourth") }\n'
            '  total = await Task.run("add", total)\n}\nreturn total'
        )

    @stage.app.workflow(journal=journal)
    async def counting(rounds: int) -> int:
        total = 0
        for i in range(rounds):
            if i == 3:
                checkpoint("fourth")
            total = await task(total)
        return total

    return stage.app.start(counting, rounds)


@LANGUAGES
def test_last_turns_of_an_execution_are_kept_and_those_with_a_name(stage: Stage, language: str) -> None:
    handle = counted(stage, language, 45)
    assert handle.result(timeout=30) == 45

    found = turns(stage, handle)
    kept = [each.turn for each in found]
    assert kept[0] == 4
    assert kept[-20:] == list(range(26, 46))
    assert 20 <= len(kept[1:]) <= 30
    assert [each.checkpoint for each in found if each.checkpoint] == ["fourth"]
    assert {each.awaits for each in found} == {"task add"}
    assert not any(each.failed for each in found)
    assert all(each.size > 50 for each in found)
    assert [each.at for each in found] == sorted(each.at for each in found)

    named = machine(stage, handle, "fourth")
    assert (named.turn, named.checkpoint, [task.node for task in named.entry.tasks]) == (4, "fourth", ["add"])
    assert named == machine(stage, handle, 4)
    with pytest.raises(
        NotFound, match=r"has no turn 3; kept are the turns 4, \d+ to 45, and the checkpoints 'fourth'"
    ):
        machine(stage, handle, 3)


@LANGUAGES
@pytest.mark.parametrize("journal", ["all", 15, "off"])
def test_workflow_says_which_turns_are_kept(stage: Stage, language: str, journal: Any) -> None:
    handle = counted(stage, language, 33, journal)
    assert handle.result(timeout=30) == 33

    kept = numbers(stage, handle)
    if journal == "all":
        assert kept == list(range(1, 34))
    elif journal == "off":
        assert kept == []
        with pytest.raises(NotFound, match="journal: off"):
            machine(stage, handle, 3)
    else:
        assert kept[0] == 4
        assert kept[-15:] == list(range(19, 34))
        assert len(kept) <= 26


@ONE_STACK
def test_setting_is_checked_where_it_is_written(stage: Stage) -> None:
    for journal in ("everything", 0, -1, 1.5, True):
        with pytest.raises(InvalidInput, match="the journal cannot be"):

            @stage.app.workflow(journal=journal)  # type: ignore[arg-type]
            async def never() -> None: ...

    with pytest.raises(FlowSyntaxError, match='write "off", "failures", "all"'):
        stage.start_script("```\njournal: sometimes\n```\nreturn 1")


@ONE_STACK
@pytest.mark.parametrize("name", ["", "12", "a\nb", "x" * 201, 5])
def test_name_of_a_checkpoint_is_checked(stage: Stage, name: Any) -> None:
    @stage.app.workflow
    async def naming() -> str:
        try:
            checkpoint(name)
        except ValueError as error:
            return str(error)
        return "accepted"

    assert stage.app.start(naming).result(timeout=10).startswith("checkpoint(): ")


@LANGUAGES
def test_turn_before_a_failure_is_kept(stage: Stage, language: str) -> None:
    async def add(one: int) -> int:
        return one + 1

    task = stage.app.task(add)
    if language == "script":
        handle = stage.start_script(
            'let x = await Task.run("add", 1)\nx = await Task.run("add", x)\nthrow "no"'
        )
    else:

        @stage.app.workflow
        async def failing() -> None:
            x = await task(1)
            x = await task(x)
            raise ValueError("no")

        handle = stage.app.start(failing)
    assert stage.end_of(handle).state == "FAILED"

    assert [(each.turn, each.failed) for each in turns(stage, handle)] == [(1, False), (2, True)]


@LANGUAGES
def test_newest_turn_of_a_waiting_execution_is_its_machine(stage: Stage, language: str) -> None:
    if language == "script":
        handle = stage.start_script('let got = await Signal.next("go")\nawait Timer.delay("1h")\nreturn got')
    else:

        @stage.app.workflow
        async def waiting() -> Any:
            got = await signal("go")
            await sleep("1h")
            return got

        handle = stage.app.start(waiting)
    stage.until("one turn", handle, lambda: numbers(stage, handle) == [1])
    handle.signal("go", {"a": 1})
    stage.until("two turns", handle, lambda: numbers(stage, handle) == [1, 2])

    first, second = machine(stage, handle, 1).entry, machine(stage, handle, 2).entry
    assert first.arrived == ()
    assert [each.ok for each in second.arrived] == [True]
    assert second.arrived[0].data == b'v{"a":1}'
    assert len(second.timers) == 1


@LANGUAGES
def test_entry_holds_what_was_known_and_what_was_pending(stage: Stage, language: str) -> None:
    door = stage.door("late")

    async def fast() -> str:
        return "fast"

    async def late() -> str:
        await door.passing("late")
        return "late"

    quick, slow = stage.app.task(fast), stage.app.task(late)
    if language == "script":
        handle = stage.start_script(
            'let both = [Task.run("fast", null), Task.run("late", null)]\n'
            "let first = await Promise.race(both)\nlet all = await Promise.all(both)\nreturn [first, all]"
        )
    else:

        @stage.app.workflow
        async def both() -> Any:
            one, two = quick(), slow()
            first = await race(one, two)
            return [first, await gather(one, two)]

        handle = stage.app.start(both)
    stage.until("two turns", handle, lambda: numbers(stage, handle)[-1:] == [2])
    before = machine(stage, handle, 2).entry
    assert ([each.promise for each in before.known], [each.node for each in before.tasks]) == ([0], ["late"])
    door.open()
    assert handle.result(timeout=30)[1] == ["fast", "late"]

    first, second = machine(stage, handle, 1).entry, machine(stage, handle, 2).entry
    assert sorted(each.node for each in first.tasks) == ["fast", "late"]
    assert first.known == ()
    assert [each.data for each in second.known] == [b'v"fast"']
    assert [each.node for each in second.tasks] == ["late"]
    assert [each.token for each in second.tasks] == [
        each.token for each in first.tasks if each.node == "late"
    ]
