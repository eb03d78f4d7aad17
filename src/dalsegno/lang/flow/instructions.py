"""What the opcodes do that only scripts have. A handler returns true when the frame on top may have changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from dalsegno.lang.code import Place
from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.flow.iteration import iterate
from dalsegno.lang.flow.places import assign, descend, own, path_of, place_name, read, root_of
from dalsegno.lang.frames import Frame
from dalsegno.lang.limits import SliceUsed
from dalsegno.lang.opcodes import Op
from dalsegno.lang.promises import Group, Promise
from dalsegno.lang.stdlib import change_list, start_callback
from dalsegno.lang.values import UNSET, Cell, Vacant, Value

if TYPE_CHECKING:
    from dalsegno.lang.flow.machine import Machine

Handler: TypeAlias = "Callable[[Any, Frame, Any, Any], bool | None]"


def _load_global(machine: Machine, frame: Frame, a: str, b: int) -> None:
    value = machine.globals.get(a, UNSET)
    if type(value) is Vacant:
        value = machine.occupy_global(a, value)
    frame.stack.append(value)


def _store_global(machine: Machine, frame: Frame, a: str, b: int) -> None:
    machine.globals[a] = frame.stack.pop()


def _scope(machine: Machine, frame: Frame, a: int, b: int) -> None:
    slots = frame.slots
    boxed = frame.function.boxed
    for slot in range(a, b):
        slots[slot] = Cell(UNSET) if slot in boxed else UNSET


def _renew(machine: Machine, frame: Frame, a: int, b: int) -> None:
    for slot in range(a, b):
        if slot in frame.function.boxed:
            value = frame.slots[slot].value
            if type(value) is Vacant and value is not UNSET:
                value = machine.occupy(frame.slots[slot], 0, value, "")
            frame.slots[slot] = Cell(value)


def _take(frame: Frame, count: int) -> list[Value]:
    """The topmost operands, taken off the stack."""
    if not count:
        return []
    taken = frame.stack[-count:]
    del frame.stack[-count:]
    return taken


def _root(machine: Machine, frame: Frame, place: Place) -> tuple[Any, Any]:
    holder, key = root_of(machine, frame, place)
    if type(holder[key]) is Vacant:
        machine.occupy(holder, key, holder[key], place_name(machine, frame, place))
    return holder, key


def _assign(machine: Machine, frame: Frame, a: Place, b: int) -> None:
    holder, key = _root(machine, frame, a)
    value = frame.stack.pop()
    path = path_of(a, _take(frame, a.dynamic))
    meter = machine.host.meter
    assign(meter, holder, key, path, value)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _read_place(machine: Machine, frame: Frame, a: Place, b: int) -> None:
    holder, key = _root(machine, frame, a)
    count = a.dynamic
    path = path_of(a, frame.stack[-count:] if count else ())
    frame.stack.append(read(machine.host.meter, holder, key, path, bool(b)))


def _mutate(machine: Machine, frame: Frame, a: int, b: int) -> bool:
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


def _iterate(machine: Machine, frame: Frame, a: int, b: int) -> None:
    iteration = iterate(machine.host, frame.stack.pop(), b)
    frame.slots[a] = iteration


def _next(machine: Machine, frame: Frame, a: int, b: int) -> None:
    iteration = frame.slots[a]
    index = iteration.index
    if index < len(iteration.items):
        iteration.index = index + 1
        frame.stack.append(iteration.items[index])
    else:
        frame.position = b


def _throw(machine: Machine, frame: Frame, a: int, b: int) -> bool:
    machine.throw(frame.stack.pop())
    return True


def _await(machine: Machine, frame: Frame, a: int, b: int) -> bool:
    promise = frame.stack[-1]
    return type(promise) in (Promise, Group) and machine.wait_for(frame, promise)


def _fail(machine: Machine, frame: Frame, a: str, b: str) -> None:
    raise ScriptThrow(a, b)


def _finish(machine: Machine, frame: Frame, a: int, b: int) -> bool:
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
