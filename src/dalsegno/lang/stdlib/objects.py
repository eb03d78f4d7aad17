"""``Object.*`` and ``JSON.*``."""

from __future__ import annotations

from dalsegno.lang.errors import wrong_argument
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT
from dalsegno.lang.stdlib.arguments import Arguments
from dalsegno.lang.values.kinds import Builtin, Host, Value, charged_key, is_number
from dalsegno.lang.values.to_text import from_json, to_json


def _fields(name: str, host: Host, given: list[Value]) -> dict[str, Value]:
    fields = Arguments(name, given).object(0)
    host.meter.items(len(fields), f"{name}()")
    return fields


def _keys(host: Host, given: list[Value]) -> Value:
    return list(_fields("Object.keys", host, given))


def _values(host: Host, given: list[Value]) -> Value:
    return list(_fields("Object.values", host, given).values())


def _entries(host: Host, given: list[Value]) -> Value:
    fields = _fields("Object.entries", host, given)
    host.meter.keep(len(fields) * 2 * BYTES_PER_OBJECT, "Object.entries()")
    return [[key, value] for key, value in fields.items()]


def _from_entries(host: Host, given: list[Value]) -> Value:
    entries = Arguments("Object.fromEntries", given).list(0)
    host.meter.fields(len(entries), "Object.fromEntries()")
    made: dict[str, Value] = {}
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != 2:
            raise wrong_argument("Object.fromEntries() needs a list of [key, value] pairs")
        made[charged_key(host.meter, entry[0])] = entry[1]
    return made


def _assign(host: Host, given: list[Value]) -> Value:
    """Merge objects into a new one: arguments are values and stay unchanged."""
    arguments = Arguments("Object.assign", given)
    made: dict[str, Value] = {}
    for position, fields in enumerate(given):
        if fields is not None:
            host.meter.fields(len(arguments.object(position)), "Object.assign()")
            made.update(fields)
    return made


def _has(host: Host, given: list[Value]) -> Value:
    arguments = Arguments("Object.has", given)
    return charged_key(host.meter, arguments.get(1)) in arguments.object(0)


def _parse(host: Host, given: list[Value]) -> Value:
    text = Arguments("JSON.parse", given).text(0)
    try:
        return from_json(text, host)
    except ValueError as problem:
        raise wrong_argument(f"JSON.parse(): {str(problem)[:200]}") from None


def _stringify(host: Host, given: list[Value]) -> Value:
    """Handle ``JSON.stringify(value, null, indent)``; the second argument is JavaScript's and must be null."""
    arguments = Arguments("JSON.stringify", given)
    if arguments.get(1) is not None:
        raise arguments.wrong(1, "null (a replacer is not supported)")
    indent = arguments.get(2)
    if is_number(indent):
        indent = " " * max(0, min(10, int(indent)))
    elif indent is None:
        indent = ""
    elif not isinstance(indent, str):
        raise arguments.wrong(2, "a number of spaces")
    return to_json(arguments.get(0), host, indent[:10])


FUNCTIONS = [
    Builtin("Object.keys", _keys, 1, 1),
    Builtin("Object.values", _values, 1, 1),
    Builtin("Object.entries", _entries, 1, 1),
    Builtin("Object.fromEntries", _from_entries, 1, 1),
    Builtin("Object.assign", _assign, 1),
    Builtin("Object.has", _has, 2, 2),
    Builtin("JSON.parse", _parse, 1, 1),
    Builtin("JSON.stringify", _stringify, 1, 3),
]
