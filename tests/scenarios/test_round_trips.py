"""User data is data: nothing in it is read as a reference or an expression, and every store gives it back as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.documents import aggregator, echo, graph, merge, split, task, wait
from tests.scenarios.stage import Stage

VALUES: dict[str, Any] = {
    "empty list": [],
    "empty object": {},
    "null": None,
    "false": False,
    "NUL characters": "a\x00b\x00",
    "2^60": 2**60,
    "2^80": 2**80,
    "negative 2^80": -(2**80),
    "floats": [0.1, 1e300, -0.0, 1.5e-10],
    "unicode": "Grüße, 世界 🎼",
    "astral key": {"🎼": {"": 1}},
    "reference": {"$ref": "#/nodes/a"},
    "marked values": {"$blob": "x", "kind": 2, "raw": [1, '"x"'], "output_ref": "output:1"},
    "array that looks like an entry": [3, "$trigger"],
    "template text": "{{ $trigger }} and $trigger.x",
    "dollar keys": {"$trigger": 1, "$item": {"$json": 2}},
    "error object": {"error": {"message": "no"}},
    "key order": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}},
    "deep": json.loads("[" * 150 + "]" * 150),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_survives_every_way_through_an_execution(stage: Stage, value: Any) -> None:
    """Start payload, task output, context, merge, item, wait, working payload, output."""

    @stage.app.task
    async def make(_ignored: Any) -> Any:
        return value

    nodes = {
        "a": task("make"),
        "w": wait(0.001),
        "m": merge(),
        "s": split("$m"),
        "i": echo("{{ $item }}"),
        "g": aggregator(),
        "end": echo(["{{ $trigger.v }}", "{{ $a }}", "{{ $g }}"]),
    }
    handle = stage.start(
        graph("a > w > m, a > b > m, m > s > i > g > end", {**nodes, "b": echo("{{ $a }}")}), {"v": value}
    )
    stage.until_event(handle, "NodeWaiting", "w")
    stage.pass_time(1)
    ended = stage.end_of(handle)
    for found in (
        ended.output[0],
        ended.output[1],
        *ended.output[2],
        ended.context["$a"],
        ended.context["$trigger"]["v"],
    ):
        assert json.dumps(found) == json.dumps(value)
    assert len(ended.output[2]) == 2


def test_values_from_data_are_never_parsed_again_as_expressions(stage: Stage) -> None:
    nodes = {"a": echo("{{ $trigger.text }}"), "b": echo("{{ $a }}"), "c": echo("<$b>")}
    ended = stage.run(graph("a > b > c", nodes), {"text": "{{ 1 + 1 }} $trigger.text"})
    assert ended.output == "<{{ 1 + 1 }} $trigger.text>"


def test_a_name_that_looks_like_a_path_stays_a_name(stage: Stage) -> None:
    ended = stage.run(
        graph("a > b", {"a": echo({"x.y": 1, "x": {"y": 2}}), "b": echo('{{ [$a["x.y"], $a.x.y] }}')})
    )
    assert ended.output == [1, 2]


@pytest.mark.parametrize("key", ["a/b|c", "../x", "'; drop table token; --", "\x1f", "ключ"])
def test_odd_idempotency_keys_and_tags_are_only_text(stage: Stage, key: str) -> None:
    first = stage.run(graph("a"), idempotency_key=key, tags={key: key})
    assert stage.run(graph("a"), idempotency_key=key).id == first.id
    assert [handle.id for handle in stage.app.executions(tags={key: key})] == [first.id]


@pytest.mark.parametrize("name", ["a.b.", "a:1:", "a-b-", "ünï", "join", "system", "0"])
def test_odd_node_ids_are_only_names(stage: Stage, name: str) -> None:
    document = graph("s > w > g > m, b > m", {"s": split([1, 2]), "g": aggregator(), "m": merge()})
    text = json.dumps(document)
    for own in ("s", "w", "g", "m", "b"):
        text = text.replace(f'"{own}"', json.dumps(f"{name}{own}"))
    ended = stage.run(text)
    assert ended.output == [[f"{name}w"] * 2, f"{name}b"]
    assert set(ended.states.values()) == {"COMPLETED"}
