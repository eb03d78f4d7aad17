"""The handlers of the opcodes. A handler returns true when another frame is on top of the machine's stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dalsegno.lang.errors import ScriptThrow, type_error
from dalsegno.lang.flow.runtime.instructions import HANDLERS as SCRIPT_HANDLERS
from dalsegno.lang.runtime.code import FunctionCode, Op
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.lang.runtime.frames import Frame, Handler
from dalsegno.lang.runtime.limits import BYTES_PER_ITEM, BYTES_PER_OBJECT, COPIED, SliceUsed
from dalsegno.lang.runtime.operators import LOOSE, ORDERINGS, STRICT, Operator
from dalsegno.lang.values.kinds import (
    WORD,
    FunctionValue,
    Vacant,
    Value,
    is_number,
    key_of,
    kind_of,
    truthy,
    within_word,
)
from dalsegno.lang.values.members import MISSING, absent, read_index, read_member
from dalsegno.lang.values.to_text import to_text

if TYPE_CHECKING:
    from dalsegno.lang.runtime.interpreter import Evaluation, Interpreter

MAX_PATH_SHOWN = 120


def _not(value: Value) -> Value:
    return not truthy(value)


def _negate(value: Value) -> Value:
    if not is_number(value):
        raise type_error(f"'-' needs a number, not {kind_of(value)}")
    return -value if value != 0 or type(value) is float else -0.0


def _plus(value: Value) -> Value:
    if not is_number(value):
        raise type_error(f"'+' needs a number, not {kind_of(value)}; Number(…) converts")
    return value


# Operands of UNARY and BINARY are positions in these tables: append, never reorder.
UNARY_NAMES = ("!", "-", "+", "typeof")
UNARY: tuple[Callable[[Value], Value], ...] = (_not, _negate, _plus, kind_of)
BINARY_NAMES = tuple(STRICT)
LOOSE_START = len(BINARY_NAMES)
BINARY: tuple[Operator, ...] = (*STRICT.values(), *(LOOSE[name] for name in BINARY_NAMES))


def _constant(machine: Interpreter, frame: Frame, a: Value, b: int) -> None:
    frame.stack.append(a)


def _root(machine: Evaluation, frame: Frame, a: str, b: int) -> None:
    try:
        frame.stack.append(machine.lookup(a))
    except KeyError:
        if b < 0:
            shown = a if a.startswith("$") else f"${a}"
            message = f"{shown} has no value in this execution; `?.` or `??` allow for that"
            raise ScriptThrow("PROPERTY_NOT_FOUND", message) from None
        frame.stack.append(None)
        frame.position = b


def _external(machine: Evaluation, frame: Frame, a: str, b: int) -> None:
    if a not in machine.variables:
        raise ScriptThrow("ReferenceError", f"Undefined variable '{a}'")
    frame.stack.append(machine.variables[a])


def _load(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.slots[a]
    if type(value) is Vacant:
        value = machine.occupy(frame.slots, a, value, frame.function.name_of(a))
    frame.stack.append(value)


def _store(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.slots[a] = frame.stack.pop()


def _load_boxed(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.slots[a].value
    if type(value) is Vacant:
        value = machine.occupy(frame.slots[a], 0, value, frame.function.name_of(a))
    frame.stack.append(value)


def _store_boxed(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.slots[a].value = frame.stack.pop()


def _load_captured(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.cells[a].value
    if type(value) is Vacant:
        value = machine.occupy(frame.cells[a], 0, value, frame.function.capture_names[a])
    frame.stack.append(value)


def _store_captured(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.cells[a].value = frame.stack.pop()


def _function(machine: Interpreter, frame: Frame, a: FunctionCode, b: int) -> None:
    slots, cells = frame.slots, frame.cells
    machine.host.meter.keep((2 + len(a.captures)) * BYTES_PER_OBJECT, "a function")
    captured = [slots[index] if index >= 0 else cells[-index - 1] for index in a.captures]
    frame.stack.append(FunctionValue(a, tuple(captured)))


def _path(machine: Interpreter, frame: Frame, start: int, name: str) -> str:
    """Return the source text of the reference that failed.

    The position of a parenthesised one excludes the parentheses.
    """
    if start < 0:
        return ""
    source, end = machine.unit.source, frame.offset + len(name)
    while source.count(")", start, end) > source.count("(", start, end) and source[:start].endswith("("):
        start -= 1
    return source[start:end][:MAX_PATH_SHOWN]


def _member(machine: Interpreter, frame: Frame, a: str, b: int) -> None:
    stack = frame.stack
    value = read_member(stack[-1], a)
    if value is MISSING:
        raise absent(stack[-1], a, _path(machine, frame, b, a))
    stack[-1] = value


def _try_member(machine: Interpreter, frame: Frame, a: str, b: int) -> None:
    stack = frame.stack
    value = read_member(stack[-1], a)
    if value is MISSING:
        stack[-1] = None
        frame.position = b
    else:
        stack[-1] = value


def _index(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    stack = frame.stack
    index = stack.pop()
    if type(index) is str and len(index) >= COPIED:
        machine.host.meter.compare(len(index))
    value = read_index(stack[-1], index)
    if value is MISSING:
        raise absent(stack[-1], index, _path(machine, frame, b, ""))
    stack[-1] = value


def _try_index(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    stack = frame.stack
    if type(stack[-1]) is str:
        machine.host.meter.compare(len(stack[-1]))
    value = read_index(stack[-2], stack.pop())
    if value is MISSING:
        stack[-1] = None
        frame.position = b
    else:
        stack[-1] = value


def _output(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.stack[-1]
    if type(value) is dict and "output" in value:
        frame.stack[-1] = value["output"]


def _unary(machine: Interpreter, frame: Frame, a: Callable[[Value], Value], b: int) -> None:
    frame.stack[-1] = a(frame.stack[-1])


def _binary(machine: Interpreter, frame: Frame, a: Operator, b: int) -> None:
    stack = frame.stack
    right = stack.pop()
    stack[-1] = a(machine.host, stack[-1], right)


def _binary_work(machine: Interpreter, frame: Frame, a: Operator, b: int) -> None:
    """Apply an operator that may process texts and lists."""
    stack = frame.stack
    right = stack.pop()
    meter = machine.host.meter
    stack[-1] = a(machine.host, stack[-1], right)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _add(machine: Interpreter, frame: Frame, a: Operator, b: int) -> None:
    stack = frame.stack
    right = stack.pop()
    left = stack[-1]
    if type(left) is int and type(right) is int:
        whole = left + right
        stack[-1] = whole if -WORD <= whole < WORD else within_word(whole)
        return
    meter = machine.host.meter
    stack[-1] = a(machine.host, left, right)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _compare(machine: Interpreter, frame: Frame, a: Operator, b: int) -> None:
    stack = frame.stack
    right = stack.pop()
    stack[-1] = a(machine.host, stack[-1], right)
    if type(right) is not int:
        meter = machine.host.meter
        if meter.work_left <= meter.mark:
            raise SliceUsed


def _ordering(test: Callable[[Value, Value], bool]) -> Handler:
    """Return the handler of an ordering: integers are compared at once."""

    def apply(machine: Interpreter, frame: Frame, a: Operator, b: int) -> None:
        stack = frame.stack
        right = stack.pop()
        left = stack[-1]
        if type(left) is int and type(right) is int:
            stack[-1] = test(left, right)
            return
        stack[-1] = a(machine.host, left, right)
        if type(right) is not int:
            meter = machine.host.meter
            if meter.work_left <= meter.mark:
                raise SliceUsed

    return apply


_ON_NUMBERS = dict.fromkeys(("-", "*", "/", "%", "**"), _binary)
_EQUALITIES = dict.fromkeys(("==", "!="), _compare)
_ORDERED = {name: _ordering(test) for name, test in ORDERINGS.items()}
_BY_NAME: dict[str, Handler] = {"+": _add, **_ON_NUMBERS, **_EQUALITIES, **_ORDERED}
BINARY_HANDLERS: tuple[Handler, ...] = tuple([_BY_NAME.get(name, _binary_work) for name in BINARY_NAMES]) * 2
"""The handler of BINARY by its operand: strict ones, then loose ones."""


def looking_up(handler: Handler) -> Handler:
    """Return the handler of an instruction with a long name: looking it up compares the whole name."""

    def apply(machine: Any, frame: Frame, a: Any, b: Any) -> bool | None:
        machine.host.meter.compare(len(a))
        return handler(machine, frame, a, b)

    return apply


def _jump(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.position = b


def _jump_if_false(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.stack.pop()
    if value is not True and (value is False or not truthy(value)):
        frame.position = b


def _keep_if_false(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if truthy(frame.stack[-1]):
        frame.stack.pop()
    else:
        frame.position = b


def _keep_if_true(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if truthy(frame.stack[-1]):
        frame.position = b
    else:
        frame.stack.pop()


def _keep_if_present(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if frame.stack[-1] is None:
        frame.stack.pop()
    else:
        frame.position = b


def _list(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    machine.host.meter.keep(BYTES_PER_OBJECT, "a list")
    frame.stack.append([])


def _append(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    machine.host.meter.keep(BYTES_PER_ITEM, "a list")
    value = frame.stack.pop()
    frame.stack[-1].append(value)


def _extend(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    items = frame.stack.pop()
    if not isinstance(items, (list, str)):
        raise ScriptThrow("TYPE_ERROR", f"'...' needs a list here, not {kind_of(items)}")
    meter = machine.host.meter
    meter.items(len(items), "'...'")
    frame.stack[-1].extend(items)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _object(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    machine.host.meter.keep(BYTES_PER_OBJECT, "an object")
    frame.stack.append({})


def _put(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    value = frame.stack.pop()
    key = key_of(frame.stack.pop())
    machine.host.meter.keep(BYTES_PER_OBJECT + len(key), "an object")
    frame.stack[-1][key] = value


def _merge(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    """Merge objects. Spreading null adds nothing, so that optional parts can be spread."""
    fields = frame.stack.pop()
    if fields is None:
        return
    if not isinstance(fields, dict):
        raise ScriptThrow("TYPE_ERROR", f"'...' needs an object here, not {kind_of(fields)}")
    meter = machine.host.meter
    meter.fields(len(fields), "'...'")
    frame.stack[-1].update(fields)
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _text(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    stack = frame.stack
    texts = [to_text(value, machine.host) for value in stack[len(stack) - a :]]
    meter = machine.host.meter
    meter.allocate(sum(map(len, texts)), "a template text")
    del stack[len(stack) - a :]
    stack.append(meter.made("".join(texts), "a template text"))
    if meter.work_left <= meter.mark:
        raise SliceUsed


def _arguments(frame: Frame, count: int) -> list[Value]:
    stack = frame.stack
    if count < 0:
        spread: list[Value] = stack.pop()
        return spread
    start = len(stack) - count
    arguments = stack[start:]
    del stack[start:]
    return arguments


def _call(machine: Interpreter, frame: Frame, a: int, b: int) -> bool:
    arguments = _arguments(frame, a)
    return machine.call(frame.stack.pop(), arguments)


def _method(machine: Interpreter, frame: Frame, a: int, b: str) -> bool:
    arguments = _arguments(frame, a)
    return machine.call_member(frame.stack.pop(), b, arguments)


def _check_method(machine: Interpreter, frame: Frame, a: str, b: int) -> None:
    receiver = frame.stack[-1]
    if receiver is None or (type(receiver) is dict and a not in receiver):
        frame.stack[-1] = None
        frame.position = b


def _passed(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if frame.argument_count > a:
        frame.position = b


def _duplicate(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(frame.stack[-1])


def _drop(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    frame.stack.pop()


def _rest(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    machine.host.meter.items(max(0, len(frame.stack[-1]) - a), "'...'")
    frame.stack[-1] = frame.stack[-1][a:]


def _check_list(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if not isinstance(frame.stack[-1], list):
        raise ScriptThrow("TYPE_ERROR", f"cannot take a {kind_of(frame.stack[-1])} apart as a list")


def _check_object(machine: Interpreter, frame: Frame, a: int, b: int) -> None:
    if not isinstance(frame.stack[-1], (dict, ErrorValue)):
        raise ScriptThrow("TYPE_ERROR", f"cannot take a {kind_of(frame.stack[-1])} apart as an object")


def _try_field(machine: Interpreter, frame: Frame, a: str, b: int) -> None:
    value = read_member(frame.stack.pop(), a)
    if value is not MISSING:
        frame.stack.append(value)
        frame.position = b


def _return(machine: Interpreter, frame: Frame, a: int, b: int) -> bool:
    value = frame.stack.pop()
    machine.frames.pop()
    machine.deliver(value)
    return True


_BY_OPCODE: dict[Op, Handler] = {
    Op.CONSTANT: _constant,
    Op.ROOT: _root,
    Op.EXTERNAL: _external,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.BUILTIN: _constant,
    Op.FUNCTION: _function,
    Op.MEMBER: _member,
    Op.TRY_MEMBER: _try_member,
    Op.INDEX: _index,
    Op.TRY_INDEX: _try_index,
    Op.OUTPUT: _output,
    Op.UNARY: _unary,
    Op.BINARY: _binary,
    Op.JUMP: _jump,
    Op.JUMP_IF_FALSE: _jump_if_false,
    Op.KEEP_IF_FALSE: _keep_if_false,
    Op.KEEP_IF_TRUE: _keep_if_true,
    Op.KEEP_IF_PRESENT: _keep_if_present,
    Op.LIST: _list,
    Op.APPEND: _append,
    Op.EXTEND: _extend,
    Op.OBJECT: _object,
    Op.PUT: _put,
    Op.MERGE: _merge,
    Op.TEXT: _text,
    Op.CALL: _call,
    Op.METHOD: _method,
    Op.CHECK_METHOD: _check_method,
    Op.PASSED: _passed,
    Op.DUPLICATE: _duplicate,
    Op.DROP: _drop,
    Op.REST: _rest,
    Op.CHECK_LIST: _check_list,
    Op.CHECK_OBJECT: _check_object,
    Op.TRY_FIELD: _try_field,
    Op.RETURN: _return,
    Op.LOAD_BOXED: _load_boxed,
    Op.STORE_BOXED: _store_boxed,
    Op.LOAD_CAPTURED: _load_captured,
    Op.STORE_CAPTURED: _store_captured,
    **SCRIPT_HANDLERS,
}
HANDLERS: tuple[Handler, ...] = tuple([_BY_OPCODE[op] for op in Op])
