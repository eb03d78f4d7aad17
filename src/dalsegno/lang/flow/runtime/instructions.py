"""The handlers of the opcodes that only scripts have. A handler returns true when the top frame may have changed.

The state of a ``for … of`` or ``for … in`` loop is an `Iteration`: its items and its position.

Assignment to places: a variable, or a path of members and indexes from one.

Lists and objects are values, so a change of ``a.b[0]`` must not be visible through any other variable. Every
container on the path is therefore copied, unless it has no other reference: then it is changed in place, and
pushing ten thousand items costs ten thousand steps. CPython's reference count shows whether there are other
references. The function that checks the count also measures the count of an unshared container; an error could only
cause a needless copy.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from dalsegno.lang.errors import ScriptThrow, type_error
from dalsegno.lang.runtime.code import CAPTURED, SLOT, CodeUnit, Op, Place
from dalsegno.lang.runtime.frames import CallbackFrame, Frame, Handler
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT, COPIED, Meter, SliceUsed
from dalsegno.lang.runtime.promises import Group, Promise
from dalsegno.lang.stdlib import change_list, start_callback
from dalsegno.lang.values.kinds import (
    UNSET,
    Cell,
    Host,
    Vacant,
    Value,
    charged_key,
    is_number,
    kind_of,
    unawaited,
)
from dalsegno.lang.values.members import MISSING, absent, read_index, read_member

Holder: TypeAlias = Any
"""Any holder of items: a frame's slots, the globals, a cell, a list or an object."""

_count: Callable[[Any], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)


def _references(holder: Holder, key: Any) -> int:
    held = holder[key]
    return _count(held)


UNSHARED = _references([[]], 0)


class ScriptMachine(Protocol):
    """The machine of scripts (machine.py), as the instructions that only scripts have use it."""

    unit: CodeUnit
    host: Host
    globals: dict[str, Value]

    def call_member(self, receiver: Value, name: str, arguments: list[Value]) -> bool: ...

    def push(self, frame: Frame | CallbackFrame) -> None: ...

    def occupy(self, holder: Any, key: Any, vacancy: Vacant, name: str) -> Value: ...

    def occupy_global(self, name: str, vacancy: Vacant) -> Value: ...

    def throw(self, value: Value) -> None: ...

    def wait_for(self, frame: Frame, promise: Promise | Group) -> bool: ...

    def complete(self, outcome: Value) -> None: ...


def root_of(machine: ScriptMachine, frame: Frame, place: Place) -> tuple[Holder, Any]:
    """Return the holder and key of the place's variable."""
    if place.root == SLOT:
        slot = frame.slots[place.index]
        return (slot, 0) if type(slot) is Cell else (frame.slots, place.index)
    if place.root == CAPTURED:
        return frame.cells[place.index], 0
    name = machine.unit.constants[place.index]
    if name not in machine.globals:
        raise ScriptThrow("ReferenceError", f"Undefined variable '{name}'")
    return machine.globals, name


def place_name(machine: ScriptMachine, frame: Frame, place: Place) -> str:
    """Return the name of the place's variable, for messages."""
    if place.root == SLOT:
        return frame.function.name_of(place.index)
    if place.root == CAPTURED:
        return frame.function.capture_names[place.index]
    return str(machine.unit.constants[place.index])


def path_of(place: Place, keys: Sequence[Value]) -> list[Value]:
    """Return the place's links, with the keys from the stack filled in."""
    if None not in place.links:
        return list(place.links)
    given = iter(keys)
    return [next(given) if link is None else link for link in place.links]


def own(meter: Meter, holder: Holder, key: Any, wanted: Value) -> Holder:
    """Return the list or object held under the key, copied if it is shared. ``wanted`` is the value to be set in
    it.
    """
    kind = type(holder[key])
    if kind is not list and kind is not dict:
        raise _unsettable(holder[key], wanted)
    if _references(holder, key) > UNSHARED:
        if kind is dict:
            meter.fields(len(holder[key]), "a copy")
        else:
            meter.items(len(holder[key]), "a copy")
        holder[key] = holder[key].copy()
    return holder[key]


def _unsettable(value: Value, wanted: Value) -> ScriptThrow:
    shown = (
        f"'{wanted[:200]}'" if isinstance(wanted, str) else f"[{wanted}]" if is_number(wanted) else "an item"
    )
    return type_error(f"cannot set {shown} of {kind_of(value)}")


def descend(meter: Meter, holder: Holder, key: Any, path: Sequence[Value], last: Value) -> tuple[Holder, Any]:
    """Follow the path, owning every container on it; return the holder and key at its end."""
    for position, link in enumerate(path):
        container = own(meter, holder, key, link)
        key = _existing(meter, container, link)
        holder = container
        if key is None:
            wanted = path[position + 1] if position + 1 < len(path) else last
            raise _unsettable(None, wanted)
    return holder, key


def _existing(meter: Meter, container: Holder, link: Value) -> Any:
    """Return the link as a key that the container has; None where an index is out of range."""
    if type(container) is dict:
        name = charged_key(meter, link)
        if name not in container:
            raise absent(container, name, "")
        return name
    if not is_number(link):
        raise absent(container, link, "")
    index = int(link) if -1 < link < len(container) else -1
    return index if index == link and index >= 0 else None


def assign(meter: Meter, holder: Holder, key: Any, path: Sequence[Value], value: Value) -> None:
    """Put the value at the end of the path."""
    last = path[-1]
    holder, key = descend(meter, holder, key, path[:-1], last)
    container = own(meter, holder, key, last)
    if type(container) is dict:
        name = charged_key(meter, last)
        if name not in container:
            meter.keep(BYTES_PER_OBJECT + len(name), "an object")
        container[name] = value
        return
    if not is_number(last):
        raise type_error(f"a list's index must be a number, not {kind_of(last)}")
    index = _existing(meter, container, last)
    if index is None:
        message = f"index {last} is out of range of a list of {len(container)}; push() appends"
        raise type_error(message)
    container[index] = value


def read(meter: Meter, holder: Holder, key: Any, path: Sequence[Value], tolerant: bool) -> Value:
    """Return the value at the end of the path; null if only the last key is missing and ``tolerant`` is set."""
    value = holder[key]
    for position, link in enumerate(path):
        if type(link) is str and len(link) >= COPIED:
            meter.compare(len(link))
        found = read_member(value, link) if type(link) is str else read_index(value, link)
        if found is MISSING:
            if tolerant and position == len(path) - 1 and type(value) is dict:
                return None
            raise absent(value, link, "")
        value = found
    return value


# -- handlers ------------------------------------------------------------------------------------------------


OVER_ITEMS, OVER_KEYS = 0, 1


class Iteration:
    """The state of a loop.

    ``items`` is a list, or a range for the indexes of a list: the value at the start of the loop.
    """

    __slots__ = ("index", "items")

    def __init__(self, items: Sequence[Value], index: int = 0) -> None:
        self.items = items
        self.index = index


def iterate(host: Host, value: Value, over: int) -> Iteration:
    """Start an iteration. An object yields ``[key, value]`` pairs, or its keys; a list its items, or its indexes."""
    if type(value) is list:
        return Iteration(range(len(value)) if over == OVER_KEYS else value)
    if type(value) is dict:
        host.meter.items(len(value), "a loop")
        if over != OVER_KEYS:
            host.meter.keep(len(value) * 2 * BYTES_PER_OBJECT, "a loop")
        return Iteration(list(value) if over == OVER_KEYS else [[key, item] for key, item in value.items()])
    hint = '; split("") makes a list of its characters' if type(value) is str else unawaited(value)
    raise ScriptThrow("TYPE_ERROR", f"cannot iterate over {_one(kind_of(value))}{hint}")


def _one(kind: str) -> str:
    return kind if kind == "null" else f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _load_global(machine: ScriptMachine, frame: Frame, a: str, b: int) -> None:
    value = machine.globals.get(a, UNSET)
    if type(value) is Vacant:
        value = machine.occupy_global(a, value)
    frame.stack.append(value)


def _store_global(machine: ScriptMachine, frame: Frame, a: str, b: int) -> None:
    machine.globals[a] = frame.stack.pop()


def _scope(machine: ScriptMachine, frame: Frame, a: int, b: int) -> None:
    slots = frame.slots
    boxed = frame.function.boxed
    for slot in range(a, b):
        slots[slot] = Cell(UNSET) if slot in boxed else UNSET


def _renew(machine: ScriptMachine, frame: Frame, a: int, b: int) -> None:
    for slot in range(a, b):
        if slot in frame.function.boxed:
            value = frame.slots[slot].value
            if type(value) is Vacant and value is not UNSET:
                value = machine.occupy(frame.slots[slot], 0, value, "")
            frame.slots[slot] = Cell(value)


def _take(frame: Frame, count: int) -> list[Value]:
    """Pop the topmost operands."""
    if not count:
        return []
    taken = frame.stack[-count:]
    del frame.stack[-count:]
    return taken


def _root(machine: ScriptMachine, frame: Frame, place: Place) -> tuple[Any, Any]:
    holder, key = root_of(machine, frame, place)
    if type(holder[key]) is Vacant:
        machine.occupy(holder, key, holder[key], place_name(machine, frame, place))
    return holder, key


def _assign(machine: ScriptMachine, frame: Frame, a: Place, b: int) -> None:
    holder, key = _root(machine, frame, a)
    value = frame.stack.pop()
    path = path_of(a, _take(frame, a.dynamic))
    meter = machine.host.meter
    assign(meter, holder, key, path, value)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _read_place(machine: ScriptMachine, frame: Frame, a: Place, b: int) -> None:
    holder, key = _root(machine, frame, a)
    count = a.dynamic
    path = path_of(a, frame.stack[-count:] if count else ())
    frame.stack.append(read(machine.host.meter, holder, key, path, bool(b)))


def _mutate(machine: ScriptMachine, frame: Frame, a: int, b: int) -> bool:
    place = machine.unit.places[b]
    holder, key = _root(machine, frame, place)
    arguments: list[Value] = frame.stack.pop() if a < 0 else _take(frame, a)
    keys = _take(frame, place.dynamic)
    path = path_of(place, keys)
    name, host = place.method, machine.host
    if type(read(host.meter, holder, key, path, tolerant=False)) is not list:
        return machine.call_member(read(host.meter, holder, key, path, tolerant=False), name, arguments)
    if name == "sort" and arguments:
        waiting: Any = start_callback(
            host, read(host.meter, holder, key, path, tolerant=False), name, arguments
        )
        waiting.place, waiting.keys = b, keys
        machine.push(waiting)
        return True
    holder, key = descend(host.meter, holder, key, path, name)
    frame.stack.append(change_list(host, own(host.meter, holder, key, name), name, arguments))
    if host.meter.work_left <= host.meter.mark:
        raise SliceUsed
    return False


def _iterate(machine: ScriptMachine, frame: Frame, a: int, b: int) -> None:
    iteration = iterate(machine.host, frame.stack.pop(), b)
    frame.slots[a] = iteration


def _next(machine: ScriptMachine, frame: Frame, a: int, b: int) -> None:
    iteration = frame.slots[a]
    index = iteration.index
    if index < len(iteration.items):
        iteration.index = index + 1
        frame.stack.append(iteration.items[index])
    else:
        frame.position = b


def _throw(machine: ScriptMachine, frame: Frame, a: int, b: int) -> bool:
    machine.throw(frame.stack.pop())
    return True


def _await(machine: ScriptMachine, frame: Frame, a: int, b: int) -> bool:
    promise = frame.stack[-1]
    return type(promise) in (Promise, Group) and machine.wait_for(frame, promise)


def _fail(machine: ScriptMachine, frame: Frame, a: str, b: str) -> None:
    raise ScriptThrow(a, b)


def _finish(machine: ScriptMachine, frame: Frame, a: int, b: int) -> bool:
    machine.complete(frame.stack[-1])
    return True


HANDLERS: dict[Op, Handler] = {
    Op.LOAD_GLOBAL: _load_global,
    Op.STORE_GLOBAL: _store_global,
    Op.SCOPE: _scope,
    Op.RENEW: _renew,
    Op.ASSIGN: _assign,
    Op.READ_PLACE: _read_place,
    Op.MUTATE: _mutate,
    Op.ITERATE: _iterate,
    Op.NEXT: _next,
    Op.THROW: _throw,
    Op.AWAIT: _await,
    Op.FAIL: _fail,
    Op.FINISH: _finish,
}
