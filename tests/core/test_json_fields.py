"""Bodies are read by their shape as Python's own reader reads them, and what is kept is written as values are."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from msgspec import Raw

from dalsegno.core.json_fields import (
    MOST_ITEMS,
    MOST_UNKNOWN,
    Shape,
    Unreadable,
    packed_fields,
    read_fields,
    unpacked_fields,
)
from dalsegno.core.values import MAX_DEPTH, encode_value
from dalsegno.errors import DalSegnoError, LimitExceeded, NotJson
from tests.rows import rows

SHAPE = Shape(
    values={"input": "the input"},
    documents={"definition": "the definition"},
    members={"context": "the edited value of '%s'"},
    known=("workflow", "input", "definition", "context", "tags"),
)
VALUES = [
    "1",
    "-0",
    "-0.0",
    "1.0",
    "1E5",
    "1e-400",
    "0.1000000000000000055",
    "123456789012345678901234567890",
    "-9223372036854775809",
    '"a\\u00e9\\/\\ud83d\\ude00"',
    '"\\u0000\x7f"',
    '{"b":1,"a":2,"b":3}',
    '[ 1 , { "x" : [ ] } ]',
    "true",
    '"null"',
    "[" * MAX_DEPTH + "]" * MAX_DEPTH,
]
REFUSED = [
    "NaN",
    "[-Infinity]",
    "1e400",
    '{"a":[null,NaN]}',
    '"\\ud800"',
    '{"\\ud83dx":1}',
    "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
]
MALFORMED = [
    b"{",
    b'{"input":1,}',
    b'{"input":01}',
    b'{"input":"a\x01b"}',
    b'{"input":1}x',
    b'{"input":\xff}',
    b'{"input":"\xff"}',
    b'{"input":%b}' % (b"9" * 5000),
    b'{"input":%b}' % (b"[" * 100_000),
    b"nope",
]


def both(body: bytes) -> Any:
    """As it is read here; a process must read the same."""
    outcomes: list[Any] = []
    for read in (lambda: read_fields(body, SHAPE), lambda: unpacked_fields(packed_fields(body, SHAPE))):
        try:
            found = read()
        except (ValueError, RecursionError, DalSegnoError) as error:
            outcomes.append((type(error), getattr(error, "msg", str(error)), getattr(error, "pos", None)))
        else:
            outcomes.append(plain(found))
    if isinstance(outcomes[0], tuple) and outcomes[0][0] is RecursionError:
        assert outcomes[1][0] is RecursionError
    else:
        assert outcomes[0] == outcomes[1]
    return outcomes[0]


def plain(value: Any) -> Any:
    if isinstance(value, Raw):
        return bytes(value)
    return {name: plain(inner) for name, inner in value.items()} if isinstance(value, dict) else value


@rows("text", VALUES)
def test_a_kept_value_is_what_encoding_the_decoded_one_gives(text: str) -> None:
    body = f'{{"workflow": "w", "input": {text}, "context": {{"$a": {text}}}}}'.encode()
    wanted = encode_value(json.loads(text))
    assert both(body) == {"workflow": "w", "input": wanted, "context": {"$a": wanted}}


@pytest.mark.parametrize("text", REFUSED)
def test_what_json_cannot_carry_is_refused_in_the_same_words(text: str) -> None:
    with pytest.raises(NotJson) as wanted:
        encode_value(json.loads(text), "the input")
    for read in (read_fields, packed_fields):
        with pytest.raises(NotJson) as found:
            read(f'{{"input": {text}}}'.encode(), SHAPE)
        assert str(found.value) == str(wanted.value)


@pytest.mark.parametrize("body", MALFORMED)
def test_a_malformed_body_is_refused_as_the_standard_library_does(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)) as wanted:
        json.loads(body)
    found, message, position = both(body)
    if isinstance(wanted.value, json.JSONDecodeError):
        assert (found, message, position) == (json.JSONDecodeError, wanted.value.msg, wanted.value.pos)
    else:
        assert found is (RecursionError if wanted.type is RecursionError else Unreadable)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_other_encodings_are_read(encoding: str) -> None:
    assert both('{"workflow": "é", "input": ["é"]}'.encode(encoding)) == {
        "workflow": "é",
        "input": '["é"]'.encode(),
    }


def test_null_is_no_value() -> None:
    assert both(b'{"input": null, "definition": null, "context": {"$a": null}}') == {
        "input": None,
        "definition": None,
        "context": {"$a": None},
    }


def test_a_document_is_kept_and_what_is_none_keeps_its_type() -> None:
    assert both(b'{"definition": {"a": 1.50}}') == {"definition": b'{"a":1.5}'}
    assert both(b'{"definition": "text"}') == {"definition": "text"}
    assert both(b'{"definition": [1, 2]}') == {"definition": []}
    assert both(b"[1, 2]") == []
    assert both(b'{"context": [1], "tags": {"a": "b"}}') == {"context": [1], "tags": {"a": "b"}}


def test_of_unknown_fields_only_the_first_names_count() -> None:
    body = json.dumps({"workflow": "w", **{f"x{number}": [[]] * 9 for number in range(5000)}}).encode()
    found = both(body)
    assert len(found) == 1 + MOST_UNKNOWN
    assert found.pop("workflow") == "w"
    assert set(found.values()) == {None}


def test_the_rest_of_an_open_body_is_one_document() -> None:
    shape = Shape(
        values={"input": "the input"}, known=("name", "dag", "input"), rest="document", apart=("input",)
    )
    body = b'{"name": "n", "dag": {"nodes": [1]}, "input": {"a": 1}, "document": 2, "edges": []}'
    found = read_fields(body, shape)
    assert plain(found) == {
        "name": "n",
        "dag": {},
        "input": b'{"a":1}',
        "document": b'{"name":"n","dag":{"nodes":[1]},"document":2,"edges":[]}',
    }
    assert plain(unpacked_fields(packed_fields(body, shape))) == plain(found)


def test_objects_of_a_list_keep_fields_of_their_own() -> None:
    one = Shape(values={"input": "the input"}, known=("name", "input"))
    shape = Shape(items={"starts": one}, known=("starts",))
    body = b'{"starts": [{"name": "n", "input": {"a": [1.0, 2]}}, {"input": null, "x": [1]}, 7, [1]]}'
    expected = [{"name": "n", "input": Raw(b'{"a":[1.0,2]}')}, {"input": None, "x": None}, 7, []]
    assert read_fields(body, shape) == {"starts": expected}
    assert unpacked_fields(packed_fields(body, shape)) == {"starts": expected}
    assert read_fields(b'{"starts": {"input": 1}}', shape) == {"starts": {"input": 1}}


def test_of_a_list_no_more_is_read_than_shows_that_it_is_too_long() -> None:
    shape = Shape(items={"starts": Shape(known=("name",))})
    for found in (read_fields, lambda *given: unpacked_fields(packed_fields(*given))):
        assert (
            len(found(b'{"starts": [' + b",".join([b"{}"] * 5000) + b"]}", shape)["starts"]) == MOST_ITEMS + 1
        )


def test_fields_that_are_not_kept_are_limited_between_processes() -> None:
    large = json.dumps({"tags": {str(number): "x" for number in range(200_000)}}).encode()
    with pytest.raises(LimitExceeded):
        packed_fields(large, SHAPE)
    text = json.dumps({"definition": "x" * 3_000_000}).encode()
    assert len(unpacked_fields(packed_fields(text, SHAPE))["definition"]) == 3_000_000
    with pytest.raises(NotJson):
        packed_fields(b'{"workflow": "\\ud800"}', SHAPE)


def test_numbers_of_a_strict_reader_are_finite() -> None:
    assert math.isfinite(float(read_fields(b'{"workflow": 1e308}', SHAPE)["workflow"]))
