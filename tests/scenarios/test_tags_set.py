"""Tags that a running workflow sets: lists find it by them, and they change with its turns alone."""

from __future__ import annotations

import json

import pytest

from dalsegno import LimitExceeded, set_tags, signal, sleep
from dalsegno.core.scripts.turn import changed_tags
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.stage import Stage, all_events

SCRIPT = """
set_tags({stage: "documents", customer: inputs.customer})
await Signal.next("documents")
set_tags({stage: "decision"})
await Signal.next("decision")
set_tags({stage: null})
return "done"
"""


def _found(stage: Stage, /, **tags: str) -> list[str]:
    return [handle.id for handle in stage.app.executions(tags=tags)]


def _waits_at(stage: Stage, handle: Handle, name: str) -> None:
    stage.until(f"waits for {name}", handle, lambda: any(wait.node == name for wait in handle.why()))


def _check_stages(stage: Stage, handle: Handle, other: Handle) -> None:
    for one in (handle, other):
        _waits_at(stage, one, "documents")
    assert _found(stage, stage="documents") == sorted([other.id, handle.id], reverse=True)
    handle.signal("documents")
    _waits_at(stage, handle, "decision")
    assert _found(stage, stage="documents") == [other.id]
    assert _found(stage, stage="decision") == [handle.id]
    assert dict(handle.status().tags) == {"env": "test", "stage": "decision", "customer": "ann"}

    handle.signal("decision")
    assert handle.result(10) == "done"
    assert _found(stage, stage="decision") == []
    assert _found(stage, customer="ann", env="test") == [handle.id]
    changes = [json.loads(event.data or b"") for event in all_events(handle) if event.kind == "TagsChanged"]
    assert [change["tags"] for change in changes] == [
        {"customer": "ann", "stage": "documents"},
        {"stage": "decision"},
        {"stage": None},
    ]


def test_a_python_workflow_is_found_by_the_stage_it_is_in(stage: Stage) -> None:
    @stage.app.workflow
    async def onboarding(customer: str) -> str:
        set_tags(stage="documents", customer=customer)
        await signal("documents")
        set_tags({"stage": "decision"})
        await signal("decision")
        set_tags(stage=None)
        return "done"

    start = stage.app.with_options(tags={"env": "test"}).start
    _check_stages(stage, start(onboarding, "ann"), start(onboarding, "bob"))


def test_a_script_is_found_by_the_stage_it_is_in(stage: Stage) -> None:
    handle = stage.start_script(SCRIPT, {"customer": "ann"}, tags={"env": "test"})
    other = stage.start_script(SCRIPT, {"customer": "bob"}, tags={"env": "test"})
    _check_stages(stage, handle, other)


def test_tags_set_in_a_fused_turn_and_in_one_that_fails_are_kept(stage: Stage) -> None:
    @stage.app.task
    async def price() -> int:
        return 1

    @stage.app.workflow
    async def fails() -> None:
        for number in range(3):
            set_tags(round=str(number))
            await price()
        set_tags(round="last")
        raise ValueError("over")

    handle = stage.app.start(fails)
    assert stage.end_of(handle).state == "FAILED"
    assert dict(handle.status().tags) == {"round": "last"}
    assert _found(stage, round="1") == []
    assert _found(stage, round="last") == [handle.id]


def test_a_turn_that_changes_nothing_writes_no_event(stage: Stage) -> None:
    @stage.app.task
    async def nothing() -> None:
        return None

    @stage.app.workflow
    async def same() -> None:
        for _ in range(3):
            set_tags(stage="same")
            await nothing()

    handle = stage.app.start(same)
    handle.result(10)
    assert [event.kind for event in all_events(handle)].count("TagsChanged") == 1


def test_what_a_start_may_not_set_a_workflow_may_not_set_either(stage: Stage) -> None:
    @stage.app.workflow
    async def wrong() -> list[str]:
        said = []
        for tags in (
            {"": "x"},
            {"n" * 201: "x"},
            {"a": "x" * 1001},
            {"a": "new\nline"},
            {"a": 3},
            {"dalsegno.key": "k"},
        ):
            try:
                set_tags(tags)
            except ValueError as error:
                said.append(str(error))
        await sleep(0)
        return said

    said = stage.app.start(wrong).result(10)
    assert [line[:11] for line in said] == ["set_tags():"] * 6
    assert "reserved" in said[-1]


def test_more_tags_than_a_start_may_set_fail_the_workflow(stage: Stage) -> None:
    @stage.app.task
    async def nothing() -> None:
        return None

    @stage.app.workflow
    async def many() -> None:
        for number in range(60):
            set_tags({f"t{number}": "x"})
            await nothing()

    ended = stage.end_of(stage.app.start(many))
    assert ended.state == "FAILED"
    assert "would have 51 tags; the limit is 50" in str(ended.error)
    assert len(ended.handle.status().tags) == 50


def test_tags_of_before_are_no_reason_to_refuse_a_change() -> None:
    """A start without a server may bring more than the limit."""
    before = [(f"t{number:02}", "x") for number in range(60)]
    changed = changed_tags(before, {"t00": "y"})
    assert changed is not None
    assert changed.new == (("t00", "y"),)
    with pytest.raises(LimitExceeded):
        changed_tags(before, {"other": "x"})


@LASTING
def test_tags_of_a_large_script_are_set_from_a_process_apart(stage: Stage) -> None:
    """Its turn is computed in another process, which reads the tags through this one."""
    source = """
    let text = "x".repeat(300000)
    set_tags({stage: "large"})
    await Timer.delay(0)
    return text.length
    """
    handle = stage.start_script(source, {}, tags={"env": "test"})
    assert handle.result(30) == 300000
    assert dict(handle.status().tags) == {"env": "test", "stage": "large"}
