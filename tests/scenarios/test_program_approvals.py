"""``approval()`` of scripts and Python workflows: asked, listed and decided as the approval nodes of graphs are."""

from __future__ import annotations

import dataclasses
import enum
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest

from dalsegno import Decision, TaskError, WorkflowCancelled, approval, gather, race, run, sleep, timeout
from dalsegno.engine.operations.approvals import Approval
from dalsegno.errors import Conflict, InvalidInput
from dalsegno.handle import Handle
from tests.scenarios.conftest import LASTING
from tests.scenarios.documents import graph
from tests.scenarios.stage import Stage
from tests.servers.forking import Forked, run_python

SCHEMA = {"type": "object", "required": ["seats"], "properties": {"seats": {"type": "integer", "maximum": 5}}}
SCRIPT = """
let d = await approval({message: `Enrol ${inputs.name}?`, approvers: ["ann"], form: inputs.form, timeout: "14d"})
return d
"""
GATE: dict[str, Any] = {"type": "approval", "parameters": {"message": "Deep?", "form": SCHEMA}}


class Level(enum.Enum):
    BEGINNER = "beginner"
    EXPERT = "expert"


@dataclasses.dataclass
class Enrolment:
    course: str
    seats: int = 1
    level: Level = Level.BEGINNER


class Refund(pydantic.BaseModel):
    amount: int = pydantic.Field(le=100)
    note: str | None = None


def asked(handle: Handle, count: int = 1) -> list[Approval]:
    """What it asks, as soon as that is so many questions."""
    return until(lambda: found if len(found := handle.approvals()) == count else None)


def until(look: Callable[[], Any]) -> Any:
    end = time.monotonic() + 15
    while (found := look()) is None:
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)
    return found


# -- scripts ---------------------------------------------------------------------------------------------------


def test_a_script_asks_and_gets_the_decision(stage: Stage) -> None:
    handle = stage.start_script(SCRIPT, {"name": "Ada", "form": SCHEMA})
    [question] = asked(handle)
    assert (question.node, question.message, question.approvers) == ("approval", "Enrol Ada?", ("ann",))
    assert (question.form, question.due) == (SCHEMA, stage.clock.now() + 14 * 86400)
    assert question in stage.app.host.call(stage.app.client.pending_approvals())
    [waiting] = handle.why()
    assert waiting.kind == "signal"
    assert "it waits for a decision: Enrol Ada?" in waiting.sentence
    with pytest.raises(InvalidInput, match="/data/seats: 9 is greater than the maximum of 5"):
        handle.decide("approval", "approved", {"seats": 9})
    handle.decide("approval", "approved", {"seats": 2}, by="ann", comment="fine")
    assert handle.result(15) == {
        "approved": True,
        "decision": "approved",
        "data": {"seats": 2},
        "by": "ann",
        "comment": "fine",
    }
    assert handle.approvals() == []
    with pytest.raises(Conflict):
        handle.decide("approval", "approved", {"seats": 2})


def test_a_rejection_of_a_scripts_question_needs_no_form(stage: Stage) -> None:
    handle = stage.start_script(SCRIPT, {"name": "Ada", "form": SCHEMA})
    asked(handle)
    handle.decide("approval", "rejected", comment="full")
    result = handle.result(15)
    assert (result["approved"], result["data"], result["comment"]) == (False, None, "full")


def test_a_script_is_told_when_nobody_decides(stage: Stage) -> None:
    source = "try { await approval('Go?', {timeout: '1h'}) } catch (e) { return [e.code, e.message] }"
    handle = stage.start_script(source)
    asked(handle)
    stage.pass_time(3600)
    assert handle.result(15) == ["TimeoutError", "no decision was made within 1h: Go?"]


def test_the_message_alone_is_enough_and_mistakes_are_told(stage: Stage) -> None:
    handle = stage.start_script("return (await approval('Go?')).approved")
    [question] = asked(handle)
    assert (question.message, question.form, question.due) == ("Go?", None, None)
    handle.decide("approval", "approved")
    assert handle.result(15) is True
    wrong = stage.run_script("return await approval({message: 'Go?', fom: {}})", name="wrong")
    assert "approval() has no field 'fom'" in wrong.error["message"]
    bad = stage.run_script("return await approval({form: {type: 'objet'}})", name="bad")
    assert (bad.state, "form" in bad.error["message"]) == ("FAILED", True)


def test_several_questions_at_a_time_are_told_apart(stage: Stage) -> None:
    source = """
    let asked = inputs.map(name => approval(`Enrol ${name}?`))
    return (await Promise.all(asked)).map(d => d.by)
    """
    handle = stage.start_script(source, ["Ada", "Bo", "Cy"])
    questions = asked(handle, 3)
    with pytest.raises(InvalidInput, match="say which item by index"):
        handle.decide("approval", "approved")
    for question in reversed(questions):
        handle.decide("approval", "approved", by=f"for {question.message}", index=question.indexes)
    assert handle.result(15) == ["for Enrol Ada?", "for Enrol Bo?", "for Enrol Cy?"]


def test_a_decision_may_come_as_a_signal(stage: Stage) -> None:
    handle = stage.start_script("return await approval({message: 'Go?', signal: 'verdict'})")
    asked(handle)
    handle.signal("verdict", {"decision": "perhaps"})
    stage.until_event(handle, "NodeWaiting", "node:approval", 2)
    assert len(handle.approvals()) == 1
    handle.signal("verdict", {"decision": "rejected", "by": "a machine"})
    assert handle.result(15)["by"] == "a machine"


def test_a_question_goes_with_its_script(stage: Stage) -> None:
    """Neither a question that lost a race nor one that nobody awaits outlives what asked it."""
    source = """
    let lost = await Promise.race([approval("Slow?"), Timer.delay(60)])
    await Signal.next("go")
    let forgotten = approval("Ever?")
    await Signal.next("go")
    return 1
    """
    handle = stage.start_script(source)
    asked(handle)
    stage.pass_time(60)
    asked(handle, 0)
    handle.signal("go")
    asked(handle)
    handle.signal("go")
    ended = stage.end_of(handle)
    assert (ended.output, ended.count("TaskHandedOver")) == (1, 0)
    assert stage.app.host.call(stage.app.client.pending_approvals()) == []


def test_a_question_is_cancelled_with_its_workflow(stage: Stage) -> None:
    source = "try { await approval('Go?') } finally { await Signal.next('cleaned') }"
    handle = stage.start_script(source)
    asked(handle)
    handle.cancel()
    asked(handle, 0)
    handle.signal("cleaned")
    with pytest.raises(WorkflowCancelled):
        handle.result(15)


def test_a_paused_workflow_takes_its_decision_when_it_is_resumed(stage: Stage) -> None:
    handle = stage.start_script("return (await approval('Go?')).approved")
    asked(handle)
    handle.pause()
    handle.decide("approval", "approved")
    assert handle.status().state == "PAUSED"
    handle.resume()
    assert handle.result(15) is True


# -- Python ----------------------------------------------------------------------------------------------------


def test_a_python_workflow_gets_a_typed_decision(stage: Stage) -> None:
    @stage.app.workflow
    async def enrol(name: str) -> list[Any]:
        decision = await approval(f"Enrol {name}?", form=Enrolment, approvers=["ann"], timeout="14d")
        await sleep(60)
        assert type(decision) is Decision
        assert type(decision.data) is Enrolment
        data = decision.data
        return [decision.approved, decision.by, decision.comment, data.course, data.seats, data.level.name]

    handle = stage.app.start(enrol, "Ada")
    [question] = asked(handle)
    assert question.form is not None
    assert question.form["properties"]["level"]["enum"] == ["beginner", "expert"]
    with pytest.raises(InvalidInput, match="'course' is a required property"):
        handle.decide("approval", "approved", {})
    with pytest.raises(InvalidInput, match="'seets' is not expected here"):
        handle.decide("approval", "approved", {"course": "maths", "level": "expert", "seets": 3})
    handle.decide("approval", "approved", {"course": "maths", "level": "expert"}, by="ann", comment="ok")
    stage.until_event(handle, "TaskCompleted", "node:approval")
    stage.pass_time(60)
    assert handle.result(15) == [True, "ann", "ok", "maths", 1, "EXPERT"]


def test_forms_are_models_and_schemas_too(stage: Stage) -> None:
    @stage.app.workflow
    async def refund() -> list[Any]:
        model = await approval("Refund?", form=Refund)
        assert type(model.data) is Refund
        schema = await approval("Seats?", form=SCHEMA)
        plain = await approval("Sure?")
        return [model.data.amount, schema.data, plain.data, plain.approved]

    handle = stage.app.start(refund)
    asked(handle)
    with pytest.raises(InvalidInput, match="100"):
        handle.decide("approval", "approved", {"amount": 101})
    handle.decide("approval", "approved", {"amount": 100})
    until(lambda: [each for each in handle.approvals() if each.message == "Seats?"] or None)
    handle.decide("approval", "approved", {"seats": 3})
    until(lambda: [each for each in handle.approvals() if each.message == "Sure?"] or None)
    handle.decide("approval", "rejected")
    assert handle.result(15) == [100, {"seats": 3}, None, False]


def test_rejections_and_time_limits_in_python(stage: Stage) -> None:
    @stage.app.workflow
    async def patient() -> list[Any]:
        no = await approval("Refund?", form=Refund)
        try:
            await approval("Hello?", timeout="1d")
        except TimeoutError as error:
            return [no.approved, no.data, no.comment, str(error)]
        return []

    handle = stage.app.start(patient)
    asked(handle)
    handle.decide("approval", "rejected", {"amount": 7}, comment="too much")
    until(lambda: [each for each in handle.approvals() if each.message == "Hello?"] or None)
    stage.pass_time(86400)
    assert handle.result(15) == [False, None, "too much", "no decision was made within 1d: Hello?"]


def test_decisions_join_races_and_time_limits(stage: Stage) -> None:
    @stage.app.workflow
    async def joining() -> list[Any]:
        both = await gather(approval("One?", form=Refund), approval("Two?"))
        late = await race(approval("Three?"), sleep("1h"))
        try:
            with timeout("1h"):
                await approval("Four?")
        except TimeoutError:
            return [both[0].data.amount, both[1].by, late, "late"]
        return []

    handle = stage.app.start(joining)
    for question in asked(handle, 2):
        data = {"amount": 3} if question.form else None
        handle.decide("approval", "approved", data, by="bo", index=question.indexes)
    until(lambda: [each for each in handle.approvals() if each.message == "Three?"] or None)
    stage.pass_time(3600)
    until(lambda: [each for each in handle.approvals() if each.message == "Four?"] or None)
    stage.pass_time(3600)
    assert handle.result(15) == [3, "bo", None, "late"]


def test_a_form_that_cannot_be_found_again_is_refused(stage: Stage) -> None:
    @stage.app.workflow
    async def asking() -> str:
        made = dataclasses.make_dataclass("Made", [("seats", int)])
        try:
            await approval("Go?", form=made)
        except TypeError as error:
            return str(error)
        return ""

    assert "define it at the top of the workflow's module" in stage.app.start(asking).result(15)


# -- children --------------------------------------------------------------------------------------------------


def test_questions_of_children_and_grandchildren_are_those_of_the_parent(stage: Stage) -> None:
    """A Python workflow runs a graph, which runs a graph that asks."""
    stage.app.deploy({**graph("gate", {"gate": GATE}), "name": "deep"})
    middle = {"type": "workflow", "parameters": {"name": "deep"}}
    stage.app.deploy({**graph("down", {"down": middle}), "name": "middle"})

    @stage.app.workflow
    async def top() -> Any:
        return await run("middle")

    handle = stage.app.start(top)
    [question] = asked(handle)
    assert (question.workflow, question.node, question.execution != handle.id) == ("deep", "gate", True)
    reasons = handle.why()
    [deepest] = [reason for reason in reasons if reason.execution == question.execution]
    assert (deepest.kind, deepest.node) == ("signal", "gate")
    assert f"execution {question.execution} of 'deep'" in deepest.sentence
    assert len({reason.execution for reason in reasons}) == 3
    handle.decide("gate", "approved", {"seats": 1}, by="ann")
    assert handle.result(15)["by"] == "ann"
    assert handle.approvals() == []


def test_the_same_question_of_two_children_is_named_by_its_execution(stage: Stage) -> None:
    stage.app.deploy({**graph("gate", {"gate": GATE}), "name": "deep"})
    handle = stage.start_script(
        "return await Promise.all([Workflow.run('deep', {}), Workflow.run('deep', {})])"
    )
    first, second = asked(handle, 2)
    with pytest.raises(InvalidInput, match="name one of them"):
        handle.decide("gate", "rejected")
    for question in (first, second):
        stage.app.handle(question.execution).decide("gate", "rejected")
    assert [each["decision"] for each in handle.result(15)] == ["rejected", "rejected"]


def test_a_form_that_is_no_schema_fails_the_await(stage: Stage) -> None:
    @stage.app.workflow
    async def asking() -> str:
        try:
            await approval("Go?", form={"type": "objet"})
        except TaskError as error:
            return str(error)
        return ""

    assert "form" in stage.app.start(asking).result(15)


# -- processes -------------------------------------------------------------------------------------------------

PROGRAM = """
import dataclasses
import sys
import time
from dalsegno import App, approval

app = App(sys.argv[1])


@dataclasses.dataclass
class Enrolment:
    seats: int


@app.workflow
async def enrol(name: str) -> list:
    decision = await approval(f"Enrol {name}?", form=Enrolment)
    return [decision.approved, type(decision.data).__name__, decision.data.seats, decision.by]


with app.running():
    if len(sys.argv) == 2:
        handle = app.start(enrol, "Ada")
        while not handle.approvals():
            time.sleep(0.02)
        print(handle.id, flush=True)
        time.sleep(60)
    else:
        handle = app.handle(sys.argv[2])
        assert [each.message for each in handle.approvals()] == ["Enrol Ada?"]
        handle.decide("approval", "approved", {"seats": 4}, by="ann")
        print(handle.result(30), flush=True)
"""


@LASTING
def test_a_question_survives_a_kill(store_url: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [store_url]
    with Forked(str(program), arguments, stdout=subprocess.PIPE) as first:
        try:
            assert first.stdout is not None
            execution = first.stdout.readline().strip()
        finally:
            first.kill()
    second = run_python(str(program), *arguments, execution)
    assert second.stdout.strip() == "[True, 'Enrolment', 4, 'ann']", second.stderr
