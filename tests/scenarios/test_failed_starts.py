"""Starts that nobody waits for and that cannot be carried out: whoever holds the id finds out why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dalsegno import start
from dalsegno.core.outbox_orders import StartOrder, decode_start, order_start
from dalsegno.core.scripts.ending import fail_at_start
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.engine.starting.start import never_started
from dalsegno.engine.upkeep import outbox
from dalsegno.handle import Handle
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.effect import WriteOutbox
from dalsegno.model.event import NewEvent
from dalsegno.model.transition import Applied, Transition
from dalsegno.ports.ledger import OutboxEntry
from tests.scenarios.children import workflow
from tests.scenarios.documents import graph
from tests.scenarios.stage import Ended, Stage

STRICT = "```\ninput_schema: {type: object, required: [n]}\n```\nreturn inputs.n"


def _ended(stage: Stage, execution: str) -> Ended:
    """The execution with that id, which exists once the order to start it was carried out."""
    handle = stage.app.handle(execution)
    stage.until("it exists", _anyone(stage), lambda: _exists(stage, execution))
    return stage.end_of(handle)


def _anyone(stage: Stage) -> Any:
    return stage.app.executions()[0]


def _exists(stage: Stage, execution: str) -> bool:
    return execution in {handle.id for handle in stage.app.executions()}


def test_an_unknown_workflow_that_a_script_started_exists_as_failed(stage: Stage) -> None:
    stage.app.deploy_script("return 1", "invoice")
    ended = _ended(stage, stage.run_script('return Workflow.start("invoise", {n: 1})').output)
    assert (ended.state, ended.error["code"]) == ("FAILED", "NOT_FOUND")
    assert "no workflow is named 'invoise'" in ended.error["message"]
    assert "did you mean 'invoice'? If not, deploy 'invoise'" in ended.error["message"]
    assert [event.kind for event in ended.events] == ["ExecutionStarted", "ExecutionFailed"]
    view = ended.handle.status()
    assert (view.workflow, view.relation, view.input) == ("invoise", "started", b'{"n":1}')
    assert ended.handle.why() == []


def test_an_unknown_workflow_that_a_python_workflow_started_exists_as_failed(stage: Stage) -> None:
    @stage.app.workflow
    async def parent() -> str:
        return start("nobody", {"n": 1})

    ended = _ended(stage, stage.app.start(parent).result(10))
    assert (ended.state, ended.error["code"]) == ("FAILED", "NOT_FOUND")


def test_an_unknown_workflow_that_a_graph_started_exists_as_failed(stage: Stage) -> None:
    parent = stage.run(graph("w", {"w": workflow("nowhere", {}, wait=False)}))
    assert _ended(stage, parent.output["id"]).error["code"] == "NOT_FOUND"


def test_a_version_that_is_not_there_is_named(stage: Stage) -> None:
    stage.app.deploy_script("return 1", "child")
    ended = _ended(stage, stage.run_script('return Workflow.start("child@7", {})').output)
    assert "workflow 'child' has no version 7; deploy 'child@7'" in ended.error["message"]


def test_an_input_that_does_not_fit_is_told_by_the_execution_that_was_not_started(stage: Stage) -> None:
    definition = stage.app.deploy_script(STRICT, "strict")
    ended = _ended(stage, stage.run_script('return Workflow.start("strict", {})').output)
    assert (ended.state, ended.error["code"]) == ("FAILED", "INVALID_INPUT")
    assert "'n'" in ended.error["message"]
    assert ended.handle.status().version == definition.version


@pytest.mark.parametrize("deployed_meanwhile", [False, True])
def test_an_order_that_comes_again_fails_the_start_once(stage: Stage, deployed_meanwhile: bool) -> None:
    parent = stage.start_script('await Signal.next("never")')
    order, entry = _owed(parent)
    stage.app.host.call(_commit(stage, Transition(parent.id, (order,))))
    stage.until_event(parent, "ChildEnded", "nobody")
    if deployed_meanwhile:
        stage.app.deploy_script("return 1", "nobody")
    assert stage.app.host.call(stage.app.engine.outbox._deliver(entry)) is True
    ended = _ended(stage, "derived")
    assert (ended.state, len(ended.events)) == ("FAILED", 2)
    parent.cancel()
    assert stage.end_of(parent).count("ChildEnded", "nobody") == 1


def test_a_failed_start_is_told_by_whoever_comes_after_a_crash(stage: Stage) -> None:
    """Whoever carried out the order had stored the failed start, and died before the parent was told."""
    parent = stage.start_script('await Signal.next("never")')
    order, entry = _owed(parent)
    new = never_started(decode_start(entry.data), None, stage.clock.now())
    stage.app.host.call(
        _commit(stage, fail_at_start(new, ErrorValue("NOT_FOUND", "no 'nobody'"), new.created_at))
    )
    stage.app.host.call(_commit(stage, Transition(parent.id, (order,))))
    stage.until_event(parent, "ChildEnded", "nobody")
    assert len(_ended(stage, "derived").events) == 2


def _owed(parent: Handle) -> tuple[WriteOutbox, OutboxEntry]:
    """An order of a child that is not deployed, and the entry that it leaves in the outbox."""
    told = StartOrder("derived", "nobody", Raw(b"{}"), parent=parent.id, relation="started")
    order = order_start(told)
    return order, OutboxEntry(order.id, parent.id, order.topic, order.data)


async def _commit(stage: Stage, transition: Transition) -> None:
    started = NewEvent(
        "ChildStarted", "nobody", "", stage.clock.now(), b'{"execution":"derived","detached":true}'
    )
    if not transition.events:
        transition = msgspec.structs.replace(transition, events=(started,))
    assert isinstance(await stage.app.engine.committer.commit(transition), Applied)


def test_a_failed_start_can_be_retried_once_its_workflow_is_deployed(stage: Stage) -> None:
    ended = _ended(stage, stage.run_script('return Workflow.start("later", {n: 2})').output)
    stage.app.deploy_script("return inputs.n + 1", "later")
    assert stage.end_of(ended.handle.retry()).output == 3


def test_an_awaited_child_that_nobody_deployed_throws_and_leaves_no_execution(stage: Stage) -> None:
    source = 'try { await Workflow.run("nobody", {}) } catch (e) { return [e.code, e.message] }'
    code, message = stage.run_script(source).output
    assert code == "NOT_FOUND"
    assert "deploy 'nobody'" in message
    assert len(stage.app.executions()) == 1


def test_a_script_whose_input_schema_is_none_is_refused_with_its_line(stage: Stage) -> None:
    with pytest.raises(InvalidScript) as refused:
        stage.app.deploy_script("```\nname: strict\ninput_schema: {type: bogus}\n```\nreturn 1")
    [finding] = refused.value.findings
    assert (finding.rule, finding.line) == ("input-schema", 3)
    assert "bogus" in finding.message


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
def test_a_start_that_must_wait_for_a_check_does_not_stop_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its input is so large that a process checks it, and none is free for its workflow."""
    monkeypatch.setattr(outbox, "LOOK_AGAIN", 0.3)
    offload = stage.app.client.offload
    limits = offload.limits
    offload.configure(replace(limits, queue=0))
    stage.app.deploy_script(STRICT, "strict")
    stage.app.deploy_script("return 1", "easy")
    script = (
        'let n = "x".repeat(100000)\nreturn [Workflow.start("strict", {n}), Workflow.start("easy", null)]'
    )
    waits, easy = stage.run_script(script).output
    assert _ended(stage, easy).state == "COMPLETED"
    assert not _exists(stage, waits)
    offload.configure(limits)
    assert _ended(stage, waits).state == "COMPLETED"
