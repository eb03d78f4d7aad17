"""What executions publish while they run: with their turns, from their tasks, and from nodes of graphs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

from dalsegno import (
    LimitExceeded,
    RetryPolicy,
    TaskContext,
    WorkflowFailed,
    log,
    progress,
    publish,
    signal,
    sleep,
    stream,
)
from dalsegno.model.published import LARGEST_VALUE, MOST_KEYS
from tests.scenarios.stage import Stage

SCRIPT = """
publish("stage", {name: "documents", of: inputs.customer})
progress(1, 4, "documents")
Stream.write("answer", "Once ")
Stream.write("answer", "upon")
log("warning", "it is", "late")
await Signal.next("go")
publish("stage", null)
progress(4, 4)
Stream.close("answer")
return "done"
"""


@dataclass
class Order:
    id: str
    parts: list[int]


def lines(handle: Any) -> list[tuple[str, str | None, str]]:
    return [(line.value["level"], line.value["task"], line.value["message"]) for line in handle.logs()]


def test_a_script_publishes_with_its_turns(stage: Stage) -> None:
    handle = stage.start_script(SCRIPT, {"customer": "ann"})
    stage.until("waits for go", handle, lambda: any(wait.node == "go" for wait in handle.why()))

    assert handle.published() == {
        "stage": {"name": "documents", "of": "ann"},
        "progress": {"done": 1, "total": 4, "text": "documents"},
    }
    handle.signal("go")
    assert handle.result(10) == "done"
    assert handle.published() == {"stage": None, "progress": {"done": 4, "total": 4, "text": None}}
    assert [chunk.value for chunk in handle.stream("answer")] == ["Once ", "upon"]
    assert [chunk.value for chunk in handle.stream("answer", offset=1)] == ["upon"]
    assert lines(handle) == [("warning", None, "it is late")]


def test_a_python_workflow_publishes_typed_values_and_is_watched(stage: Stage) -> None:
    @stage.app.task
    async def price(n: int) -> int:
        return n

    @stage.app.workflow
    async def orders(name: str) -> str:
        answer = stream("answer")
        for number in range(3):
            publish("order", Order(name, [number]))
            progress(number, 3)
            answer.write({"n": number})
            await price(number)
        await signal("go")
        answer.close()
        log("said", "error")
        return name

    handle = stage.app.start(orders, "o-1")
    watched = handle.watch("order")
    first = next(watched)
    stage.until("waits for go", handle, lambda: any(wait.node == "go" for wait in handle.why()))
    assert handle.published("order", type=Order) == Order("o-1", [2])
    assert handle.published("order") == {"id": "o-1", "parts": [2]}
    assert handle.published("none", type=Order) is None
    handle.signal("go")
    last = [first, *watched][-1]

    assert (last.key, last.value["parts"]) == ("order", [2])
    assert [chunk.value["n"] for chunk in handle.stream("answer")] == [0, 1, 2]
    assert handle.result(10) == "o-1"
    assert lines(handle) == [("error", None, "said")]


def test_a_task_publishes_while_it_runs_and_its_retry_is_told_apart(stage: Stage) -> None:
    @stage.app.task(retries=RetryPolicy(max_attempts=2, initial_delay=0))
    async def ask(ctx: TaskContext, question: str) -> str:
        answer = ctx.stream("answer")
        ctx.publish("question", question)
        ctx.log(f"attempt {ctx.attempt}")
        for number in range(3):
            ctx.progress(number, 3, "asking")
            answer.write(f"{ctx.attempt}{number}")
            await asyncio.sleep(0.15)
        if ctx.attempt == 1:
            raise ValueError("no answer")
        answer.close()
        return "done"

    @stage.app.workflow
    async def asks() -> str:
        return await ask("why")

    handle = stage.app.start(asks)
    seen = [(each.key, each.value) for each in handle.watch()]

    assert handle.result(10) == "done"
    assert ("question", "why") in seen
    shares = [value for key, value in seen if key == "progress/ask/0"]
    assert shares
    assert all(value["total"] == 3 and value["text"] == "asking" for value in shares)
    assert handle.published() == {"question": "why"}
    chunks = list(handle.stream("answer"))
    assert [chunk.value for chunk in chunks] == ["10", "11", "12", "20", "21", "22"]
    assert [chunk.offset for chunk in chunks if chunk.restarts] == [3]
    assert {(chunk.task, chunk.attempt) for chunk in chunks} == {("ask", 1), ("ask", 2)}
    assert lines(handle) == [("info", "ask", "attempt 1"), ("info", "ask", "attempt 2")]


def test_a_task_in_a_thread_publishes(stage: Stage) -> None:
    @stage.app.task
    def count(ctx: TaskContext) -> int:
        for number in range(5):
            ctx.publish("n", number)
            ctx.stream("numbers").write(number)
            time.sleep(0.03)
        return 5

    @stage.app.workflow
    async def counts() -> int:
        return await count()

    handle = stage.app.start(counts)
    assert handle.result(10) == 5
    assert handle.published("n") == 4
    assert [chunk.value for chunk in handle.stream("numbers")] == [0, 1, 2, 3, 4]


def test_a_graph_publishes_with_a_node_and_passes_its_input_on(stage: Stage) -> None:
    document = {
        "name": "tells",
        "nodes": [
            {"id": "say", "type": "publish", "parameters": {"key": "stage", "value": "{{ $trigger.n + 1 }}"}},
            {"id": "note", "type": "log", "parameters": {"message": "noted {{ $json.n }}", "level": "warn"}},
            {"id": "out", "type": "output"},
        ],
        "edges": [{"src": "say", "dst": "note"}, {"src": "note", "dst": "out"}],
    }
    stage.app.deploy(document)
    handle = stage.app.start("tells", {"n": 4})
    handle.result(10)
    assert handle.published() == {"stage": 5}
    assert lines(handle) == [("warning", "note", "noted 4")]


def test_what_is_published_has_limits_that_errors_name(stage: Stage) -> None:
    @stage.app.workflow
    async def large() -> None:
        publish("large", "x" * LARGEST_VALUE)
        await sleep(0)

    @stage.app.workflow
    async def many() -> None:
        for number in range(MOST_KEYS + 1):
            publish(f"k{number}", number)
        await sleep(0)

    @stage.app.workflow
    async def mistaken() -> list[str]:
        said: list[str] = []
        for key in ("", "progress", "progress/x", "a\nb", "k" * 201):
            try:
                publish(key, 1)
            except ValueError as error:
                said.append(str(error))
        try:
            progress(-1, 4)
        except ValueError as error:
            said.append(str(error))
        try:
            stream("a/b")
        except ValueError as error:
            said.append(str(error))
        return said

    with pytest.raises(WorkflowFailed, match="the value published as 'large' is 65,538 bytes"):
        stage.app.start(large).result(10)
    with pytest.raises(WorkflowFailed, match="publishes at most 1,000 keys"):
        stage.app.start(many).result(10)
    said = stage.app.start(mistaken).result(10)
    assert len(said) == 7
    assert said[1].startswith("publish(): the key 'progress' belongs to progress()")


def test_a_task_that_publishes_too_much_gets_the_error(stage: Stage) -> None:
    @stage.app.task
    async def large(ctx: TaskContext) -> str:
        try:
            ctx.publish("large", "x" * LARGEST_VALUE)
        except LimitExceeded as error:
            return str(error)
        return ""

    @stage.app.workflow
    async def publishes() -> str:
        return await large()

    assert "the limit is 65,536" in stage.app.start(publishes).result(10)
