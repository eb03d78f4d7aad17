"""Declared remote tasks in the test kit: a mock answers for the program, and what it answers must fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from dalsegno import App, InvalidInput, OutsideWorkflow, WorkflowFailed, gather
from dalsegno.lang.python import DurableRemoteTask
from dalsegno.testing import TestKit

app = App("memory:")


@dataclass
class Seal:
    by: str


class Stamp(msgspec.Struct):
    date: dt.date


class Envelope(BaseModel):
    stamp: str


@dataclass
class Paper:
    number: int
    seal: Seal | None = None


certificate = app.remote_task(
    "certificate", queue="office", returns=Paper, retries=1, docs="Prints a certificate."
)
archived = app.remote_task("archived", queue="office")


@app.workflow
async def certify(name: str) -> str:
    paper = await certificate(name)
    await archived(number=paper.number, name=name)
    return f"{name}: {paper.number} by {paper.seal.by if paper.seal else 'nobody'}"


@app.workflow
async def certify_all(names: list[str]) -> list[int]:
    papers = await gather(*[certificate.with_options(key=name)(name) for name in names])
    return [paper.number for paper in papers]


@pytest.fixture
def kit() -> Iterator[TestKit]:
    with TestKit(app) as kit:
        yield kit


def test_mock_answers_for_the_program_and_the_workflow_gets_the_declared_type(kit: TestKit) -> None:
    printed = kit.mock(certificate, returns={"number": 7, "seal": {"by": "Eva"}})
    kept = kit.mock("archived", returns=None)

    assert kit.run(certify, "Ada") == "Ada: 7 by Eva"
    printed.assert_called_once_with("Ada")
    kept.assert_called_once_with(number=7, name="Ada")


def test_mock_may_answer_with_the_declared_type_itself(kit: TestKit) -> None:
    kit.mock(certificate, side_effect=lambda name: Paper(len(name)))

    assert kit.run(certify_all, ["Ada", "Eve", "Anna"]) == [3, 3, 4]


def test_wrong_answer_fails_the_task_and_says_where(kit: TestKit) -> None:
    kit.mock(certificate, returns={"number": 7, "seal": {"by": 5}})

    with pytest.raises(WorkflowFailed) as told:
        kit.run(certify, "Ada")
    text = str(told.value)
    assert "the output of remote task 'certificate' does not fit Paper" in text
    assert "$.seal.by" in text
    assert len(kit.calls) == 1  # the same program would answer the same again


def test_test_without_a_stand_in_is_told_what_to_write(kit: TestKit) -> None:
    with pytest.raises(InvalidInput, match=r"workflows\.mock\('certificate', returns="):
        kit.run(certify, "Ada")


def test_script_and_graph_call_it_by_name(kit: TestKit) -> None:
    kit.mock(certificate, returns={"number": 8})
    script = 'workflow s(name) { const it = await Task.run("certificate", name); return it.number }'
    node = {
        "id": "print",
        "type": "task",
        "parameters": {"task": "certificate", "input": "{{ input }}"},
    }

    assert kit.run(script, "Ada") == 8
    assert kit.run({"name": "g", "nodes": [node]}, "Ada") == {"number": 8}


def test_retries_are_those_of_the_declaration(kit: TestKit) -> None:
    printed = kit.mock(certificate, side_effect=[OSError("no paper"), {"number": 1}])

    assert kit.run(certify_all, ["Ada"]) == [1]
    assert printed.call_count == 2


def test_call_outside_of_a_workflow_is_refused() -> None:
    with pytest.raises(OutsideWorkflow, match="a program that claims the queue 'office'"):
        certificate("Ada")
    assert certificate.__doc__ == "Prints a certificate."


def test_call_takes_one_value_or_fields() -> None:
    @app.workflow(name="wrong_call")
    async def wrong_call(name: str) -> None:
        await certificate(name, 2)

    with TestKit(app) as kit, pytest.raises(WorkflowFailed, match="takes one value, or fields by name"):
        kit.run(wrong_call, "Ada")


@pytest.mark.parametrize("queue", ["default", "system", "python:shop", ""])
def test_queue_of_our_workers_is_refused(queue: str) -> None:
    with pytest.raises(InvalidInput, match="give it a queue that only the programs claim"):
        App("memory:").remote_task("x", queue=queue)


def test_one_queue_is_not_for_both() -> None:
    mixed = App("memory:")
    mixed.remote_task("print", queue="office")

    with pytest.raises(InvalidInput, match="give the task 'own' another queue"):

        @mixed.task(queue="office")
        def own() -> None: ...


def test_workflow_can_handle_what_the_program_reports(kit: TestKit) -> None:
    @app.workflow(name="handling")
    async def handling(name: str) -> str:
        try:
            await archived(name)
        except RuntimeError as error:
            return str(error)
        return "done"

    kit.mock(archived, raises=RuntimeError("the shelf is full"))
    assert "the shelf is full" in kit.run(handling, "Ada")


@pytest.mark.parametrize(
    ("returns", "sent", "expected"),
    [
        (Stamp, {"date": "2026-01-31"}, Stamp(dt.date(2026, 1, 31))),
        (Envelope, {"stamp": "x"}, Envelope(stamp="x")),
        (list[Paper], [{"number": 1}], [Paper(1)]),
    ],
)
def test_result_is_made_of_what_the_program_sent(returns: Any, sent: Any, expected: Any) -> None:
    declared: DurableRemoteTask[..., Any] = DurableRemoteTask("x", returns, queue="office")
    assert declared.decode_result(sent) == expected
