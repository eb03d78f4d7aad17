"""What a waiting frame of a script holds, found in its bytecode: operands on the stack, and variables read later.

Operands are described by how they were made: two versions of a program agree on an operand if the descriptions are
equal. A description is a tuple, such as ``("call", ("variable", "f"), ("constant", "int", 1))``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from dalsegno.lang.runtime.code import CAPTURED, GLOBAL, SLOT, CodeUnit, FunctionCode, Op, Place

Operand: TypeAlias = tuple[Any, ...]
Stack: TypeAlias = tuple[Operand, ...]
Variable: TypeAlias = int | tuple[str, Any]
"""A slot; ``("captured", position)``; or ``("global", name)``."""

_ENDS = frozenset((Op.RETURN, Op.THROW, Op.FINISH, Op.FAIL))
_ALWAYS = Op.JUMP
_JUMPS = frozenset(
    (Op.JUMP, Op.JUMP_IF_FALSE, Op.KEEP_IF_FALSE, Op.KEEP_IF_TRUE, Op.KEEP_IF_PRESENT, Op.TRY_MEMBER, Op.TRY_INDEX,
     Op.CHECK_METHOD, Op.PASSED, Op.TRY_FIELD, Op.NEXT)
)  # fmt: skip
_CALLS = frozenset((Op.CALL, Op.METHOD, Op.MUTATE))
_POPS = {
    Op.STORE: 1, Op.STORE_BOXED: 1, Op.STORE_CAPTURED: 1, Op.STORE_GLOBAL: 1, Op.DROP: 1, Op.JUMP_IF_FALSE: 1,
    Op.ITERATE: 1,
}  # fmt: skip
_KEPT: Operand = ("null",)


class Analysis:
    """The analysis of one function of a unit."""

    def __init__(self, unit: CodeUnit, function: FunctionCode) -> None:
        self._unit = unit
        self._code = function
        self._names = {
            slot: name
            for scope in function.scopes
            for slot, name in enumerate(scope.names, scope.first)
            if name is not None
        }
        self._stacks: dict[int, Stack] | None = None
        self._live: list[frozenset[Variable]] | None = None

    # -- operands ---------------------------------------------------------------------------------------------

    def operands(self, position: int) -> Stack | None:
        """Return the operands before an instruction, without those that it takes itself; None if it is not reached."""
        if self._stacks is None:
            self._stacks = self._all_stacks()
        stack = self._stacks.get(position)
        if stack is None:
            return None
        op, a, b = self._code.instructions[position]
        taken = 1 if op == Op.AWAIT else self._taken(Op(op), a, b)
        return stack[: len(stack) - taken]

    def _taken(self, op: Op, a: int, b: int) -> int:
        arguments = a if a >= 0 else 1
        return arguments + (self._unit.places[b].dynamic if op == Op.MUTATE else 1)

    def _all_stacks(self) -> dict[int, Stack]:
        found: dict[int, Stack] = {0: ()}
        waiting = [0]
        while waiting:
            at = waiting.pop()
            for target, stack in self._after(at, found[at]):
                known = found.get(target)
                merged = stack if known is None else _merged(known, stack)
                if merged != known:
                    found[target] = merged
                    waiting.append(target)
        return found

    def _after(self, at: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
        """Yield the instructions that may follow, each with the operands before it."""
        op, a, b = self._code.instructions[at]
        for handler in self._code.protected_ranges:
            if handler.start <= at < handler.stop:
                yield handler.target, (("caught",),)
                break
        if op in _ENDS:
            return
        if op in _JUMPS:
            yield b, self._jumped(Op(op), a, stack)
        if op != _ALWAYS:
            yield at + 1, self._effect(Op(op), a, b, stack)

    def _jumped(self, op: Op, a: int, stack: Stack) -> Stack:
        if op == Op.JUMP_IF_FALSE:
            return stack[:-1]
        if op in (Op.TRY_MEMBER, Op.CHECK_METHOD):
            return (*stack[:-1], _KEPT)
        if op == Op.TRY_INDEX:
            return (*stack[:-2], _KEPT)
        if op == Op.TRY_FIELD:
            return (*stack[:-1], ("member", stack[-1], self._constant(a)))
        return stack

    def _effect(self, op: Op, a: int, b: int, stack: Stack) -> Stack:
        pops = _POPS.get(op)
        if pops is not None:
            return stack[:-pops]
        if op in (Op.KEEP_IF_FALSE, Op.KEEP_IF_TRUE, Op.KEEP_IF_PRESENT, Op.TRY_FIELD):
            return stack[:-1]
        if op in _CALLS:
            taken = self._taken(op, a, b)
            head = () if op == Op.CALL else (self._constant(b),) if op == Op.METHOD else self._place(b)
            return (*stack[: len(stack) - taken], (op.name, *head, *stack[len(stack) - taken :]))
        if op == Op.ASSIGN:
            return stack[: len(stack) - 1 - self._unit.places[a].dynamic]
        if op == Op.TEXT:
            return (*stack[: len(stack) - a], ("text", *stack[len(stack) - a :]))
        combine = _COMBINE.get(op)
        if combine is not None:
            return (
                *stack[: len(stack) - combine],
                (op.name, a if op in _NUMBERED else self._name(op, a), *stack[-combine:]),
            )
        make = self._made(op, a)
        return stack if make is None else (*stack, make)

    def _name(self, op: Op, a: int) -> Any:
        return self._constant(a) if op in (Op.MEMBER, Op.TRY_MEMBER) else None

    def _made(self, op: Op, a: int) -> Operand | None:
        """Return the operand that an instruction adds, if it adds one."""
        unit, code = self._unit, self._code
        match op:
            case Op.CONSTANT:
                return self._constant(a)
            case Op.BUILTIN:
                return ("builtin", unit.constants[a])
            case Op.LOAD | Op.LOAD_BOXED:
                return ("variable", self._names.get(a, ""))
            case Op.LOAD_CAPTURED:
                return ("variable", code.capture_names[a])
            case Op.LOAD_GLOBAL:
                return ("variable", unit.constants[a])
            case Op.FUNCTION:
                return ("function", unit.functions[a].name)
            case Op.READ_PLACE:
                return ("place", *self._place(a))
        return (op.name,) if op in _PLAIN else None

    def _constant(self, a: int) -> Operand:
        value = self._unit.constants[a]
        return ("constant", type(value).__name__, repr(value))

    def _place(self, number: int) -> Operand:
        place = self._unit.places[number]
        if place.root == SLOT:
            root: Any = self._names.get(place.index, "")
        elif place.root == CAPTURED:
            root = self._code.capture_names[place.index]
        else:
            root = self._unit.constants[place.index]
        return (root, place.links, place.method)

    # -- variables --------------------------------------------------------------------------------------------

    def live(self, position: int) -> frozenset[Variable]:
        """Return the variables that may be read before they are written, from an instruction on."""
        if self._live is None:
            self._live = self._all_live()
        return self._live[position]

    def live_after_call(self, position: int) -> frozenset[Variable]:
        """Return those that the instruction after a call may find; the call itself may still throw."""
        found = self.live(position + 1)
        for handler in self._code.protected_ranges:
            if handler.start <= position < handler.stop:
                return found | self.live(handler.target)
        return found

    def _all_live(self) -> list[frozenset[Variable]]:
        code = self._code.instructions
        uses = [self._uses(at) for at in range(len(code))]
        live: list[frozenset[Variable]] = [frozenset()] * len(code)
        changed = True
        while changed:
            changed = False
            for at in range(len(code) - 1, -1, -1):
                reads, writes = uses[at]
                found = reads | (frozenset().union(*(live[then] for then in self._followers(at))) - writes)
                for handler in self._code.protected_ranges:
                    if handler.start <= at < handler.stop:
                        found |= live[handler.target]
                if found != live[at]:
                    live[at] = found
                    changed = True
        return live

    def _followers(self, at: int) -> list[int]:
        op, _, b = self._code.instructions[at]
        found = [b] if op in _JUMPS else []
        if op not in _ENDS and op != _ALWAYS and at + 1 < len(self._code.instructions):
            found.append(at + 1)
        return found

    def _uses(self, at: int) -> tuple[frozenset[Variable], frozenset[Variable]]:
        """Return the variables that an instruction reads, and those that it writes."""
        op, a, b = self._code.instructions[at]
        if op in (Op.LOAD, Op.LOAD_BOXED, Op.NEXT):
            return frozenset((a,)), frozenset()
        if op in (Op.STORE, Op.STORE_BOXED, Op.ITERATE):
            return frozenset(), frozenset((a,))
        if op == Op.SCOPE:
            return frozenset(), frozenset(range(a, b))
        if op == Op.RENEW:
            return frozenset(range(a, b)), frozenset()
        return frozenset(self._others_read(Op(op), a, b)), frozenset(self._others_written(Op(op), a))

    def _others_read(self, op: Op, a: int, b: int) -> Iterator[Variable]:
        if op == Op.LOAD_CAPTURED:
            yield ("captured", a)
        elif op == Op.LOAD_GLOBAL:
            yield ("global", self._unit.constants[a])
        elif op == Op.FUNCTION:
            for index in self._unit.functions[a].captures:
                yield index if index >= 0 else ("captured", -index - 1)
        elif op in (Op.ASSIGN, Op.READ_PLACE, Op.MUTATE):
            yield _root(self._unit, self._unit.places[b if op == Op.MUTATE else a])

    def _others_written(self, op: Op, a: int) -> Iterator[Variable]:
        if op == Op.STORE_GLOBAL:
            yield ("global", self._unit.constants[a])


def _root(unit: CodeUnit, place: Place) -> Variable:
    if place.root == SLOT:
        return place.index
    return ("captured", place.index) if place.root == CAPTURED else ("global", unit.constants[place.index])


def globals_read(unit: CodeUnit, function: FunctionCode) -> frozenset[Any]:
    """Return the workflow-wide variables that a function reads."""
    names = {unit.constants[a] for op, a, _ in function.instructions if op == Op.LOAD_GLOBAL}
    places = [
        a if op != Op.MUTATE else b
        for op, a, b in function.instructions
        if op in (Op.ASSIGN, Op.READ_PLACE, Op.MUTATE)
    ]
    roots = [unit.places[number] for number in places]
    return frozenset(names | {unit.constants[place.index] for place in roots if place.root == GLOBAL})


def _merged(one: Stack, other: Stack) -> Stack:
    """Return the operands where two ways meet: what differs is either of both."""
    if len(one) != len(other):
        raise ValueError("two ways to one instruction leave stacks of different depth")
    return tuple(
        [
            first if first == second else _either(first, second)
            for first, second in zip(one, other, strict=True)
        ]
    )


def _either(*operands: Operand) -> Operand:
    found: set[Operand] = set()
    for operand in operands:
        found |= operand[1] if operand[0] == "either" else {operand}
    return ("either", frozenset(found))


_COMBINE = {
    Op.MEMBER: 1, Op.TRY_MEMBER: 1, Op.INDEX: 2, Op.TRY_INDEX: 2, Op.OUTPUT: 1, Op.UNARY: 1, Op.BINARY: 2, Op.APPEND: 2,
    Op.EXTEND: 2, Op.PUT: 3, Op.MERGE: 2, Op.REST: 1, Op.AWAIT: 1,
}  # fmt: skip
"""Instructions that replace so many operands by one."""
_PLAIN = frozenset((Op.LIST, Op.OBJECT, Op.DUPLICATE, Op.NEXT))
_NUMBERED = frozenset((Op.UNARY, Op.BINARY, Op.REST))
