"""The handlers of the opcodes that only scripts have. A handler returns true when the top frame may have changed.

The state of a ``for … of`` or ``for … in`` loop is an `Iteration`: its items and its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.flow.runtime.assignment import (
    ScriptMachine,
    assign,
    descend,
    own,
    path_of,
    place_name,
    read,
    root_of,
)
from dalsegno.lang.runtime.code import Place
from dalsegno.lang.runtime.frames import Frame, Handler
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT, SliceUsed
from dalsegno.lang.runtime.opcodes import Op
from dalsegno.lang.runtime.promises import Group, Promise
from dalsegno.lang.stdlib import change_list, start_callback
from dalsegno.lang.values.kinds import UNSET, Cell, Host, Vacant, Value, kind_of, unawaited

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
