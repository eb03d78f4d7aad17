"""JSON Schema stays within its document and within its limit of steps."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dalsegno.errors import Finding
from dalsegno.graph.build import load_graph
from dalsegno.graph.documents.document import LIGHT_SCHEMA_STEPS
from dalsegno.graph.json_schema.shape import check_input, found_within, schema_problems
from dalsegno.lang import Limits
from dalsegno.lang.runtime.limits import Heavy, Meter
from dalsegno.lang.values import regex
from tests.effort import examples
from tests.nodes.fakes import REGISTRY
from tests.rows import rows


def reaching(target: str) -> dict[str, Any]:
    hidden = {"a": {"allOf": [{"$id": target, "$ref": "#/foo"}]}}
    return {"$ref": "#/x-hidden/a", "x-hidden": hidden}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def test_a_schema_opens_no_connection(listener: socket.socket) -> None:
    schema = reaching(f"http://127.0.0.1:{listener.getsockname()[1]}/")
    begun = time.process_time()
    (finding,) = check_input(schema, 1)
    assert "'#/foo'" in finding.message
    assert time.process_time() - begun < 5
    with pytest.raises(BlockingIOError):
        listener.accept()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_schema_reads_no_file(tmp_path: Path) -> None:
    file = tmp_path / "secret.json"
    file.write_text(json.dumps({"foo": {"const": "the secret"}}))
    assert all("the secret" not in finding.message for finding in check_input(reaching(file.as_uri()), 1))


@rows(
    ("schema", "pointer"),
    [
        (reaching("http://example.com/"), "/x-hidden/a/allOf/0/$id"),
        ({"x": [{"y": {"$id": "http://example.com/"}}]}, "/x/0/y/$id"),
        ({"x": {"$ref": "file:///etc/passwd"}}, "/x/$ref"),
        ({"properties": {"a": {"$id": "urn:b"}}}, "/properties/a/$id"),
        ({"items": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "/items/$schema"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "http://e.com"}}, "/not/id"),
        ({"$schema": "http://example.com/own"}, "/$schema"),
        ({"$dynamicRef": "http://example.com/"}, "/$dynamicRef"),
        ({"anyOf": [{"$ref": "#/$defs/gone"}]}, "/anyOf/0/$ref"),
        ({"$ref": "#/$defs", "$defs": {"a": {"type": "text"}}}, "/$defs/a/type"),
        ({"$ref": "#gone"}, "/$ref"),
        ({"$ref": "#/const", "const": {"$ref": "http://example.com/"}}, "/const/$ref"),
        ({"$ref": "#/title", "title": "no schema"}, "/$ref"),
        ({"allOf": []}, "/allOf"),
        ({"properties": {"a": 1}}, "/properties/a"),
        ({"minLength": -1}, "/minLength"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"enum": "a"}, "/enum"),
        ({"pattern": "a" * 1001}, "/pattern"),
    ],
)
def test_what_a_schema_may_not_hold(schema: dict[str, Any], pointer: str) -> None:
    assert pointer in [place for place, _ in schema_problems(schema)]


def test_names_of_members_and_data_are_no_keywords() -> None:
    schema = {
        "$id": "https://example.com/root",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"$id": {"type": "string"}, "$ref": {"$anchor": "ref"}, "id": {"$ref": "#ref"}},
        "default": {"$id": "x", "$ref": "y"},
        "const": {"$schema": 1},
    }
    assert schema_problems(schema) == []


def test_a_nested_dialect_does_not_change_how_patterns_run() -> None:
    nested = {"allOf": [{"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}]}
    begun = time.process_time()
    assert check_input(nested, "a" * 50_000 + "b")
    assert time.process_time() - begun < 5


def doubled(times: int) -> dict[str, Any]:
    defs: dict[str, Any] = {"a0": {"type": "integer"}}
    for number in range(1, times + 1):
        defs[f"a{number}"] = {"allOf": [{"$ref": f"#/$defs/a{number - 1}"}] * 2}
    return {"$ref": f"#/$defs/a{times}", "$defs": defs}


def test_doubled_references_end_at_the_limit() -> None:
    assert schema_problems(doubled(40)) == []
    (finding,) = check_input(doubled(40), 1, steps=20_000)
    assert "20,000 steps (limit 'schema_steps')" in finding.message


UNEVALUATED = {"allOf": [{"patternProperties": {"^(a+)+$": True}}], "unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({"uniqueItems": True}, [{"a": number, "b": [1, 2]} for number in range(20_000)]),
        ({"uniqueItems": True}, [number * (2**61 - 1) for number in range(20_000)]),
        ({"enum": [{"a": number} for number in range(20_000)]}, {"a": 19_999}),
        ({"items": {"enum": list(range(5_000))}}, [4_999] * 5_000),
        ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * number: 1 for number in range(1, 500)}),
        (UNEVALUATED, {"a" * number: 1 for number in range(1, 500)}),
    ],
)
def test_comparing_takes_linear_time(schema: dict[str, Any], payload: Any) -> None:
    begun = time.process_time()
    assert check_input(schema, payload) == []
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    "part",
    [
        {"items": True},
        {"contains": True, "minContains": 100_000},
        {"unevaluatedItems": True},
        {"prefixItems": [True] * 1_000},
    ],
)
def test_boolean_schemas_cost_steps_like_all_others(part: dict[str, Any]) -> None:
    """Otherwise four thousand of them walk over a long list four thousand times for nothing."""
    assert found_within({"allOf": [part] * 20}, [0] * 10_000, 10_000) is None


def test_messages_do_not_write_out_large_values() -> None:
    large = {f"k{number}": "x" * 1000 for number in range(5_000)}
    wrong = {"anyOf": [{"type": "string"}] * 1000}
    begun = time.process_time()
    (finding,) = check_input(wrong, large)
    assert len(finding.message) < 400
    assert time.process_time() - begun < 2


def test_a_pointer_with_an_endless_name_is_cut() -> None:
    (finding,) = check_input({"additionalProperties": {"type": "string"}}, {"x" * 1_000_000: 1})
    assert len(finding.pointer) < 300


# -- the same verdicts as the reference implementation -----------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.0, 0.5, "", "a", "ab", "b1"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=6,
)
COUNTS = st.integers(0, 3)
PATTERNS = st.sampled_from(["a", "^b", "[0-9]$"])
NAMES = st.lists(st.sampled_from("abc"), unique=True, max_size=2)


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(below, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from("abc"), below, max_size=2)
    fields: dict[str, st.SearchStrategy[Any]] = {
        "$ref": st.sampled_from(["#/$defs/a", "#/$defs/b"]),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), several),
        **dict.fromkeys(
            ("not", "if", "then", "else", "contains", "propertyNames", "additionalProperties"), below
        ),
        **dict.fromkeys(("items", "unevaluatedItems", "unevaluatedProperties"), below),
        **dict.fromkeys(("properties", "dependentSchemas", "dependencies"), named),
        "patternProperties": st.dictionaries(PATTERNS, below, max_size=2),
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), COUNTS
        ),
        **dict.fromkeys(("minProperties", "maxProperties", "minimum", "maximum"), COUNTS),
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), COUNTS),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "pattern": PATTERNS,
        "uniqueItems": st.booleans(),
        "required": NAMES,
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), NAMES, max_size=2),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "type": st.sampled_from(["array", "integer", "number", "object", "string", ["null", "boolean"]]),
    }
    keyword = st.sampled_from(sorted(fields)).flatmap(lambda name: st.tuples(st.just(name), fields[name]))
    return st.lists(keyword, max_size=4).map(dict)


SCHEMAS = st.recursive(st.booleans() | st.just({}), _schemas, max_leaves=8)
REFERENCE = {
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}


@examples(300)
@given(SCHEMAS, VALUES, st.sampled_from(sorted(REFERENCE)))
def test_verdicts_are_those_of_the_reference(schema: Any, value: Any, dialect: str) -> None:
    known = {"a": {"type": ["integer", "object"]}, "b": {"properties": {"a": True}, "required": ["a"]}}
    root = {"allOf": [schema], "$defs": known, "$schema": dialect}
    assert schema_problems(root) == []
    assert (check_input(root, value) == []) == REFERENCE[dialect](root).is_valid(value)


def test_additional_items_follow_listed_ones() -> None:
    older = {"$schema": "http://json-schema.org/draft-07/schema#"}
    listed = {**older, "items": [{"type": "string"}], "additionalItems": {"type": "integer"}}
    assert [finding.pointer for finding in check_input(listed, ["a", 1, "b"])] == ["/2"]
    assert check_input({**older, "items": True, "additionalItems": False}, [1]) == []


# -- patterns ---------------------------------------------------------------------------------------------------------

MANY_STATES = {"allOf": [{"pattern": f"a[ab]{{{999 - number}}}c"} for number in range(6)]}
"""Each search takes a second for 60 KB: as long as its machine is large."""
TEXT = "".join(Random(1).choices("ab", k=60_000))
LARGE = {"allOf": [{"pattern": r"(\pL|\pN|\pS)*" * 60 + str(number)} for number in range(8)]}
UNICODE = {"patternProperties": {rf"[\pL\pN]{{{100 - number}}}": {} for number in range(40)}}


def light(schema: dict[str, Any], value: Any) -> tuple[list[Finding] | None, float]:
    """The outcome of a check within the event loop, and the processor time that it took."""
    began = time.thread_time()
    found = found_within(schema, value, LIGHT_SCHEMA_STEPS, is_light=True)
    return found, time.thread_time() - began


@pytest.mark.parametrize(
    ("schema", "value"),
    [(MANY_STATES, TEXT), (LARGE, "x"), (UNICODE, {"x": 1})],
    ids=["long", "large", "many"],
)
def test_a_light_check_gives_up_before_a_costly_pattern(schema: dict[str, Any], value: Any) -> None:
    found, seconds = light(schema, value)
    assert found is None
    assert seconds < 0.02


def test_a_search_costs_as_many_steps_as_its_machine_may_take() -> None:
    began = time.thread_time()
    assert found_within(MANY_STATES, TEXT, 200_000) is None
    assert time.thread_time() - began < 0.2


def test_a_light_check_of_usual_patterns_needs_no_other_process() -> None:
    schema = {"patternProperties": {"^[a-z0-9_]{3,20}$": {"pattern": r"^[\w.+-]+@[\w-]+\.[\w.-]+$"}}}
    found, _ = light(schema, {"mail_1": "ann@example.com", "mail_2": "ann"})
    assert found is not None
    assert [each.pointer for each in found] == ["/mail_2"]


def test_a_pattern_that_needs_too_much_memory_is_refused_where_it_is_deployed() -> None:
    assert [place for place, _ in schema_problems({"pattern": r"\pL{1000}"})] == ["/pattern"]
    found = check_input({"pattern": r"\pL{1000}"}, "x")  # stored before that was so
    assert "pattern too large" in found[0].message


def test_stored_forms_are_not_compiled_where_they_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    form = {"properties": {"a": {"pattern": r"[\pL\pN]{90}"}}}
    nodes = [{"id": "ask", "type": "approval", "parameters": {"form": form}}]
    source = load_graph({"name": "w", "nodes": nodes}, REGISTRY).definition_source
    regex._known.clear()
    monkeypatch.setattr(regex.re2, "compile", None)
    assert load_graph(source, REGISTRY, stored=True).plan.name == "w"
    with pytest.raises(Heavy):
        load_graph(source, REGISTRY, meter=Meter(Limits(instructions=10_000, is_light=True)))
