"""Nodes that misbehave at run time: what they return, raise or never return is a failure with a plain sentence."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from dalsegno.errors import InvalidInput, NotJson
from dalsegno.model.transition import Outcome, Refused, Transition
from tests.scenarios.documents import aggregator, error_object, graph, split, task
from tests.scenarios.stage import Stage

CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


NOT_JSON: dict[str, tuple[Any, str]] = {
    "an object": (object(), r"\$ is of type object"),
    "an object inside": ({"a": [1, object()]}, r"\$\.a\[1\] is of type object"),
    "a function": ({"f": print}, r"\$\.f is of type builtin_function_or_method"),
    "NaN": ({"x": float("nan")}, r"\$\.x is nan"),
    "infinity": ([1.0, float("-inf")], r"\$\[1\] is -inf"),
    "a lone surrogate": ({"t": "\ud800"}, r"\$\.t contains a character that is not valid Unicode"),
    "a huge integer": (10**5000, r"more than 4,300 digits"),
    "too deep": (deep(300), r"more than 200 levels deep"),
    "circular": (CIRCULAR, r"levels deep|not JSON"),
    "object keys": ({(1, 2): 3}, r"not JSON"),
}


@pytest.mark.parametrize("what", NOT_JSON)
def test_a_task_that_returns_no_json_fails_with_the_place(stage: Stage, what: str) -> None:
    value, message = NOT_JSON[what]

    @stage.app.task
    async def odd(_ignored: Any) -> Any:
        return value

    ended = stage.run(graph("a > f > never", {"f": task("odd")}))
    assert ended.state == "FAILED"
    assert ended.error["type"] == "NotJson"
    assert ended.error["message"].startswith("the output of node 'f' is n")
    assert re.search(message, ended.error["message"]), ended.error["message"]
    assert ended.nodes["f"] == ("FAILED", 1)


def test_dates_tuples_and_sets_become_json(stage: Stage) -> None:
    @stage.app.task
    async def rich(_ignored: Any) -> Any:
        return {"at": datetime(2026, 1, 2, tzinfo=UTC), "pair": (1, 2), "only": {7}}

    assert stage.run(graph("a", {"a": task("rich")})).output == {
        "at": "2026-01-02T00:00:00Z",
        "pair": [1, 2],
        "only": [7],
    }


def test_what_is_no_json_can_be_ignored_like_any_failure(stage: Stage) -> None:
    @stage.app.task
    async def odd(_ignored: Any) -> Any:
        return object()

    ended = stage.run(graph("f > next", {"f": task("odd", error={"type": "ignore"})}))
    assert ended.state == "COMPLETED"
    assert ended.context["$f"]["error"]["type"] == "NotJson"


@pytest.mark.parametrize(
    "what", ["an object inside", "NaN", "a lone surrogate", "a huge integer", "too deep"]
)
def test_a_start_payload_that_is_no_json_starts_nothing(stage: Stage, what: str) -> None:
    payload, _ = NOT_JSON[what]
    stage.app.deploy(graph("a"))
    with pytest.raises(NotJson, match="the input is n"):
        stage.app.start("scenario", payload)
    assert stage.app.executions() == []


def test_an_unregistered_task_fails_its_node_and_names_those_that_are(stage: Stage) -> None:
    ended = stage.run(graph("f", {"f": task("ecko", 1)}))
    assert ended.error["code"] == "TASK_NOT_FOUND"
    assert "'echo'" in ended.error["message"]
    assert ended.error["message"].endswith("; did you mean 'echo'?")


def test_a_task_given_the_wrong_input_says_what_it_takes(stage: Stage) -> None:
    @stage.app.task
    async def two(left: int, right: int) -> int:
        return left + right

    assert stage.run(graph("f", {"f": task("two", {"left": 1, "right": 2})})).output == 3
    ended = stage.run(graph("f", {"f": task("two", [1, 2])}))
    assert ended.error["code"] == "BAD_TASK_INPUT"
    assert "left, right" in ended.error["message"]
    missing = stage.run(graph("f", {"f": task("two", {"left": 1})}))
    assert missing.state == "FAILED"
    assert "right" in missing.error["message"]


def test_two_tasks_of_one_name_are_refused(stage: Stage) -> None:
    with pytest.raises(InvalidInput, match="registered already"):
        stage.app.task(name="echo")(lambda value: value)


def test_an_async_task_that_hangs_is_cut_off(stage: Stage) -> None:
    ended = stage.run(graph("f", {"f": task("hold", "never", timeout=0.05)}))
    assert ended.error == error_object(
        "node 'f' did not end within its timeout of 0.05 s", "TIMEOUT", "f", type="TimeoutError"
    )


def test_a_blocking_task_that_hangs_is_abandoned_and_its_late_result_is_void(stage: Stage) -> None:
    release, late = threading.Event(), threading.Event()

    @stage.app.task
    def block(_ignored: Any) -> str:
        release.wait(10)
        late.set()
        return "late"

    ended = stage.run(graph("f > next", {"f": task("block", timeout=0.05, error={"type": "ignore"})}))
    assert ended.context["$f"]["error"]["code"] == "TIMEOUT"
    assert stage.app.tasks.abandoned == 1
    release.set()
    assert late.wait(30)
    assert stage.end_of(ended.handle).context == ended.context


def test_a_timeout_inside_an_item_fails_only_that_item(stage: Stage) -> None:
    nodes = {"s": split(["open", "shut"]), "h": task("hold", "{{ $item }}", timeout=1), "g": aggregator()}
    stage.door("open").open()
    ended = stage.run(graph("s > h > g", nodes))
    assert ended.output[0] == "open"
    assert ended.output[1]["error"]["code"] == "TIMEOUT"


def test_an_exception_with_hostile_text_is_stored_as_text(stage: Stage) -> None:
    @stage.app.task
    async def hostile(_ignored: Any) -> None:
        raise ValueError("\x00 {{ $trigger }} \u2028 '; drop table execution; --")

    ended = stage.run(graph("f", {"f": task("hostile", error={"type": "ignore"})}))
    assert ended.output["error"]["message"] == "\x00 {{ $trigger }} \u2028 '; drop table execution; --"


def test_an_exception_whose_text_is_no_unicode_still_fails_its_node(stage: Stage) -> None:
    @stage.app.task
    async def surrogate(_ignored: Any) -> None:
        raise ValueError("bad \ud800 text")

    ended = stage.run(graph("f", {"f": task("surrogate")}))
    assert ended.state == "FAILED"
    assert ended.error["type"] == "ValueError"
    assert ended.error["message"].startswith("bad ")


def test_a_node_error_with_details_that_are_no_json_still_fails_its_node(stage: Stage) -> None:
    from dalsegno.ports.node import NodeError

    @stage.app.task
    async def detailed(_ignored: Any) -> None:
        raise NodeError("see details", code="DETAILED", details={"what": object(), "n": float("nan")})

    ended = stage.run(graph("f", {"f": task("detailed")}))
    assert ended.state == "FAILED"
    assert ended.error["code"] == "DETAILED"
    assert ended.error["message"] == "see details"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_exception_that_cannot_be_printed_still_fails_its_node(stage: Stage) -> None:
    @stage.app.task
    async def unprintable(_ignored: Any) -> None:
        raise Unprintable

    ended = stage.run(graph("f", {"f": task("unprintable")}))
    assert ended.state == "FAILED"
    assert ended.error["type"] == "Unprintable"


def test_what_the_store_refuses_fails_its_node_even_inside_an_item(store_url: str) -> None:
    """With one slot the worker keeps the first item's token, with its body, and claims the second from the queue."""
    with Stage(store_url, concurrency=1) as stage:
        ledger = stage.app.engine.stack.ledger
        commit = ledger.commit

        async def refuse(batch: Sequence[Transition]) -> list[Outcome]:
            outcomes: list[Outcome] = []
            for each in batch:
                poisoned = any(event.kind == "NodeCompleted" and event.node == "w" for event in each.events)
                outcomes += [Refused("a bad byte")] if poisoned else await commit([each])
            return outcomes

        ledger.commit = refuse  # type: ignore[method-assign]
        ended = stage.run(graph("s > w > g", {"s": split([1, 2]), "g": aggregator()}))
    assert ended.state == "COMPLETED"
    assert [item["error"]["code"] for item in ended.output] == ["NOT_STORABLE", "NOT_STORABLE"]
    assert ended.nodes["w"] == ("FAILED", 2)
