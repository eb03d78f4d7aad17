"""The compiler from syntax trees to bytecode. References and calls (chains of links) are in compile_references.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dalsegno.lang.errors import ExpressionError
from dalsegno.lang.expressions.assembler import ConstantPool, FunctionAssembler
from dalsegno.lang.expressions.compile_references import ChainCompiler
from dalsegno.lang.expressions.names import RootNames
from dalsegno.lang.expressions.syntax.precedence import COMPARISONS
from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Binary,
    Block,
    Chain,
    Conditional,
    Entry,
    ListLiteral,
    ListPattern,
    Literal,
    Logical,
    Name,
    NamePattern,
    Node,
    ObjectLiteral,
    Pattern,
    Root,
    Spread,
    Target,
    TextTemplate,
    Unary,
)
from dalsegno.lang.runtime.code import CodeUnit, FunctionCode, Op
from dalsegno.lang.runtime.instructions import BINARY_NAMES, LOOSE_START, UNARY_NAMES

_BINARY = {name: position for position, name in enumerate(BINARY_NAMES)}
_UNARY = {name: position for position, name in enumerate(UNARY_NAMES)}
_KEEP = {"&&": Op.KEEP_IF_FALSE, "||": Op.KEEP_IF_TRUE, "??": Op.KEEP_IF_PRESENT}


@dataclass(frozen=True, slots=True)
class Reference:
    """A root that an expression mentions, and its position."""

    root: str
    offset: int


class Compiler(ChainCompiler):
    """Compiles one unit. ``lenient`` on a method means: a missing path is null here."""

    def __init__(self, source: str, names: RootNames, condition: bool = False) -> None:
        self.source = source
        self.names = names
        self.condition = condition
        self.pool = ConstantPool()
        self.functions: list[FunctionCode | None] = [None]
        self.here = FunctionAssembler("expression")
        self.references: list[Reference] = []
        self.makes_foreign = False

    def unit(self, tree: Node) -> CodeUnit:
        self.node(tree, lenient=self.condition)
        self.here.emit(Op.RETURN, at=tree.offset)
        self.functions[0] = self.here.finish()
        functions = tuple(function for function in self.functions if function is not None)
        return CodeUnit(self.source, functions, tuple(self.pool.values), self.makes_foreign)

    def problem(self, message: str, offset: int) -> ExpressionError:
        return ExpressionError.at(message, self.source, offset)

    def refer(self, root: str, offset: int) -> None:
        self.references.append(Reference(root, offset))

    def node(self, node: Node, lenient: bool = False) -> None:
        match node:
            case Literal():
                self.here.emit(Op.CONSTANT, self.pool.add(node.value), at=node.offset)
            case Name() | Root():
                self.chain(Chain(node, (), node.offset, 1), lenient)
            case Chain():
                self.chain(node, lenient)
            case Binary():
                self.binary(node)
            case Logical():
                self.logical(node.operator, node.operands, node.offset, lenient)
            case Unary():
                self.node(node.operand, self.condition)
                self.here.emit(Op.UNARY, _UNARY[node.operator], at=node.offset)
            case Conditional():
                self.conditional(node, lenient)
            case ListLiteral():
                self.list_of(node.items, node.offset)
            case ObjectLiteral():
                self.object_literal(node)
            case TextTemplate():
                for part in node.parts:
                    self.node(part, self.condition)
                self.here.emit(Op.TEXT, len(node.parts), at=node.offset)
            case Arrow():
                self.function("arrow function", node)

    def binary(self, node: Binary) -> None:
        self.node(node.first, self.condition or node.steps[0].operator in COMPARISONS)
        for step in node.steps:
            is_comparison = step.operator in COMPARISONS
            self.makes_foreign = self.makes_foreign or not is_comparison
            self.node(step.operand, self.condition or is_comparison)
            position = _BINARY[step.operator] + (LOOSE_START if self.condition else 0)
            self.here.emit(Op.BINARY, position, at=step.offset)

    def logical(self, operator: str, operands: Sequence[Node], offset: int, lenient: bool) -> None:
        exits = []
        for operand in operands[:-1]:
            self.node(operand, lenient or operator == "??")
            exits.append(self.here.emit(_KEEP[operator], at=offset))
        self.node(operands[-1], lenient)
        self.here.land(*exits)

    def conditional(self, node: Conditional, lenient: bool) -> None:
        self.node(node.test, self.condition)
        otherwise = self.here.emit(Op.JUMP_IF_FALSE, at=node.offset)
        self.node(node.then, lenient)
        end = self.here.emit(Op.JUMP, at=node.offset)
        self.here.land(otherwise)
        self.node(node.otherwise, lenient)
        self.here.land(end)

    def list_of(self, items: Sequence[Node | Spread], offset: int) -> None:
        self.here.emit(Op.LIST, at=offset)
        for item in items:
            if isinstance(item, Spread):
                self.node(item.value, self.condition)
                self.here.emit(Op.EXTEND, at=item.offset)
            else:
                self.node(item, self.condition)
                self.here.emit(Op.APPEND, at=item.offset)

    def object_literal(self, node: ObjectLiteral) -> None:
        self.here.emit(Op.OBJECT, at=node.offset)
        for entry in node.entries:
            if isinstance(entry, Entry):
                self.node(entry.key, self.condition)
                self.node(entry.value, self.condition)
                self.here.emit(Op.PUT, at=entry.offset)
            else:
                self.node(entry.value, self.condition)
                self.here.emit(Op.MERGE, at=entry.offset)

    def function(self, name: str, node: Arrow) -> None:
        outer = self.here
        self.functions.append(None)
        number = len(self.functions) - 1
        self.here = FunctionAssembler(name, number, outer)
        self.parameters(node.parameters)
        self.function_body(node)
        self.functions[number] = self.here.finish()
        self.here = outer
        self.makes_foreign = True
        outer.emit(Op.FUNCTION, number, at=node.offset)

    def function_body(self, node: Arrow) -> None:
        if not isinstance(node.body, Block):
            self.node(node.body, self.condition)
        self.here.emit(Op.RETURN, at=node.body.offset)

    def parameters(self, targets: Sequence[Target]) -> None:
        """Compile the parameters of a function.

        All parameters get slots first (calls fill them by position), then defaults and patterns are compiled in order.
        """
        here = self.here
        for target in targets:
            here.declare(target.pattern.name if isinstance(target.pattern, NamePattern) else None)
        here.parameters = len(targets)
        here.has_rest = bool(targets) and targets[-1].rest
        self.parameter_values(targets)

    def parameter_values(self, targets: Sequence[Target]) -> None:
        here = self.here
        for slot, target in enumerate(targets):
            if target.default is not None:
                passed = here.emit(Op.PASSED, slot, at=target.offset)
                self.node(target.default, self.condition)
                here.store(slot, at=target.offset)
                here.land(passed)
            if not isinstance(target.pattern, NamePattern):
                here.load(slot, at=target.offset)
                self.take_apart(target.pattern, self.bind)

    def bind(self, pattern: NamePattern) -> None:
        """Bind a name of a pattern to the value on the stack, as a variable of its own."""
        self.here.store(self.here.declare(pattern.name), at=pattern.offset)

    def take_apart(self, pattern: Pattern, bind: Callable[[NamePattern], None]) -> None:
        """Bind a pattern's names to the value on the stack, and drop it."""
        here = self.here
        if isinstance(pattern, NamePattern):
            bind(pattern)
            return
        if isinstance(pattern, ListPattern):
            here.emit(Op.CHECK_LIST, at=pattern.offset)
            for position, target in enumerate(pattern.targets):
                here.emit(Op.DUPLICATE, at=target.offset)
                self.list_place(position, target)
                self.take_apart(target.pattern, bind)
        else:
            here.emit(Op.CHECK_OBJECT, at=pattern.offset)
            for key, target in pattern.entries:
                here.emit(Op.DUPLICATE, at=target.offset)
                self.field(key, target)
                self.take_apart(target.pattern, bind)
        here.emit(Op.DROP, at=pattern.offset)

    def list_place(self, position: int, target: Target) -> None:
        """Replace the list on the stack by the item at one position of the pattern."""
        if target.rest:
            self.here.emit(Op.REST, position, at=target.offset)
            return
        self.here.emit(Op.CONSTANT, self.pool.add(position), at=target.offset)
        self.here.emit(Op.INDEX, 0, -1, at=target.offset)
        if target.default is not None:
            present = self.here.emit(Op.KEEP_IF_PRESENT, at=target.offset)
            self.node(target.default, self.condition)
            self.here.land(present)

    def field(self, key: str, target: Target) -> None:
        name = self.pool.add(key)
        if target.default is None:
            self.here.emit(Op.MEMBER, name, -1, at=target.offset)
            return
        found = self.here.emit(Op.TRY_FIELD, name, at=target.offset)
        self.node(target.default, self.condition)
        self.here.land(found)
