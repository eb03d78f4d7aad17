"""Methods of lists without callbacks.

`MUTATORS` change the list they are given and return the same as JavaScript; the caller must hold the only reference to
the list. The others never change it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.limits import BYTES_PER_ITEM, BYTES_PER_OBJECT, MAX_NESTING
from dalsegno.lang.stdlib.arguments import Arguments, Method, slice_bounds
from dalsegno.lang.values.kinds import Builtin, Host, Value, check_ordered, equal, is_number, kind_of
from dalsegno.lang.values.to_text import charge_sorting, to_json, to_text

List: TypeAlias = list[Value]
ANY_NUMBER = 2**31


def _concat(host: Host, items: List, given: List) -> Value:
    lists = [value if isinstance(value, list) else [value] for value in given]
    host.meter.items(len(items) + sum(map(len, lists)), "concat()")
    return [*items, *(item for part in lists for item in part)]


def _position(host: Host, items: List, wanted: Value) -> int:
    host.meter.work(len(items))
    return next((index for index, item in enumerate(items) if equal(host, item, wanted)), -1)


def _last_index_of(host: Host, items: List, given: List) -> Value:
    host.meter.work(len(items))
    positions = range(len(items) - 1, -1, -1)
    return next((index for index in positions if equal(host, items[index], given[0])), -1)


def _slice(host: Host, items: List, given: List) -> Value:
    start, end = slice_bounds(Arguments("slice", given), len(items))
    host.meter.items(end - start, "slice()")
    return items[start:end]


def _join(host: Host, items: List, given: List) -> Value:
    separator = Arguments("join", given).text(0, ",")
    host.meter.items(len(items), "join()")
    host.meter.keep(sum([type(item) is not str for item in items]) * BYTES_PER_OBJECT, "join()")
    texts = ["" if item is None else to_text(item, host) for item in items]
    host.meter.allocate(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1), "join()")
    return host.meter.made(separator.join(texts), "join()")


def _flat(host: Host, items: List, given: List) -> Value:
    depth = min(Arguments("flat", given).integer(0, 1), MAX_NESTING)
    flat = items
    for _ in range(depth):
        if not any(isinstance(item, list) for item in flat):
            break
        host.meter.items(sum(len(item) if isinstance(item, list) else 1 for item in flat), "flat()")
        flat = [inner for item in flat for inner in (item if isinstance(item, list) else (item,))]
    return flat


def _unique(host: Host, items: List, _given: List) -> Value:
    """Keep the first of each group of equal items."""
    host.meter.fields(len(items), "unique()")
    seen: dict[str, set[Value]] = {}
    kept = []
    for item in items:
        plain = to_json(item, host, sort_keys=True) if isinstance(item, (list, dict, ErrorValue)) else item
        if isinstance(plain, str):
            host.meter.compare(len(plain))
        known = seen.setdefault(kind_of(item), set())
        if plain not in known:
            known.add(plain)
            kept.append(item)
    return kept


def _at(_host: Host, items: List, given: List) -> Value:
    position = Arguments("at", given).integer(0, 0)
    return items[position] if -len(items) <= position < len(items) else None


def natural_order(host: Host, items: List) -> List:
    """Return the items sorted: numbers among numbers, strings among strings; null comes last."""
    host.meter.items(len(items), "sort()")
    host.meter.work(len(items) * max(1, len(items).bit_length()))
    present = [item for item in items if item is not None]
    nulls: List = [None] * (len(items) - len(present))
    if all(is_number(item) for item in present):
        return sorted(present) + nulls
    if all(isinstance(item, str) for item in present):
        charge_sorting(host.meter, present)
        return sorted(present) + nulls
    for one, other in pairwise(present):  # at least one pair of neighbours cannot be ordered
        check_ordered(host, one, other, "sort")
    return present + nulls


METHODS: dict[str, Method] = {
    "concat": Method(_concat, 0, ANY_NUMBER),
    "includes": Method(lambda host, items, given: _position(host, items, given[0]) >= 0, 1, 1),
    "indexOf": Method(lambda host, items, given: _position(host, items, given[0]), 1, 1),
    "lastIndexOf": Method(_last_index_of, 1, 1),
    "slice": Method(_slice, 0, 2),
    "join": Method(_join, 0, 1),
    "flat": Method(_flat, 0, 1),
    "unique": Method(_unique),
    "at": Method(_at, 1, 1),
    "toString": Method(lambda host, items, given: to_json(items, host)),
}


def _grow(host: Host, count: int, what: str) -> None:
    """Charge this many further slots of a list."""
    host.meter.keep(count * BYTES_PER_ITEM, what)
    host.meter.work(count)


def _push(host: Host, items: List, given: List) -> Value:
    _grow(host, len(given), "push()")
    items.extend(given)
    return len(items)


def _pop(_host: Host, items: List, _given: List) -> Value:
    return items.pop() if items else None


def _shift(host: Host, items: List, _given: List) -> Value:
    host.meter.work(len(items) // 64)
    return items.pop(0) if items else None


def _unshift(host: Host, items: List, given: List) -> Value:
    _grow(host, len(given), "unshift()")
    host.meter.work(len(items) // 64)
    items[:0] = given
    return len(items)


def _reverse(host: Host, items: List, _given: List) -> Value:
    host.meter.work(len(items))
    items.reverse()
    return items


def _sort(host: Host, items: List, _given: List) -> Value:
    items[:] = natural_order(host, items)
    return items


def _splice(host: Host, items: List, given: List) -> Value:
    arguments = Arguments("splice", given)
    start, _ = slice_bounds(Arguments("splice", given[:1]), len(items))
    count = max(0, min(arguments.integer(1, len(items) - start), len(items) - start))
    host.meter.items(count + len(given), "splice()")
    host.meter.work(len(items) // 64)
    removed = items[start : start + count]
    items[start : start + count] = given[2:]
    return removed


def _fill(host: Host, items: List, given: List) -> Value:
    start, end = slice_bounds(Arguments("fill", given[1:]), len(items))
    host.meter.items(end - start, "fill()")
    items[start:end] = [given[0]] * (end - start)
    return items


MUTATORS: dict[str, Method] = {
    "push": Method(_push, 0, ANY_NUMBER),
    "pop": Method(_pop, 0, 0),
    "shift": Method(_shift, 0, 0),
    "unshift": Method(_unshift, 0, ANY_NUMBER),
    "reverse": Method(_reverse, 0, 0),
    "sort": Method(_sort, 0, 0),
    "splice": Method(_splice, 1, ANY_NUMBER),
    "fill": Method(_fill, 1, 3),
}

FUNCTIONS = [Builtin("Array.isArray", lambda host, given: isinstance(given[0], list), 1, 1)]
