"""Values that leave a script: as text in ``+`` and templates, and as JSON with a limit on depth and size.

Results, inputs of tasks and options leave as JSON; nothing else does.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from json.encoder import encode_basestring

from dalsegno.lang.errors import limit_exceeded, type_error
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import COPIED, MAX_NESTING, Meter
from dalsegno.lang.runtime.promises import Group, Promise, describe
from dalsegno.lang.values.kinds import Builtin, FunctionValue, Host, Value, kind_of, number_text
from dalsegno.lang.values.sizes import SHORT, Measure, is_small


def path_text(path: list[str | int]) -> str:
    """Return a readable path inside a value: ``.orders[2].total``."""
    return (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path) or "the value itself"
    )


_PLAIN = frozenset({str, int, bool, type(None)})


def find_foreign(value: Value, host: Host, path: list[str | int] | None = None) -> str | None:
    """Return why the value is not JSON (NaN, Infinity, a function, too deep), with the path; None if it is."""
    path = [] if path is None else path
    if isinstance(value, (list, dict)):
        if len(path) >= MAX_NESTING:
            raise limit_exceeded(f"the value is nested deeper than {MAX_NESTING} levels")
        host.meter.work(len(value))
        for key, item in enumerate(value) if isinstance(value, list) else value.items():
            if type(item) not in _PLAIN and (found := find_foreign(item, host, [*path, key])):
                return found
        return None
    if type(value) is float and not math.isfinite(value):
        return f"{number_text(value)} at {path_text(path)}: it is not a JSON number"
    if isinstance(value, (FunctionValue, Builtin)):
        return f"a function at {path_text(path)}: only data can leave an expression"
    return None


_CHUNK = 65_536
"""Characters of a string written at a time, so that a growing result is stopped early."""
_PIECES = 4_096
"""Pieces kept before they are joined: each takes far more memory than its characters."""


class _JsonWriter:
    """Writes pieces and charges the meter on the way, so that a huge result is stopped early."""

    def __init__(self, host: Host, indent: str, sort_keys: bool) -> None:
        self.meter = host.meter
        self.room = host.meter.limits.result_bytes
        self.sort_keys = sort_keys
        self.indent = indent
        self.colon = ": " if indent else ":"
        self.joined: list[str] = []
        self.pieces: list[str] = []

    def put(self, piece: str) -> None:
        self.room -= len(piece)
        if self.room < 0:
            self.meter.allocate(self.meter.limits.result_bytes - self.room, "JSON text")
        self.meter.keep(len(piece), "JSON text")
        self.pieces.append(piece)
        if len(self.pieces) >= _PIECES:
            self.joined.append("".join(self.pieces))
            self.pieces.clear()

    def string(self, text: str, after: str = "") -> None:
        if len(text) <= _CHUNK:
            self.meter.search(len(text))
            self.put(encode_basestring(text) + after)
            return
        self.put('"')
        for start in range(0, len(text), _CHUNK):
            chunk = text[start : start + _CHUNK]
            self.meter.search(len(chunk))
            self.put(encode_basestring(chunk)[1:-1])
        self.put('"' + after)

    def write(self, value: Value, depth: int) -> None:
        if isinstance(value, str):
            self.string(value)
        elif value is None or isinstance(value, bool):
            self.put("null" if value is None else str(value).lower())
        elif isinstance(value, (int, float)):
            if isinstance(value, float) and not math.isfinite(value):
                raise type_error(f"{number_text(value)} cannot be written as JSON")
            # Beyond 1e21 a float's exact digits are not written; the shortest form reads back as the same number.
            self.put(repr(value) if isinstance(value, float) and abs(value) >= 1e21 else number_text(value))
        elif isinstance(value, (list, dict)):
            self.members(value, depth)
        elif isinstance(value, Promise):
            self.put(encode_basestring(value.id))
        elif isinstance(value, ErrorValue):
            self.write(describe(value), depth)
        else:
            raise type_error(f"a {kind_of(value)} cannot be written as JSON")

    def members(self, value: Value, depth: int) -> None:
        opening, closing = "[]" if isinstance(value, list) else "{}"
        if depth >= MAX_NESTING:
            raise limit_exceeded(f"cannot write a value nested deeper than {MAX_NESTING} levels as JSON")
        if not value:
            self.put(opening + closing)
            return
        self.meter.work(len(value))
        newline = f"\n{self.indent * (depth + 1)}" if self.indent else ""
        self.put(opening + newline)
        separator = "," + newline
        if isinstance(value, list):
            for position, item in enumerate(value):
                if position:
                    self.put(separator)
                self.write(item, depth + 1)
        else:
            for position, key in enumerate(self.keys(value)):
                if position:
                    self.put(separator)
                self.string(key, self.colon)
                self.write(value[key], depth + 1)
        self.put((f"\n{self.indent * depth}" if self.indent else "") + closing)

    def keys(self, fields: dict[str, Value]) -> Iterable[str]:
        if not self.sort_keys:
            return fields
        charge_sorting(self.meter, fields)
        return sorted(fields)


def charge_sorting(meter: Meter, texts: Collection[str]) -> None:
    """Charge sorting: each text is compared about log2(n) times."""
    levels = max(1, len(texts).bit_length())
    meter.work(levels * (len(texts) + sum(map(len, texts)) // COPIED))


def to_json(value: Value, host: Host, indent: str = "", sort_keys: bool = False) -> str:
    """Return compact JSON (indented on request); integral numbers have no decimal point."""
    if (type(value) is list or type(value) is dict) and not is_small(value):
        Measure(host.meter, "JSON text", host.meter.limits.result_bytes)(value)
    writer = _JsonWriter(host, indent, sort_keys)
    writer.write(value, 0)
    return host.meter.made("".join([*writer.joined, *writer.pieces]), "JSON text")


def _reject_constant(name: str) -> Value:
    raise ValueError(f"{name} is not JSON")


_PER_VALUE, _PER_QUOTE, _PER_CONTAINER = 32, 16, 128
"""Bytes of a parsed text: per comma or colon, per quote, per bracket."""

_STRUCTURE = re.compile(r'"(?:[^"\\]+|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def check_json_nesting(text: str) -> None:
    """Refuse deeply nested text before the recursive parser runs; brackets inside strings do not count."""
    depth = 0
    for found in _STRUCTURE.finditer(text):
        mark = found.group()
        if mark in ("[", "{"):
            depth += 1
            if depth > MAX_NESTING:
                raise limit_exceeded(f"JSON nested deeper than {MAX_NESTING} levels")
        elif mark in ("]", "}"):
            depth -= 1


def from_json(text: str, host: Host) -> Value:
    """Parse JSON. Raise `ValueError` if the text is not JSON."""
    meter = host.meter
    meter.allocate(len(text), "JSON.parse")
    meter.search(2 * len(text))
    containers = text.count("[") + text.count("{")
    values = text.count(",") + text.count(":") + containers
    quotes = text.count('"')
    meter.work(values + quotes)
    meter.keep(values * _PER_VALUE + quotes * _PER_QUOTE + containers * _PER_CONTAINER, "JSON.parse")
    if containers > MAX_NESTING:
        check_json_nesting(text)
    value = json.loads(text, parse_constant=_reject_constant)
    if "\\ud" in text or "\\uD" in text:
        # A lone surrogate is not a character: encoding fails on it, as a ValueError.
        meter.keep(2 * len(text), "JSON.parse")
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


def to_text(value: Value, host: Host) -> str:
    """Return the text that ``+``, ``String()`` and template literals write.

    Null is ``null``; containers are compact JSON.
    """
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


# -- values that leave a script: results, inputs of tasks, options. Only JSON leaves -------------------------


def plain(host: Host, value: Value, what: str) -> Value:
    """Return the value as JSON, sharing its parts; errors become objects. Throw for a value without a JSON form.

    The error names the path. The size as JSON, repeated parts included, is charged before the value is written.
    """
    kind = type(value)
    if kind is str:
        size = len(value) if len(value) <= SHORT else Measure(host.meter, what)(value)
        host.meter.keep(size, what)
        return value
    if kind in _PLAIN:
        return value
    if kind is list or kind is dict:
        size = 0 if is_small(value) else Measure(host.meter, what)(value)
        left = _container(host, value, [], what)
        if size:
            host.meter.keep(size, what)
        return left
    return _single(host, value, [], what)


def _container(host: Host, value: Value, path: list[str | int], what: str) -> Value:
    if len(path) >= MAX_NESTING:
        raise limit_exceeded(f"{what} is nested deeper than {MAX_NESTING} levels")
    host.meter.work(len(value))
    if set(map(type, value if type(value) is list else value.values())) <= _PLAIN:
        return value
    changed = None
    for key, item in list(enumerate(value)) if type(value) is list else list(value.items()):
        kind = type(item)
        if kind in _PLAIN:
            continue
        inside = [*path, key]
        left = (
            _container(host, item, inside, what)
            if kind is list or kind is dict
            else _single(host, item, inside, what)
        )
        if left is not item:
            changed = value.copy() if changed is None else changed
            changed[key] = left
    return value if changed is None else changed


def _single(host: Host, value: Value, path: list[str | int], what: str) -> Value:
    if type(value) is float:
        if math.isfinite(value):
            return value or 0  # minus zero stays inside the machine
        raise type_error(f"{what} holds {number_text(value)} at {path_text(path)}: it is not a JSON number")
    if type(value) is ErrorValue:
        return _container(host, describe(value), path, what)
    if type(value) in (Promise, Group):
        raise type_error(f"{what} holds a promise at {path_text(path)}: await it first")
    where = f"{what} holds a value of type {kind_of(value)} at {path_text(path)}"
    raise type_error(f"{where}: only data can leave a script")
