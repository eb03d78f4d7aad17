"""A small catalog for tests of the graph: the control nodes, and a few plain ones, without the node library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dalsegno.graph.catalog import ControlKind, NodeSpec, ParameterKind, ParameterProblem

_TEXT = {"type": "string"}
_ANY: dict[str, Any] = {}


def _checker(properties: Mapping[str, Any], required: Sequence[str]) -> Any:
    def check(parameters: Mapping[str, Any]) -> list[ParameterProblem]:
        problems = [
            ParameterProblem((name,), f"Unknown parameter '{name}'{_hint(name, properties)}")
            for name in parameters
            if name not in properties
        ]
        for name, schema in properties.items():
            value = parameters.get(name)
            if value is not None and schema.get("type") == "string" and not isinstance(value, str):
                problems.append(ParameterProblem((name,), f"'{name}' must be text."))
        problems.extend(
            ParameterProblem((), f"The parameter '{name}' is missing.")
            for name in required
            if name not in parameters
        )
        return problems

    return check


def _hint(name: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else "."


def _spec(
    node_type: str,
    control: ControlKind = "plain",
    /,
    *,
    aliases: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
    kinds: Mapping[str, ParameterKind] | None = None,
    local_names: frozenset[str] = frozenset(),
    **properties: Any,
) -> NodeSpec:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return NodeSpec(
        type=node_type,
        control=control,
        aliases=aliases,
        kinds=kinds or {},
        check=_checker(properties, required),
        parameter_schema=schema,
        local_names=local_names,
    )


SPECS = (
    _spec("log", message=_ANY, level=_TEXT),
    _spec("edit", assignments=_ANY, mode=_TEXT, target_path=_TEXT),
    _spec(
        "conditional",
        "conditional",
        required=("expression",),
        kinds={"expression": "condition", "operator": "raw", "true_edge_id": "raw", "false_edge_id": "raw"},
        expression=_ANY,
        operator=_TEXT,
        true_edge_id=_TEXT,
        false_edge_id=_TEXT,
    ),
    _spec("switch", "switch", kinds={"routes": "raw"}, rules=_ANY, routes=_ANY),
    _spec("split", "split", input_array=_ANY, max_concurrency=_ANY, on_item_error=_TEXT),
    _spec("aggregator", "aggregator", kinds={"output": "expression"}, timeout=_ANY, output=_ANY),
    _spec("merge", "merge", mode=_TEXT, wait_mode=_ANY, timeout=_ANY, losers=_ANY),
    _spec("wait", "wait", resume=_TEXT, amount=_ANY, unit=_TEXT, until=_ANY),
    _spec(
        "http",
        aliases=("call_external_service",),
        required=("url",),
        url=_TEXT,
        method=_TEXT,
        body=_ANY,
        headers=_ANY,
        timeout=_ANY,
        retry=_ANY,
        retry_delay=_ANY,
    ),
    _spec("task", aliases=("python",), name=_TEXT, input=_ANY),
    _spec(
        "map",
        kinds={"expression": "expression"},
        local_names=frozenset({"item", "index"}),
        expression=_ANY,
        input_array=_ANY,
    ),
    _spec("manual", "trigger", aliases=("ManualTrigger",)),
    _spec("schedule", "trigger", aliases=("ScheduledTrigger",), cron=_TEXT),
    _spec("input"),
    _spec("output"),
)


class SmallCatalog:
    def __init__(self) -> None:
        self._specs = {name: spec for spec in SPECS for name in (spec.type, *spec.aliases)}

    def find(self, type_name: str) -> NodeSpec | None:
        return self._specs.get(type_name)

    def types(self) -> list[str]:
        return [spec.type for spec in SPECS]


CATALOG = SmallCatalog()
