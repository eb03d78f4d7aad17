"""The fields of a JSON object from a caller: known fields are decoded, user values are kept as JSON.

A kept value was decoded and encoded once: it is valid JSON, its numbers and texts are written as in every
stored value, no name occurs twice in an object, and its nesting is within the limit. Later readers need not
check that again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import MAX_DEPTH, encode_parsed, encode_value
from dalsegno.errors import BadRequest, InvalidInput, LimitExceeded, NotJson

MOST_UNKNOWN: Final = 200
"""Unknown fields whose names are kept; the error lists fewer."""
MOST_ITEMS: Final = 1000
"""Objects read from a list; one more is read to show that there are too many."""
PLAIN_BYTES: Final = 1024 * 1024
"""Bytes that the decoded fields may take together, texts aside, if they come from another process."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


class Shape(Struct, frozen=True):
    """The fields of an object that are kept as JSON, each with its name in messages."""

    values: dict[str, str] = {}
    """Any JSON; null stays None."""
    documents: dict[str, str] = {}
    """Objects; a text stays a text."""
    members: dict[str, str] = {}
    """Objects whose members are kept separately; ``%s`` in the message is a member's name."""
    known: tuple[str, ...] | None = None
    """All known fields. Of others only the name is kept, for the error. None: every field is read."""
    rest: str | None = None
    """Name under which all fields but ``apart``, known or not, are kept as one document."""
    apart: tuple[str, ...] = ()
    items: dict[str, Shape] = {}
    """Lists of objects, each of which is read by a shape of its own. Such a shape has no items, members or rest."""


class Unreadable(ValueError):
    """The body cannot be read as JSON, for a reason other than its syntax."""


def read_fields(body: bytes, shape: Shape) -> Any:
    """Return the object, with `Raw` for the fields its shape keeps.

    A body that is no object is returned without its content.

    Raises json.JSONDecodeError, Unreadable, RecursionError, and NotJson for a value that JSON cannot carry.
    """
    found, is_strict = _parsed(body)
    return _read_object(found, shape, is_strict=is_strict)


def _read_object(found: Any, shape: Shape, *, is_strict: bool) -> Any:
    if not isinstance(found, dict):
        return _empty_like(found)
    fields = {
        name: _field(name, value, shape, is_strict=is_strict)
        for name, value in found.items()
        if shape.known is None or name in shape.known
    }
    if shape.rest is not None:
        whole = {name: value for name, value in found.items() if name not in shape.apart}
        fields[shape.rest] = _document(whole, "the document", is_strict=is_strict)
    elif len(fields) < len(found):
        unknown = (name for name in found if name not in fields)
        fields |= dict.fromkeys(islice(unknown, MOST_UNKNOWN))
    return fields


def _field(name: str, value: Any, shape: Shape, *, is_strict: bool) -> Any:
    if name in shape.values:
        return _kept(value, shape.values[name], is_strict=is_strict)
    if name in shape.documents:
        return _document(value, shape.documents[name], is_strict=is_strict)
    if name in shape.members and isinstance(value, dict):
        what = shape.members[name]
        return {each: _kept(own, what % each, is_strict=is_strict) for each, own in value.items()}
    if name in shape.items and isinstance(value, list):
        own = shape.items[name]
        return [_read_object(each, own, is_strict=is_strict) for each in value[: MOST_ITEMS + 1]]
    return value if shape.rest is None else _empty_like(value)


def _parsed(body: bytes) -> tuple[Any, bool]:
    """Return the value, and True if a strict decoder accepted it: it is then finite and valid Unicode throughout."""
    try:
        return _decode(body), True
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        return json.loads(body), False
    except (json.JSONDecodeError, RecursionError):
        raise
    except ValueError as error:
        raise Unreadable(str(error)) from None


def _kept(value: Any, what: str, *, is_strict: bool) -> Raw | None:
    if value is None:
        return None
    return Raw(encode_parsed(value, what) if is_strict else encode_value(value, what))


def _document(value: Any, what: str, *, is_strict: bool) -> Any:
    if not isinstance(value, dict):
        return _empty_like(value)
    return Raw(msgspec.json.encode(value) if is_strict else encode_value(value, what))


def _empty_like(value: Any) -> Any:
    """Return an empty value of the same type: error messages name only the type."""
    return type(value)() if isinstance(value, dict | list) else value


def read_delivery(body: bytes) -> bytes:
    """Return the stored JSON of a webhook delivery, one level below the input. Raises BadRequest and NotJson."""
    try:
        value = _decode(body)
    except RecursionError:
        raise BadRequest(f"the body is nested more than {MAX_DEPTH} levels deep") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BadRequest(f"the body is not valid JSON: {str(error)[:200]}") from None
    return encode_parsed([value], "the input")[1:-1]


# -- definitions -----------------------------------------------------------------------------------------------


def read_object(body: bytes, kind: Any) -> dict[str, Any]:
    """Return a definition's body, which must be an object. Raises BadRequest, NotJson and InvalidInput."""
    try:
        found = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        found = None
    except RecursionError:
        raise NotJson(f"the body is nested more than {MAX_DEPTH} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidInput("/body: send an object: a graph document, or {document: …} or {source: …}")
    return found


def read_parts(body: bytes) -> dict[str, Raw]:
    """Return the object's fields as undecoded JSON."""
    return read_object(body, dict[str, Raw])


def is_graph(found: Mapping[str, Any]) -> bool:
    """Return True if the object is a graph document itself."""
    return "nodes" in found or "dag" in found


def source_parts(body: bytes) -> dict[str, bytes]:
    """Return the fields for another process; empty for a graph document, which is kept whole."""
    found = read_parts(body)
    return {} if is_graph(found) else {name: bytes(found[name]) for name in islice(found, MOST_UNKNOWN)}


# -- between processes -----------------------------------------------------------------------------------------


def packed_fields(body: bytes, shape: Shape) -> dict[str, Any]:
    """Read the fields for another process: plain values, or the exception to raise there."""
    try:
        found = read_fields(body, shape)
    except json.JSONDecodeError as error:
        return {"syntax": [error.msg, error.pos, error.lineno, error.colno]}
    except Unreadable as error:
        return {"unreadable": str(error)[:200]}
    except RecursionError:
        return {"deep": True}
    if not isinstance(found, dict):
        return {"plain": found}
    kept = {name: value for name, value in found.items() if isinstance(value, Raw)}
    members = {name: each for name, each in found.items() if name in shape.members and isinstance(each, dict)}
    items = {name: each for name, each in found.items() if name in shape.items and isinstance(each, list)}
    plain = {name: found[name] for name in found.keys() - kept.keys() - members.keys() - items.keys()}
    packed_items = {name: [_packed_item(each) for each in value] for name, value in items.items()}
    _refuse_much([plain, *(each[0] for value in packed_items.values() for each in value)])
    return {
        "plain": plain,
        "kept": {name: bytes(value) for name, value in kept.items()},
        "members": {
            name: {each: None if own is None else bytes(own) for each, own in value.items()}
            for name, value in members.items()
        },
        "items": packed_items,
    }


def _packed_item(item: Any) -> tuple[Any, dict[str, bytes]]:
    """Return the item's decoded fields and its kept ones. An item that is no object has no fields."""
    if not isinstance(item, dict):
        return item, {}
    kept = {name: bytes(value) for name, value in item.items() if isinstance(value, Raw)}
    return {name: value for name, value in item.items() if name not in kept}, kept


def _unpacked_item(plain: Any, kept: Mapping[str, bytes]) -> Any:
    return {**plain, **{name: Raw(raw) for name, raw in kept.items()}} if isinstance(plain, dict) else plain


def _refuse_much(objects: Sequence[Any]) -> None:
    try:
        size = len(_encode([_without_texts(each) for each in objects]))
        _encode(objects)
    except UnicodeEncodeError:
        raise NotJson("the body is not JSON: it contains a character that is not valid Unicode") from None
    except OverflowError:
        raise NotJson("a field of the body is an integer of more than 64 bits") from None
    if size > PLAIN_BYTES:
        raise LimitExceeded(
            f"the fields of the body, without the data of users, take more than {PLAIN_BYTES:,} bytes"
        )


def _without_texts(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if not isinstance(each, str)}


def unpacked_fields(reply: Mapping[str, Any]) -> Any:
    """Return what `read_fields` would return, or raise what it would raise."""
    if "syntax" in reply:
        message, position, line, column = reply["syntax"]
        error = json.JSONDecodeError(message, "", position)
        error.lineno, error.colno = line, column
        raise error
    if "unreadable" in reply:
        raise Unreadable(reply["unreadable"])
    if "deep" in reply:
        raise RecursionError("the body is nested too deeply")
    if "kept" not in reply:
        return reply["plain"]
    members = {
        name: {each: None if own is None else Raw(own) for each, own in value.items()}
        for name, value in reply["members"].items()
    }
    items = {
        name: [_unpacked_item(plain, kept) for plain, kept in value] for name, value in reply["items"].items()
    }
    return {**reply["plain"], **{name: Raw(raw) for name, raw in reply["kept"].items()}, **members, **items}
