"""What a waiting frame of a workflow holds on its stack, found in its instructions.

Operands are described by how they were made: two versions of a workflow agree on an operand if the descriptions are
equal. Iterators and managers are described by their sort only: the blocks they belong to are compared elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from dalsegno.lang.python.code import FunctionCode, Op
from dalsegno.lang.python.compile.source import unpack

Operand: TypeAlias = tuple[Any, ...]
Stack: TypeAlias = tuple[Operand, ...]

WHERE = "where"
"""Describes where a ``finally`` block continues: the positions it may continue at follow."""

_ENDS = frozenset((Op.RETURN, Op.AGAIN, Op.RAISE))


class Held(Struct, frozen=True):
    """The operands before an instruction, and the number of exceptions being handled."""

    stack: Stack
    handled: int


class OperandStack:
    """The stacks of one function."""

    def __init__(self, code: FunctionCode) -> None:
        self._code = code
        self._fragments: list[str] | None = None
        self._held: dict[int, Held] | None = None
        self._assigned: dict[int, frozenset[tuple[str, Operand]]] | None = None

    def before_await(self, position: int) -> Held | None:
        """Return what is held below the awaited value; None if the instruction is not reached."""
        found = self._everything().get(position)
        return None if found is None else Held(found.stack[:-1], found.handled)

    def assignments(self, position: int, name: str) -> frozenset[Operand]:
        """Return descriptions of the assignments to a variable that may have taken place before an instruction."""
        if self._assigned is None:
            self._assigned = self._all_assigned()
        return frozenset(what for variable, what in self._assigned.get(position, ()) if variable == name)

    def _all_assigned(self) -> dict[int, frozenset[tuple[str, Operand]]]:
        names = self._code.variables
        given = tuple((name, ("given",)) for name in (*self._code.parameters, *names[self._code.own :]))
        found = {0: frozenset(given)}
        waiting = [0]
        held = self._everything()
        while waiting:
            at = waiting.pop()
            after = self._assigned_after(at, held[at], found[at])
            for target, _ in self._after(at, held[at]):
                known = found.get(target)
                merged = after | found[at] if self._is_handler(target) else after
                if known is None or not merged <= known:
                    found[target] = merged if known is None else merged | known
                    waiting.append(target)
        return found

    def _assigned_after(
        self, at: int, held: Held, before: frozenset[tuple[str, Operand]]
    ) -> frozenset[tuple[str, Operand]]:
        number, a, _ = self._code.instructions[at]
        if number in (Op.STORE, Op.CLEAR, Op.RENEW):
            name = self._code.variables[a]
            kept = frozenset(found for found in before if found[0] != name)
            return kept | {(name, held.stack[-1])} if number == Op.STORE else kept
        if number in (Op.RUN, Op.EXECUTE):
            text = self._fragment(a)
            return before | {
                (name, ("fragment", text)) for name in self._code.variables if f"'{name}'" in text
            }
        return before

    def _is_handler(self, position: int) -> bool:
        return any(handler.target == position for handler in self._code.handlers)

    def _everything(self) -> dict[int, Held]:
        if self._held is None:
            self._held = self._all()
        return self._held

    def _all(self) -> dict[int, Held]:
        found = {0: Held((), 0)}
        waiting = [0]
        while waiting:
            at = waiting.pop()
            for target, held in self._after(at, found[at]):
                known = found.get(target)
                merged = held if known is None else _merged(known, held)
                if merged != known:
                    found[target] = merged
                    waiting.append(target)
        return found

    def _after(self, at: int, held: Held) -> Iterator[tuple[int, Held]]:
        """Yield the instructions that may follow, each with what is held before it."""
        number, a, b = self._code.instructions[at]
        op, stack = Op(number), held.stack
        for handler in self._code.handlers:
            if handler.start <= at < handler.stop:
                yield handler.target, Held((*stack[: handler.depth], ("error",)), handler.handled)
                break
        if op in _ENDS:
            return
        if op is Op.END_FINALLY:
            for target in stack[-1][1]:
                if target >= 0:
                    yield target, Held(stack[:-1], held.handled - 1)
            return
        jumped = _JUMPED.get(op)
        if jumped is not None:
            yield a, Held(jumped(stack), held.handled)
        if op not in (Op.JUMP, Op.ESCAPE):
            yield at + 1, Held(self._effect(op, a, b, stack), held.handled + _HANDLED.get(op, 0))

    def _effect(self, op: Op, a: int, b: int, stack: Stack) -> Stack:
        simple = _EFFECTS.get(op)
        if simple is not None:
            return simple(stack)
        match op:
            case Op.RUN:
                return (*stack[: len(stack) - b], ("run", self._fragment(a), *stack[len(stack) - b :]))
            case Op.EXECUTE:
                return stack[: len(stack) - b]
            case Op.LOAD:
                return (*stack, ("variable", self._code.variables[a]))
            case Op.COPY:
                return (*stack, *stack[-a:])
            case Op.CUT:
                return (*stack[:a], stack[-1])
            case Op.RESUME_AT:
                return (*stack, (WHERE, frozenset((a,))))
        return stack

    def _fragment(self, number: int) -> str:
        if self._fragments is None:
            wrapper = unpack(self._code.syntax).body[0]
            self._fragments = [ast.dump(node) for node in wrapper.body if isinstance(node, ast.FunctionDef)]
            self._fragments = [text.partition(", body=")[2] for text in self._fragments]
        return self._fragments[number]


def _merged(one: Held, other: Held) -> Held:
    """Return what is held where two ways meet: what differs is either of both."""
    if len(one.stack) != len(other.stack):
        raise ValueError("two ways to one instruction leave stacks of different depth")
    pairs = zip(one.stack, other.stack, strict=True)
    return Held(
        tuple(first if first == second else _either(first, second) for first, second in pairs), one.handled
    )


def _either(one: Operand, other: Operand) -> Operand:
    if one[0] == other[0] == WHERE:
        return (WHERE, one[1] | other[1])
    found: frozenset[Operand] = frozenset()
    for operand in (one, other):
        found |= operand[1] if operand[0] == "either" else {operand}
    return ("either", found)


def _tuck(stack: Stack) -> Stack:
    return (*stack[:-2], stack[-1], *stack[-2:])


_HANDLED = {Op.CATCH: 1, Op.FINALLY: 1, Op.DONE: -1}

_JUMPED: dict[Op, Callable[[Stack], Stack]] = {
    Op.JUMP: lambda stack: stack,
    Op.JUMP_IF_FALSE: lambda stack: stack[:-1],
    Op.JUMP_IF_TRUE: lambda stack: stack[:-1],
    Op.JUMP_IF_NONE: lambda stack: stack[:-1],
    Op.FALSE_OR_POP: lambda stack: stack,
    Op.TRUE_OR_POP: lambda stack: stack,
    Op.NEXT: lambda stack: stack[:-1],
    Op.MATCHES: lambda stack: stack[:-1],
    Op.ESCAPE: lambda stack: stack[:-2],
}

_EFFECTS: dict[Op, Callable[[Stack], Stack]] = {
    Op.STORE: lambda stack: stack[:-1],
    Op.NOTHING: lambda stack: (*stack, ("none",)),
    Op.POP: lambda stack: stack[:-1],
    Op.TUCK: _tuck,
    Op.UNWRAP: lambda stack: (*stack[:-1], ("unwrapped", stack[-1])),
    Op.JUMP_IF_FALSE: lambda stack: stack[:-1],
    Op.JUMP_IF_TRUE: lambda stack: stack[:-1],
    Op.FALSE_OR_POP: lambda stack: stack[:-1],
    Op.TRUE_OR_POP: lambda stack: stack[:-1],
    Op.ITERATE: lambda stack: (*stack[:-1], ("iterator",)),
    Op.NEXT: lambda stack: (*stack, ("item",)),
    Op.APPEND: lambda stack: stack[:-1],
    Op.ADD: lambda stack: stack[:-1],
    Op.ENTRY: lambda stack: stack[:-2],
    Op.NEW_LIST: lambda stack: (*stack, ("list",)),
    Op.NEW_SET: lambda stack: (*stack, ("set",)),
    Op.NEW_DICT: lambda stack: (*stack, ("dict",)),
    Op.AWAIT: lambda stack: (*stack[:-1], ("awaited", stack[-1])),
    Op.CATCH: lambda stack: stack[:-1],
    Op.CAUGHT: lambda stack: (*stack, ("caught",)),
    Op.MATCHES: lambda stack: stack[:-1],
    Op.FINALLY: lambda stack: (*stack[:-2], ("payload",), stack[-1]),
    Op.ENTER: lambda stack: (*stack[:-1], ("manager",), ("entered",)),
    Op.LEAVE: lambda stack: (*stack[:-2], stack[-1]),
    Op.FUNCTION: lambda stack: (*stack[:-1], ("function",)),
}
