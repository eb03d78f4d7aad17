"""Values as text: compact JSON with a limit on depth and size, and the texts that ``+`` and templates make."""

from __future__ import annotations

import json
import math
from json.encoder import encode_basestring
from operator import itemgetter

from dalsegno.lang.effects import ErrorValue
from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.limits import MAX_NESTING
from dalsegno.lang.numerals import number_text
from dalsegno.lang.promises import Promise, describe
from dalsegno.lang.values import Builtin, FunctionValue, Host, Value, kind_of


def path_text(path: list[str | int]) -> str:
    """A readable place inside a value: ``.orders[2].total``."""
    return (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path) or "the value itself"
    )


def find_foreign(value: Value, host: Host, path: list[str | int] | None = None) -> str | None:
    """Why the value is no JSON (NaN, Infinity, a function, too deep), naming the place; None if it is."""
    path = [] if path is None else path
    if isinstance(value, (list, dict)):
        if len(path) >= MAX_NESTING:
            raise limit_exceeded(f"the value is nested deeper than {MAX_NESTING} levels")
        host.meter.work(len(value))
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            if type(item) is not str and (found := find_foreign(item, host, [*path, key])):
                return found
        return None
    if type(value) is float and not math.isfinite(value):
        return f"{number_text(value)} at {path_text(path)}: it is no JSON number"
    if isinstance(value, (FunctionValue, Builtin)):
        return f"a function at {path_text(path)}: only data can leave an expression"
    return None


class _JsonWriter:
    """Writes pieces and charges the meter as it goes, so that a huge result stops early."""

    def __init__(self, host: Host, indent: str, sort_keys: bool) -> None:
        self.host = host
        self.sort_keys = sort_keys
        self.indent = indent
        self.colon = ": " if indent else ":"
        self.pieces: list[str] = []

    def put(self, piece: str) -> None:
        self.host.meter.allocate(len(piece), "JSON text")
        self.pieces.append(piece)

    def write(self, value: Value, depth: int) -> None:
        if isinstance(value, str):
            self.put(encode_basestring(value))
        elif value is None or isinstance(value, bool):
            self.put("null" if value is None else str(value).lower())
        elif isinstance(value, (int, float)):
            if isinstance(value, float) and not math.isfinite(value):
                raise type_error(f"{number_text(value)} cannot be written as JSON")
            # Beyond 1e21 the digits of a float are not its value; the shortest form reads back as the same number.
            self.put(repr(value) if isinstance(value, float) and abs(value) >= 1e21 else number_text(value))
        elif isinstance(value, list):
            self.members("[]", [("", item) for item in value], depth)
        elif isinstance(value, dict):
            fields = sorted(value.items(), key=itemgetter(0)) if self.sort_keys else value.items()
            self.members("{}", [(encode_basestring(key) + self.colon, item) for key, item in fields], depth)
        elif isinstance(value, Promise):
            self.put(encode_basestring(value.id))
        elif isinstance(value, ErrorValue):
            self.write(describe(value), depth)
        else:
            raise type_error(f"a {kind_of(value)} cannot be written as JSON")

    def members(self, brackets: str, members: list[tuple[str, Value]], depth: int) -> None:
        if depth >= MAX_NESTING:
            raise limit_exceeded(f"cannot write a value nested deeper than {MAX_NESTING} levels as JSON")
        if not members:
            self.put(brackets)
            return
        self.host.meter.work(len(members))
        newline = f"\n{self.indent * (depth + 1)}" if self.indent else ""
        self.put(brackets[0])
        for position, (prefix, item) in enumerate(members):
            self.put(("," if position else "") + newline + prefix)
            self.write(item, depth + 1)
        self.put((f"\n{self.indent * depth}" if self.indent else "") + brackets[1])


def to_json(value: Value, host: Host, indent: str = "", sort_keys: bool = False) -> str:
    """Compact JSON (indented if asked), integral numbers without a decimal point."""
    writer = _JsonWriter(host, indent, sort_keys)
    writer.write(value, 0)
    return "".join(writer.pieces)


def _reject_constant(name: str) -> Value:
    raise ValueError(f"{name} is not JSON")


def check_json_nesting(text: str) -> None:
    """Refuse deep text before the recursive parser sees it; brackets inside strings do not count."""
    depth, position, in_string = 0, 0, False
    while position < len(text):
        character = text[position]
        if in_string:
            position += character == "\\"
            in_string = character != '"'
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            if depth > MAX_NESTING:
                raise limit_exceeded(f"JSON nested deeper than {MAX_NESTING} levels")
        elif character in "]}":
            depth -= 1
        position += 1


def from_json(text: str, host: Host) -> Value:
    """`ValueError` if it is no JSON."""
    host.meter.allocate(len(text), "JSON.parse")
    host.meter.work(len(text) // 16)
    if text.count("[") + text.count("{") > MAX_NESTING:
        check_json_nesting(text)
    value = json.loads(text, parse_constant=_reject_constant)
    if "\\ud" in text.lower():
        # Half a surrogate pair is no character: encoding fails on it, as a ValueError.
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def to_text(value: Value, host: Host) -> str:
    """What ``+``, ``String()`` and template literals write: null as ``null``, containers as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if isinstance(value, (list, dict)):
        return to_json(value, host)
    if isinstance(value, Promise):
        return value.id
    if isinstance(value, ErrorValue):
        return value.message
    raise type_error(f"a {kind_of(value)} has no text")
