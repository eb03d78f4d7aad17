"""Text to data: JSON and YAML, their limits, and where they say a mistake is."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.errors import InvalidDefinition
from dalsegno.graph.documents.document import DocumentLimits, read_document
from tests.rows import rows

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

CASES: dict[str, tuple[Any, str, str, str]] = {
    "JSON syntax": ('{\n  "nodes": [}', "", "syntax", "Line 2, column 13"),
    "JSON cut off": ('{"nodes": [', "", "syntax", "Line 1, column"),
    "JSON key twice": ('{"nodes": [{"id": 1, "id": 2}]}', "/nodes/0/id", "duplicate-key", "twice"),
    "JSON NaN": ('{"a": [NaN]}', "/a/0", "not-finite", "NaN"),
    "JSON number that overflows": ('{"a": -1e999}', "/a", "not-finite", "Infinity"),
    "JSON huge integer": ('{\n"a": ' + "1" * 5000 + "}", "", "too-large", "Line 2: a number has more than 4,300"),
    "JSON half a surrogate": (r'{"a": "\ud800"}', "/a", "encoding", "surrogate"),
    "JSON half a surrogate in a key": (r'{"a": {"\ud800": 1}}', "/a", "encoding", "surrogate"),
    "JSON too deep": ('{"a":' * 201 + "1" + "}" * 201, "/a" * 201, "too-deep", "200 levels"),
    "JSON far too deep": ("[" * 200_000, "", "too-deep", "flatten"),
    "invalid UTF-8": (b'{"a":\n "\xff"}', "", "encoding", "Byte 8 (line 2)"),
    "YAML with a tab": ("a:\n\tb: 1", "", "syntax", "Line 2, column 1"),
    "YAML syntax": ("nodes:\n  - a: [1,\n  - b", "", "syntax", "Line"),
    "YAML key twice": ("a: 1\nb:\n  c: 1\n  c: 2", "", "duplicate-key", "Line 4, column"),
    "YAML tag": ("a: !!python/object/apply:os.system [ls]", "", "syntax", "tag"),
    "YAML binary": ("a: !!binary aGk=", "", "syntax", "tag"),
    "YAML not a number": ("a: .nan", "", "not-finite", "Line 1, column 4"),
    "YAML huge integer": ("a: " + "9" * 4301, "", "too-large", "4,300"),
    "YAML key is a list": ("? [a]\n: 1", "", "syntax", "key must be text"),
    "YAML key is null": ("~: 1", "", "syntax", "reads ~ as null"),
    "YAML unknown alias": ("a: *b", "", "syntax", "'*b'"),
    "YAML alias in its own anchor": ("a: &a [*a]", "", "syntax", "no finished anchor"),
    "YAML billion laughs": (LAUGHS, "", "too-large", "aliases repeat"),
    "YAML too deep": ("a: " + "[" * 300 + "]" * 300, "", "too-deep", "200 levels"),
    "YAML two documents": ("a: 1\n---\nb: 1", "", "syntax", "Line 2"),
    "YAML control character": ("a: \x01", "", "encoding", "not allowed"),
    "YAML half a surrogate": ("a: \ud800", "", "encoding", "surrogate"),
    "YAML merge of a text": ("<<: x", "", "syntax", "'<<'"),
    "text": ("just text", "", "not-an-object", "object"),
    "too large": ('{"a": "' + "x" * 10_000_000 + '"}', "", "too-large", "10,000,009 bytes"),
    "a set": ({"a": {1, 2}}, "/a", "not-json", "type set"),
    "a tuple key": ({"a": {(1, 2): 3}}, "/a", "not-json", "not text"),
    "infinity in a mapping": ({"a": float("inf")}, "/a", "not-finite", "Infinity"),
    "a huge integer in a mapping": ({"a": 10**5000}, "/a", "too-large", "4,300"),
}  # fmt: skip


@rows("case", CASES.values(), ids=CASES.keys())
def test_unreadable_document_is_refused_with_its_place(case: tuple[Any, str, str, str]) -> None:
    source, pointer, rule, words = case
    with pytest.raises(InvalidDefinition) as refused:
        read_document(source)
    finding = refused.value.findings[0]
    assert (finding.pointer, finding.rule) == (pointer, rule), finding
    assert words in finding.message


def test_a_mapping_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(InvalidDefinition, match="200 levels"):
        read_document(endless)


def test_every_impurity_is_reported() -> None:
    with pytest.raises(InvalidDefinition) as refused:
        read_document('{"a": NaN, "b": [1, -Infinity], "c": "\\udc00"}')
    assert {finding.pointer for finding in refused.value.findings} == {"/a", "/b/1", "/c"}


def test_limits_can_be_set() -> None:
    with pytest.raises(InvalidDefinition, match="at most 10 are accepted"):
        read_document('{"a": "longer"}', DocumentLimits(max_bytes=10))
    with pytest.raises(InvalidDefinition, match="2 levels"):
        read_document('{"a": [[1]]}', DocumentLimits(max_depth=2))
    assert read_document('{"a": [1]}', DocumentLimits(max_depth=2)) == {"a": [1]}


def test_depth_of_exactly_the_limit_is_accepted() -> None:
    read_document('{"a":' * 200 + "1" + "}" * 200)
    read_document("a: " + "[" * 199 + "]" * 199)


YAML = {
    "on: [x]": {"on": ["x"]},
    "a: no": {"a": "no"},
    "a: true": {"a": True},
    "a: ~\nb:": {"a": None, "b": None},
    "a: 2024-01-31": {"a": "2024-01-31"},
    "a: 010": {"a": 10},
    "a: 0x1F": {"a": 31},
    "a: 0o17": {"a": 15},
    "a: 1e3": {"a": 1000.0},
    "a: .5": {"a": 0.5},
    "a: 12:30:00": {"a": "12:30:00"},
    'a: "1"': {"a": "1"},
    "a: !!str 1": {"a": "1"},
    "a: 1_000": {"a": "1_000"},
    "1: x": {"1": "x"},
    "a: |\n  two\n  lines\n": {"a": "two\nlines\n"},
    "a: &x {b: 1}\nc: *x": {"a": {"b": 1}, "c": {"b": 1}},
    "a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  c: 3": {"a": {"b": 1, "c": 2}, "d": {"c": 3, "b": 1}},
    "{a: 1, b: [x]}": {"a": 1, "b": ["x"]},
    "\ufeffa: 1": {"a": 1},
    "# only\na: ü": {"a": "ü"},
}


@rows("text", list(YAML))
def test_yaml_follows_the_core_schema(text: str) -> None:
    assert read_document(text) == YAML[text]
    assert read_document(text.encode()) == YAML[text]


def test_json_keeps_what_it_holds() -> None:
    text = '\n {"z": 1, "a": [1.5, 9007199254740993, "\\u0000", null, true], "ü": "🎼"}'
    data = read_document(text.encode())
    assert data == {"z": 1, "a": [1.5, 9007199254740993, "\0", None, True], "ü": "🎼"}
    assert list(data) == ["z", "a", "ü"]
