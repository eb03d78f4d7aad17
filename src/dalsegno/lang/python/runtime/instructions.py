"""The handlers of the instructions.

A handler returns True when the machine must check which frame is on top, or whether it still runs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import CellType
from typing import Any, Protocol

from dalsegno.lang.python.code import Op
from dalsegno.lang.python.compile.unsupported import no_manager
from dalsegno.lang.python.exceptions import matches
from dalsegno.lang.python.program import PythonProgram
from dalsegno.lang.python.runtime.frames import Frame
from dalsegno.lang.python.runtime.nested import NestedFunction
from dalsegno.lang.python.timeouts import Timeout
from dalsegno.lang.runtime.promises import AnyPromise, Group, Promise, Settled

# ruff: noqa: ARG001 - functions of a dispatch table share one signature


class Machine(Protocol):
    """The machine (interpreter.py), as its instructions use it."""

    program: PythonProgram
    frames: list[Frame]

    def current_exception(self) -> BaseException | None: ...

    def wait(self, frame: Frame, promise: AnyPromise) -> bool: ...

    def enter(self, awaited: Any) -> None: ...

    def throw(self, error: BaseException) -> None: ...

    def complete(self, value: Any) -> None: ...

    def enter_timeout(self, timeout: Timeout) -> None: ...

    def leave_timeout(self, timeout: Timeout) -> None: ...


Instruct = Callable[[Machine, Frame, int, int], bool | None]


def _run(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(_called(machine, frame, a, b))


def _execute(machine: Machine, frame: Frame, a: int, b: int) -> None:
    _called(machine, frame, a, b)


def _called(machine: Machine, frame: Frame, a: int, b: int) -> Any:
    function = frame.native(machine.program, a)
    arguments: list[Any] = []
    if b:
        arguments = frame.stack[-b:]
        del frame.stack[-b:]
    handled = machine.current_exception()
    return function(*arguments) if handled is None else _while_handling(handled, function, arguments)


def _while_handling(handled: BaseException, function: Callable[..., Any], arguments: list[Any]) -> Any:
    """Run user code so that it sees the handled exception in ``sys.exc_info()``.

    A bare ``raise`` raises that exception again, and a new exception gets it as its context.
    """
    traceback = handled.__traceback__
    try:
        raise handled
    except BaseException:  # noqa: BLE001 - only to be inside of it
        handled.__traceback__ = traceback
        return function(*arguments)


def _load(machine: Machine, frame: Frame, a: int, b: int) -> None:
    try:
        frame.stack.append(frame.cells[a].cell_contents)
    except ValueError:
        raise unbound(frame, frame.code.variables[a]) from None


def unbound(frame: Frame, name: str) -> NameError:
    """Return Python's own error for an unbound local variable, or for an unbound variable of an enclosing function."""
    if frame.code.variables.index(name) < frame.code.own:
        return UnboundLocalError(
            f"cannot access local variable '{name}' where it is not associated with a value", name=name
        )
    return NameError(
        f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope",
        name=name,
    )


def _store(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.cells[a].cell_contents = frame.stack.pop()


def _clear(machine: Machine, frame: Frame, a: int, b: int) -> None:
    cell = frame.cells[a]
    cell.cell_contents = None
    del cell.cell_contents


def _renew(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.cells[a] = CellType()


def _nothing(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(None)


def _pop(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.pop()


def _copy(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.extend(frame.stack[-a:])


def _tuck(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.insert(-2, frame.stack[-1])


def _cut(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack[a:] = [frame.stack[-1]]


def _unwrap(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack[-1] = frame.stack[-1][0]


def _jump(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.position = a


def _jump_if_false(machine: Machine, frame: Frame, a: int, b: int) -> None:
    if not frame.stack.pop():
        frame.position = a


def _jump_if_true(machine: Machine, frame: Frame, a: int, b: int) -> None:
    if frame.stack.pop():
        frame.position = a


def _jump_if_none(machine: Machine, frame: Frame, a: int, b: int) -> None:
    if frame.stack[-1] is None:
        frame.stack.pop()
        frame.position = a


def _false_or_pop(machine: Machine, frame: Frame, a: int, b: int) -> None:
    if frame.stack[-1]:
        frame.stack.pop()
    else:
        frame.position = a


def _true_or_pop(machine: Machine, frame: Frame, a: int, b: int) -> None:
    if frame.stack[-1]:
        frame.position = a
    else:
        frame.stack.pop()


def _iterate(machine: Machine, frame: Frame, a: int, b: int) -> None:
    """Push an iterator.

    Enums give generators, which cannot be stored, so a tuple of their members is used: it never changes.
    """
    value = frame.stack[-1]
    is_enum = isinstance(value, enum.EnumMeta | enum.Flag) and type(value).__iter__ in _ITERATIONS_OF_ENUMS
    frame.stack[-1] = iter(tuple(value) if is_enum else value)


_ITERATIONS_OF_ENUMS = (enum.EnumMeta.__iter__, enum.Flag.__iter__)


_EXHAUSTED = object()


def _next(machine: Machine, frame: Frame, a: int, b: int) -> None:
    item = next(frame.stack[-1], _EXHAUSTED)
    if item is _EXHAUSTED:
        frame.stack.pop()
        frame.position = a
    else:
        frame.stack.append(item)


def _append(machine: Machine, frame: Frame, a: int, b: int) -> None:
    item = frame.stack.pop()
    frame.stack[-1 - a].append(item)


def _add(machine: Machine, frame: Frame, a: int, b: int) -> None:
    item = frame.stack.pop()
    frame.stack[-1 - a].add(item)


def _entry(machine: Machine, frame: Frame, a: int, b: int) -> None:
    value = frame.stack.pop()
    key = frame.stack.pop()
    frame.stack[-1 - a][key] = value


def _new_list(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append([])


def _new_set(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(set())


def _new_dict(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append({})


def _await(machine: Machine, frame: Frame, a: int, b: int) -> bool | None:
    value = frame.stack[-1]
    if isinstance(value, Promise | Group | Settled):
        return machine.wait(frame, value)
    frame.stack.pop()
    machine.enter(value)
    return True


def _return(machine: Machine, frame: Frame, a: int, b: int) -> bool:
    value = frame.stack[-1]
    if len(machine.frames) > 1:
        machine.frames.pop()
        machine.frames[-1].stack.append(value)
        return True
    if isinstance(value, Promise | Group | Settled):
        if machine.wait(frame, value):
            return True
        value = frame.stack[-1]
    machine.complete(value)
    return True


def _catch(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.handled.append(frame.stack.pop())


def _caught(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(frame.handled[-1])


def _matches(machine: Machine, frame: Frame, a: int, b: int) -> None:
    error = frame.handled[-1]
    if error is None or not matches(error, frame.stack.pop()):
        frame.position = a


def _done(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.handled.pop()


def _again(machine: Machine, frame: Frame, a: int, b: int) -> bool:
    error = frame.handled.pop()
    if error is not None:
        machine.throw(error)
    return True


def _raise(machine: Machine, frame: Frame, a: int, b: int) -> bool:
    machine.throw(frame.stack.pop())
    return True


def _resume_at(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.stack.append(a)


def _finally(machine: Machine, frame: Frame, a: int, b: int) -> None:
    frame.handled.append(frame.stack[-2] if frame.stack[-1] < 0 else None)


def _end_finally(machine: Machine, frame: Frame, a: int, b: int) -> bool | None:
    where = frame.stack.pop()
    frame.handled.pop()
    if where < 0:
        machine.throw(frame.stack.pop())
        return True
    frame.position = where
    return None


def _enter(machine: Machine, frame: Frame, a: int, b: int) -> None:
    manager = frame.stack[-1]
    if isinstance(manager, Timeout):
        machine.enter_timeout(manager)
        frame.stack.append(manager)
        return
    kind = type(manager)
    if a:
        raise TypeError(no_manager(kind.__name__))
    if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
        raise TypeError(f"'{kind.__name__}' object does not support the context manager protocol")
    frame.stack.append(kind.__enter__(manager))


def _leave(machine: Machine, frame: Frame, a: int, b: int) -> None:
    manager = frame.stack.pop(-2)
    if isinstance(manager, Timeout):
        machine.leave_timeout(manager)
    else:
        type(manager).__exit__(manager, None, None, None)


def _escape(machine: Machine, frame: Frame, a: int, b: int) -> bool | None:
    error = frame.stack.pop()
    manager = frame.stack.pop()
    if isinstance(manager, Timeout):
        machine.leave_timeout(manager)
        is_suppressed = False
    else:
        is_suppressed = _while_handling(
            error, type(manager).__exit__, [manager, type(error), error, error.__traceback__]
        )
    if is_suppressed:
        frame.position = a
        return None
    machine.throw(error)
    return True


def _function(machine: Machine, frame: Frame, a: int, b: int) -> None:
    cells = tuple(frame.cells[index] for index in machine.program.functions[a].captured)
    frame.stack[-1] = NestedFunction(a, frame.stack[-1], cells)


_TABLE: dict[Op, Instruct] = {
    Op.RUN: _run,
    Op.EXECUTE: _execute,
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.CLEAR: _clear,
    Op.RENEW: _renew,
    Op.NOTHING: _nothing,
    Op.POP: _pop,
    Op.COPY: _copy,
    Op.TUCK: _tuck,
    Op.CUT: _cut,
    Op.UNWRAP: _unwrap,
    Op.JUMP: _jump,
    Op.JUMP_IF_FALSE: _jump_if_false,
    Op.JUMP_IF_TRUE: _jump_if_true,
    Op.JUMP_IF_NONE: _jump_if_none,
    Op.FALSE_OR_POP: _false_or_pop,
    Op.TRUE_OR_POP: _true_or_pop,
    Op.ITERATE: _iterate,
    Op.NEXT: _next,
    Op.APPEND: _append,
    Op.ADD: _add,
    Op.ENTRY: _entry,
    Op.NEW_LIST: _new_list,
    Op.NEW_SET: _new_set,
    Op.NEW_DICT: _new_dict,
    Op.AWAIT: _await,
    Op.RETURN: _return,
    Op.CATCH: _catch,
    Op.CAUGHT: _caught,
    Op.MATCHES: _matches,
    Op.DONE: _done,
    Op.AGAIN: _again,
    Op.RAISE: _raise,
    Op.RESUME_AT: _resume_at,
    Op.FINALLY: _finally,
    Op.END_FINALLY: _end_finally,
    Op.ENTER: _enter,
    Op.LEAVE: _leave,
    Op.ESCAPE: _escape,
    Op.FUNCTION: _function,
}

HANDLERS: tuple[Instruct, ...] = tuple(
    _TABLE.get(Op(number), _nothing) if number else _nothing for number in range(42)
)
