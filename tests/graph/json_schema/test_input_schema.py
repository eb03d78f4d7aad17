"""The start payload against its schema."""

from __future__ import annotations

from dalsegno.graph.json_schema.shape import check_input, schema_problems

SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "mail": {"type": "string", "pattern": "^[^@]+@[^@]+$"}},
    "patternProperties": {"^x-": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}


def pointers(payload: object) -> list[str]:
    return sorted(finding.pointer for finding in check_input(SCHEMA, payload))


def test_payloads() -> None:
    assert pointers({"id": 1, "mail": "a@b", "x-y": "z"}) == []
    assert pointers({"id": "1", "mail": "nobody", "x-y": 3}) == ["/id", "/mail", "/x-y"]
    assert pointers({}) == [""]
    assert pointers([]) == [""]
    (finding,) = check_input(SCHEMA, {"id": 1, "colour": "red"})
    assert "'colour' is not expected here" in finding.message


def test_a_pattern_cannot_run_for_hours() -> None:
    assert len(check_input({"pattern": "^(a+)+$"}, "a" * 50_000 + "b")) == 1


def test_a_schema_that_never_ends_is_a_finding() -> None:
    assert check_input({"$ref": "#"}, {"a": 1})
    assert check_input({"$ref": "#/$defs/missing"}, 1)


def test_local_references_are_fine() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "items": {"$ref": "#/$defs/n"}}
    assert schema_problems(schema) == []
    assert [finding.pointer for finding in check_input(schema, [1, "x"])] == ["/1"]


def test_problems_of_a_schema() -> None:
    assert [pointer for pointer, _ in schema_problems({"required": "id"})] == ["/required"]
    both = {"patternProperties": {"(": True}, "unevaluatedProperties": False}
    assert [pointer for pointer, _ in schema_problems(both)] == ["/patternProperties/("]
