"""The list nodes: filter, sort, limit, map, group, dedupe."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.nodes.data.lists import identity, sort_key
from dalsegno.ports.node import NodeError, Working
from tests.nodes.fakes import FakeContext, run_node

GOODS = [
    {"id": 1, "price": 30, "kind": "b", "stock": True},
    {"id": 2, "price": "10", "kind": "a", "stock": False},
    {"id": 3, "price": None, "kind": "b"},
    {"id": 4, "price": 20, "kind": "a", "stock": True},
]


async def ids(node_type: str, parameters: dict[str, Any], items: list[Any] = GOODS) -> list[Any]:
    return [item["id"] for item in await items_of(node_type, parameters, items)]


async def items_of(node_type: str, parameters: dict[str, Any], items: Any = GOODS) -> list[Any]:
    result = await run_node(node_type, parameters, roots={"$json": items, "$trigger": {"max": 25}})
    assert isinstance(result, Working)
    assert result.json is result.output["items"]
    assert result.output["count"] == len(result.json)
    assert result.output["original_count"] == len(items)
    found: list[Any] = result.json
    return found


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"expression": "item.price > 15"}, [1, 4]),
        ({"expression": "{{ $item.price <= $trigger.max }}"}, [2, 4]),
        ({"expression": "index > 1"}, [3, 4]),
        ({"expression": "item.stock"}, [1, 4]),
        ({"expression": "item.nothing.there == null and item.id < 3"}, [1, 2]),
        ({"rules": [{"op1": "$item.kind", "op2": "a", "operator": "eq"}]}, [2, 4]),
        (
            {
                "rules": [
                    {"op1": "{{ item.price }}", "op2": "$trigger.max", "operator": ">"},
                    {"op1": "$item.price", "operator": "is_null"},
                ],
                "operator": "or",
            },
            [1, 3],
        ),
        ({}, [1, 2, 3, 4]),
    ],
)
async def test_filter(parameters: dict[str, Any], expected: list[int]) -> None:
    assert await ids("filter", parameters) == expected


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"rules": [{"field": "id", "direction": "desc"}]}, [4, 3, 2, 1]),
        ({"rules": [{"field": "kind"}]}, [2, 4, 1, 3]),
        ({"rules": [{"field": "kind", "direction": "DESC"}]}, [1, 3, 2, 4]),
        ({"rules": [{"field": "$item.kind"}, {"field": "id", "direction": "descending"}]}, [4, 2, 3, 1]),
        ({"rules": [{"field": "price"}]}, [4, 1, 2, 3]),
        ({"rules": [{"field": "price", "direction": "desc"}]}, [2, 1, 4, 3]),
        ({"expression": "0 - item.id"}, [4, 3, 2, 1]),
        ({"expression": "item.id", "direction": "desc"}, [4, 3, 2, 1]),
        ({"rules": [{"field": "nothing"}]}, [1, 2, 3, 4]),
        ({"rules": ["kind"]}, [2, 4, 1, 3]),
        ({"rules": ["$item.kind", {"field": "id", "direction": "desc"}]}, [4, 2, 3, 1]),
    ],
)
async def test_sort(parameters: dict[str, Any], expected: list[int]) -> None:
    assert await ids("sort", parameters) == expected


async def test_sorting_a_mix_of_types_puts_nulls_last_either_way() -> None:
    mixed: list[Any] = [None, "b", 2, {"a": 1}, True, [1], 1.5, "a", None]
    assert await items_of("sort", {}, mixed) == [1.5, 2, "a", "b", True, [1], {"a": 1}, None, None]
    assert (await items_of("sort", {"direction": "desc"}, mixed))[-2:] == [None, None]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"count": 2}, [1, 2]),
        ({"limit": 2}, [1, 2]),
        ({"count": 2, "offset": 1}, [2, 3]),
        ({"count": 99}, [1, 2, 3, 4]),
        ({"count": 0}, []),
        ({"count": 2, "keep": "last"}, [3, 4]),
        ({"count": 2, "offset": 1, "keep": "last"}, [2, 3]),
        ({"count": 2, "offset": 9, "keep": "last"}, []),
        ({"count": "{{ 1 + 2 }}"}, [1, 2, 3]),
    ],
)
async def test_limit(parameters: dict[str, Any], expected: list[int]) -> None:
    assert await ids("limit", parameters) == expected


async def test_map_evaluates_per_item() -> None:
    assert await items_of("map", {"expression": "{n: item.id * 10, i: index}"}, GOODS[:2]) == [
        {"n": 10, "i": 0},
        {"n": 20, "i": 1},
    ]
    assert await items_of("map", {"expression": "{{ $item.kind + $trigger.max }}"}, GOODS[:1]) == ["b25"]


@pytest.mark.parametrize(
    "by",
    [
        {"field": "kind"},
        {"field": "$item.kind"},
        {"expression": "item.kind"},
        {"rules": ["kind"]},
        {"rules": ["$item.kind"]},
        {"rules": [{"field": "kind"}]},
    ],
)
async def test_group_gathers_in_order_of_appearance(by: dict[str, Any]) -> None:
    groups = await items_of("group", by)
    assert [(each["key"], [item["id"] for item in each["items"]], each["count"]) for each in groups] == [
        ("b", [1, 3], 2),
        ("a", [2, 4], 2),
    ]


async def test_the_key_of_a_group_by_several_fields_lists_their_values() -> None:
    groups = await items_of("group", {"rules": ["kind", {"field": "stock"}]})
    assert [(each["key"], each["count"]) for each in groups] == [
        (["b", True], 1),
        (["a", False], 1),
        (["b", None], 1),
        (["a", True], 1),
    ]


@pytest.mark.parametrize("parameters", [{}, {"rules": []}])
async def test_group_needs_to_know_by_what(parameters: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="'field', 'expression' or 'rules'"):
        await items_of("group", parameters)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"fields": ["kind"]}, [1, 2]),
        ({"fields": ["kind"], "keep": "last"}, [3, 4]),
        ({"fields": ["kind", "stock"]}, [1, 2, 3, 4]),
        ({"expression": "item.id % 2"}, [1, 2]),
        ({"rules": ["kind"]}, [1, 2]),
        ({"rules": [{"field": "$item.kind"}], "keep": "last"}, [3, 4]),
        ({"rules": ["kind", {"field": "stock"}]}, [1, 2, 3, 4]),
        ({"rules": []}, [1, 2, 3, 4]),
        ({}, [1, 2, 3, 4]),
    ],
)
async def test_dedupe(parameters: dict[str, Any], expected: list[int]) -> None:
    assert await ids("dedupe", parameters) == expected


async def test_dedupe_of_whole_items_compares_as_json_does() -> None:
    items: list[Any] = [1, 1.0, True, "1", {"a": 1, "b": 2}, {"b": 2, "a": 1.0}, [1], [1], None, None]
    assert await items_of("dedupe", {}, items) == [1, True, "1", {"a": 1, "b": 2}, [1], None]


async def test_input_array_wins_over_the_working_payload() -> None:
    ctx = FakeContext({"$json": [], "fetch": {"body": [3, 1, 2]}})
    assert (await run_node("sort", {"input_array": "$fetch.body"}, ctx)).json == [1, 2, 3]


@pytest.mark.parametrize("node_type", ["filter", "sort", "map", "group", "dedupe", "limit"])
async def test_what_is_no_list_fails_for_good(node_type: str) -> None:
    needed: dict[str, dict[str, Any]] = {"map": {"expression": "1"}, "limit": {"count": 1}}
    parameters = needed.get(node_type, {})
    for ctx, given_parameters in (
        (FakeContext({"$json": {"a": 1}}), parameters),
        (FakeContext(), parameters),
        (FakeContext({"$json": [1], "fetch": {"body": None}}), {**parameters, "input_array": "$fetch.body"}),
    ):
        with pytest.raises(NodeError, match="should be a list") as caught:
            await run_node(node_type, given_parameters, ctx)
        assert not caught.value.failure.retryable


async def test_long_lists_let_others_run() -> None:
    ctx = FakeContext({"$json": list(range(12_000))})
    await run_node("map", {"expression": "item + 1"}, ctx)
    assert ctx.heartbeats >= 2


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(JSON_VALUES, max_size=12))
def test_any_values_can_be_ordered_and_told_apart(values: list[Any]) -> None:
    present = [value for value in values if value is not None]
    shuffled = random.Random(1).sample(present, len(present))
    assert sorted(map(sort_key, present)) == sorted(map(sort_key, shuffled))
    assert len({identity(value) for value in values}) <= len(values)
