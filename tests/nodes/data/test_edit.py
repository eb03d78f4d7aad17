"""The edit node: assignments, names with dots, types, targets; and the paths below it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.nodes.data.paths import PathError, assign_path, parse_path, read_path, spell_path
from dalsegno.ports.node import NodeError, Working
from tests.nodes.fakes import run_node

JSON = {"user": {"name": "Ann", "tags": ["x", "y"]}, "n": 1}


async def edited(assignments: list[dict[str, Any]], json: Any = JSON, **parameters: Any) -> Any:
    result = await run_node("edit", {"assignments": assignments, **parameters}, roots={"$json": json})
    assert isinstance(result, Working)
    assert result.output is result.json
    return result.output


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n", 2, {**JSON, "n": 2}),
        ("user.name", "Bob", {"user": {"name": "Bob", "tags": ["x", "y"]}, "n": 1}),
        ("a.b.c", 1, {**JSON, "a": {"b": {"c": 1}}}),
        ("user.tags[1]", "z", {"user": {"name": "Ann", "tags": ["x", "z"]}, "n": 1}),
        ("user.tags.0", "z", {"user": {"name": "Ann", "tags": ["z", "y"]}, "n": 1}),
        ("user.tags[2]", "z", {"user": {"name": "Ann", "tags": ["x", "y", "z"]}, "n": 1}),
        ("list[0].id", 7, {**JSON, "list": [{"id": 7}]}),
        ("a\\.b", 1, {**JSON, "a.b": 1}),
        ("n", None, {**JSON, "n": None}),
    ],
)
async def test_assignments_reach_into_the_object(name: str, value: Any, expected: Any) -> None:
    assert await edited([{"name": name, "value": value}]) == expected
    assert JSON == {"user": {"name": "Ann", "tags": ["x", "y"]}, "n": 1}, "what others hold was changed"


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (5, "string", "5"),
        (None, "string", ""),
        ({"a": 1}, "string", '{"a":1}'),
        ("4.50", "number", 4.5),
        ("12345678901234567890", "number", 12345678901234567890),
        (True, "number", 1),
        ("7", "integer", 7),
        ("yes", "boolean", True),
        ("FALSE", "bool", False),
        (0, "boolean", False),
        ('{"a": [1]}', "object", {"a": [1]}),
        ("[1, 2]", "array", [1, 2]),
        ([1], "array", [1]),
        ("[true, null]", "json", [True, None]),
        (3, "json", 3),
        ("x", "any", "x"),
        ("x", "null", None),
    ],
)
async def test_values_become_the_type_asked_for(value: Any, wanted: str, expected: Any) -> None:
    output = await edited([{"name": "v", "value": value, "type": wanted}], {})
    assert output["v"] == expected
    assert type(output["v"]) is type(expected)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("abc", "number"),
        ([], "number"),
        ("1e999", "number"),
        ("1.5", "integer"),
        ("maybe", "boolean"),
        (2, "boolean"),
        ("[1]", "object"),
        ("{}", "array"),
        ("{oops", "json"),
        ("NaN", "json"),
        ("[" * 5000, "json"),
        ("[" * 300 + "]" * 300, "json"),
    ],
)
async def test_a_value_that_does_not_fit_its_type_fails_and_is_named(value: Any, wanted: str) -> None:
    with pytest.raises(NodeError, match=r"assignment 0 \('v'\)") as caught:
        await edited([{"name": "v", "value": value, "type": wanted}], {})
    assert (caught.value.failure.code, caught.value.failure.retryable) == ("EDIT_FAILED", False)


async def test_keep_only_drops_the_rest_and_may_keep_fields_as_they_are() -> None:
    kept = await edited([{"name": "user.name"}, {"name": "m", "value": 5}], mode="keep_only")
    assert kept == {"user": {"name": "Ann"}, "m": 5}


async def test_values_are_templates() -> None:
    assert await edited([{"name": "hi", "value": "Hello {{ $json.user.name }}"}], mode="keep_only") == {
        "hi": "Hello Ann"
    }


@pytest.mark.parametrize("target", ["$json.user", "{{ $json.user }}"])
async def test_target_path_names_what_is_edited(target: str) -> None:
    assert await edited([{"name": "age", "value": 3}], target_path=target) == {**JSON["user"], "age": 3}  # type: ignore[dict-item]


async def test_nothing_to_edit_starts_an_empty_object() -> None:
    assert await edited([{"name": "a", "value": 1}], None) == {"a": 1}
    assert (await run_node("edit", {"assignments": [{"name": "a", "value": 1}]})).output == {"a": 1}
    assert await edited([{"name": "a", "value": 1}], target_path="$json?.nowhere") == {"a": 1}


@pytest.mark.parametrize("payload", [[1], "text", 5])
async def test_a_payload_that_is_no_object_starts_an_empty_one(payload: Any) -> None:
    assert await edited([{"name": "a", "value": 1}], payload) == {"a": 1}
    assert await edited([{"name": "a", "value": 1}], payload, mode="keep_only") == {"a": 1}


async def test_a_target_path_to_what_is_no_object_fails() -> None:
    with pytest.raises(NodeError, match="should be an object"):
        await edited([{"name": "a", "value": 1}], target_path="$json.n")


@pytest.mark.parametrize("name", ["n.x", "user.tags.first", "user.tags[9]"])
async def test_a_name_that_does_not_fit_the_object_fails(name: str) -> None:
    with pytest.raises(NodeError, match="cannot set"):
        await edited([{"name": name, "value": 1}])


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a[", "a[x]", "a]b", "a[0]b"])
def test_texts_that_are_no_paths(text: str) -> None:
    with pytest.raises(PathError):
        parse_path(text)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="[]\\", codec="utf-8"), min_size=1), min_size=1, max_size=4
    )
)
def test_a_spelled_path_reads_back_and_finds_what_was_assigned(keys: list[str]) -> None:
    path = tuple(keys)
    assert parse_path(spell_path(path)) == path
    assert read_path(assign_path({}, path, 1), path) == 1
