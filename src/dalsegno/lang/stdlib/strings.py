"""Methods of strings and numbers. Positions count code points; sizes are checked before anything is built."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal

from dalsegno.lang.errors import wrong_argument
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT, SEARCHED
from dalsegno.lang.stdlib.arguments import Arguments, Method, slice_bounds
from dalsegno.lang.values.kinds import Host, Value, number_text
from dalsegno.lang.values.regex import first_match, pattern_found, replace_matches
from dalsegno.lang.values.to_text import to_text


def _split(host: Host, text: str, given: list[Value]) -> Value:
    if not given or given[0] is None:
        return [text]
    arguments = Arguments("split", given)
    separator = arguments.text(0)
    host.meter.search(len(text))
    count = text.count(separator) + 1 if separator else len(text)
    host.meter.items(count, "split()")
    if separator or not text.isascii():  # otherwise the parts are characters, which Python caches
        host.meter.keep(count * BYTES_PER_OBJECT, "split()")
    host.meter.allocate(len(text), "split()")
    parts = text.split(separator) if separator else list(text)
    if separator and not text.isascii():
        host.meter.keep(3 * len(text), "split()")
    return parts[: max(0, arguments.integer(1, len(parts)))]


def _replace(name: str, times: int) -> Method:
    def call(host: Host, text: str, given: list[Value]) -> Value:
        arguments = Arguments(name, given)
        old, new = arguments.text(0), arguments.text(1)
        meter = host.meter
        meter.search(2 * len(text))
        found = text.count(old) if times < 0 else min(times, text.count(old))
        meter.search(found * SEARCHED // 16)
        meter.allocate(len(text) + found * max(0, len(new) - len(old)), f"{name}()")
        return meter.made(text.replace(old, new, times), f"{name}()")

    return Method(call, 2, 2)


def _replace_matches(host: Host, text: str, given: list[Value]) -> Value:
    """Replace every match of an RE2 pattern; ``\\1`` in the replacement is the first group."""
    arguments = Arguments("replaceMatches", given)
    return replace_matches(host, text, arguments.text(0), arguments.text(1))


def _match(host: Host, text: str, given: list[Value]) -> Value:
    """Return the first match and its groups as a list, or null."""
    return first_match(Arguments("match", given).text(0), text, host)


def _pad(name: str, at_start: bool) -> Method:
    def call(host: Host, text: str, given: list[Value]) -> Value:
        arguments = Arguments(name, given)
        wanted, filler = arguments.integer(0), arguments.text(1, " ")
        missing = wanted - len(text)
        if missing <= 0 or not filler:
            return text
        host.meter.allocate(wanted, f"{name}()")
        padding = (filler * (missing // len(filler) + 1))[:missing]
        return host.meter.made(padding + text if at_start else text + padding, f"{name}()")

    return Method(call, 1, 2)


def _repeat(host: Host, text: str, given: list[Value]) -> Value:
    times = Arguments("repeat", given).integer(0)
    if times < 0:
        raise wrong_argument("repeat() needs a number that is not negative")
    host.meter.allocate(len(text) * times, "repeat()")
    return host.meter.made(text * times, "repeat()")


def _part(host: Host, text: str, start: int, end: int, name: str) -> str:
    """Return a copy of a part of the text."""
    start, end = min(start, len(text)), min(end, len(text))
    host.meter.allocate(max(0, end - start), f"{name}()")
    return host.meter.made(text[start:end], f"{name}()")


def _substring(host: Host, text: str, given: list[Value]) -> Value:
    """Return a substring like JavaScript: negative positions are zero, and the two may come in either order."""
    arguments = Arguments("substring", given)
    first = max(0, arguments.integer(0, 0))
    second = max(0, arguments.integer(1, len(text)))
    return _part(host, text, min(first, second), max(first, second), "substring")


def _slice(host: Host, text: str, given: list[Value]) -> Value:
    start, end = slice_bounds(Arguments("slice", given), len(text))
    return _part(host, text, start, end, "slice")


def _concat(host: Host, text: str, given: list[Value]) -> Value:
    parts = [text, *(to_text(value, host) for value in given)]
    host.meter.allocate(sum(map(len, parts)), "concat()")
    return host.meter.made("".join(parts), "concat()")


def _at(_host: Host, text: str, given: list[Value]) -> Value:
    position = Arguments("at", given).integer(0, 0)
    return text[position] if -len(text) <= position < len(text) else None


def _char_at(_host: Host, text: str, given: list[Value]) -> Value:
    position = Arguments("charAt", given).integer(0, 0)
    return text[position] if 0 <= position < len(text) else ""


def _code_point_at(_host: Host, text: str, given: list[Value]) -> Value:
    position = Arguments("codePointAt", given).integer(0, 0)
    return ord(text[position]) if 0 <= position < len(text) else None


def _changed(name: str, change: str) -> Method:
    """Wrap a method of Python's strings without arguments; changing case can triple the length of a text."""

    def call(host: Host, text: str, _given: list[Value]) -> Value:
        host.meter.convert(text)
        host.meter.allocate(len(text) * 3, f"{name}()")
        return host.meter.made(getattr(text, change)(), f"{name}()")

    return Method(call)


def _edge_is(name: str, test: str) -> Method:
    def call(host: Host, text: str, given: list[Value]) -> Value:
        wanted = Arguments(name, given).text(0)
        host.meter.compare(len(wanted))
        return getattr(text, test)(wanted)

    return Method(call, 1, 1)


def _searched(name: str, search: Callable[[str, str], Value]) -> Method:
    def call(host: Host, text: str, given: list[Value]) -> Value:
        host.meter.search(len(text))
        return search(text, Arguments(name, given).text(0))

    return Method(call, 1, 1)


def _last_position(text: str, wanted: str) -> int:
    """Return the last position of ``wanted``, searching from the start.

    Python's search from the end may compare the whole of ``wanted`` at every position; the search from the start does
    not.
    """
    if len(wanted) <= _SHORT or len(text) <= _SHORT:
        return text.rfind(wanted)
    position = text[::-1].find(wanted[::-1])
    return -1 if position < 0 else len(text) - position - len(wanted)


def _last_index_of(host: Host, text: str, given: list[Value]) -> Value:
    wanted = Arguments("lastIndexOf", given).text(0)
    host.meter.search(2 * len(text))
    if len(wanted) > _SHORT:
        host.meter.keep(2 * len(text), "lastIndexOf()")
    return _last_position(text, wanted)


def _to_fixed(host: Host, number: Value, given: list[Value]) -> Value:
    """Return decimal notation with this many digits, halves toward +∞."""
    host.meter.work(_DECIMAL)
    digits = Arguments("toFixed", given).integer(0, 0)
    if not 0 <= digits <= 100:
        raise wrong_argument("toFixed() takes 0 to 100 digits")
    if math.isnan(number) or abs(number) >= 1e21:
        return number_text(number)
    rounding = ROUND_HALF_UP if number >= 0 else ROUND_HALF_DOWN
    # The float's exact value has up to 1,100 digits; quantize needs room for the digits that it keeps.
    exact = Decimal(number)
    return format(exact.quantize(Decimal(1).scaleb(-digits), rounding, _WIDE), "f")


ANY_NUMBER = 2**31
_WIDE = Context(prec=150)
_DECIMAL = 8
"""Digits of decimal arithmetic per unit of work."""
_SHORT = 8
"""A text up to this length may be compared at every position of another text."""

METHODS: dict[str, Method] = {
    "split": Method(_split, 0, 2),
    "trim": _changed("trim", "strip"),
    "trimStart": _changed("trimStart", "lstrip"),
    "trimEnd": _changed("trimEnd", "rstrip"),
    "toUpperCase": _changed("toUpperCase", "upper"),
    "toLowerCase": _changed("toLowerCase", "lower"),
    "startsWith": _edge_is("startsWith", "startswith"),
    "endsWith": _edge_is("endsWith", "endswith"),
    "includes": _searched("includes", str.__contains__),
    "indexOf": _searched("indexOf", str.find),
    "lastIndexOf": Method(_last_index_of, 1, 1),
    "replace": _replace("replace", 1),
    "replaceAll": _replace("replaceAll", -1),
    "replaceMatches": Method(_replace_matches, 2, 2),
    "matches": Method(
        lambda host, text, given: pattern_found(Arguments("matches", given).text(0), text, host), 1, 1
    ),
    "match": Method(_match, 1, 1),
    "substring": Method(_substring, 1, 2),
    "slice": Method(_slice, 0, 2),
    "padStart": _pad("padStart", at_start=True),
    "padEnd": _pad("padEnd", at_start=False),
    "repeat": Method(_repeat, 1, 1),
    "concat": Method(_concat, 0, ANY_NUMBER),
    "at": Method(_at, 1, 1),
    "charAt": Method(_char_at, 0, 1),
    "codePointAt": Method(_code_point_at, 0, 1),
    "toString": Method(lambda host, text, given: text),
}

NUMBER_METHODS: dict[str, Method] = {
    "toFixed": Method(_to_fixed, 0, 1),
    "toString": Method(lambda host, number, given: number_text(number)),
}
