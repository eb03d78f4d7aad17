"""The script compiler: declarations, assignments and simple statements.

Expressions are in expressions.py, loops and ``try`` in control_flow.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.lang.expressions.assembler import Variable
from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Assignment,
    Block,
    Break,
    Chain,
    Continue,
    Declaration,
    ExpressionStatement,
    For,
    ForEach,
    Function,
    If,
    Name,
    NamePattern,
    Node,
    Program,
    Return,
    Root,
    Statement,
    Target,
    Throw,
    Try,
    While,
)
from dalsegno.lang.flow.compile.control_flow import Branching, pattern_names
from dalsegno.lang.flow.compile.expressions import GIVEN
from dalsegno.lang.runtime.code import CodeUnit, Op
from dalsegno.lang.runtime.instructions import BINARY_NAMES
from dalsegno.lang.stdlib.registry import is_library_name

_SHORT_CIRCUIT = {"??=": Op.KEEP_IF_PRESENT, "||=": Op.KEEP_IF_TRUE, "&&=": Op.KEEP_IF_FALSE}


class ProgramCompiler(Branching):
    """Compiles one program."""

    def program(self, program: Program) -> CodeUnit:
        here, body = self.here, program.body
        here.name = "main"
        here.parameters = len(program.parameters)
        here.has_rest = bool(program.parameters) and program.parameters[-1].rest
        for _ in program.parameters:
            here.declare(None)
        with self.scope([(function.name, False) for function in program.functions], body.offset):
            self.hoist(program.functions)
            self.main(program.parameters, body)
        here.emit(Op.CONSTANT, self.pool.add(None), at=body.offset)
        here.emit(Op.FINISH, at=body.offset)
        for jump, at in self.returns:
            here.land(jump)
            here.emit(Op.AWAIT, at=at)
            here.emit(Op.FINISH, at=at)
        self.functions[0] = here.finish()
        functions = tuple([function for function in self.functions if function is not None])
        return CodeUnit(self.source, functions, tuple(self.pool.values), True, tuple(self.places))

    def main(self, parameters: tuple[Target, ...], body: Block) -> None:
        """Compile the body, which sees the parameters; the other functions do not."""
        here = self.here
        patterns = [target.pattern for target in parameters if not isinstance(target.pattern, NamePattern)]
        names = [(name, False) for pattern in patterns for name in pattern_names(pattern)]
        with self.scope(names, body.offset):
            for slot, target in enumerate(parameters):
                if isinstance(target.pattern, NamePattern):
                    here.visible[-1][target.pattern.name] = Variable(slot)
                    here.parameter_names[slot] = target.pattern.name
            self.parameter_values(parameters)
            self.block(body)

    def statement(self, statement: Statement) -> None:
        match statement:
            case ExpressionStatement():
                self.node(statement.value)
                self.here.emit(Op.DROP, at=statement.offset)
            case Declaration():
                self.declaration(statement)
            case Assignment():
                self.assignment(statement)
            case If():
                self.if_else(statement)
            case Block():
                self.block(statement)
            case Return():
                self.returning(statement)
            case ForEach():
                self.for_each(statement)
            case For():
                self.counting(statement)
            case While():
                self.repeating(statement)
            case Break() | Continue():
                self.leave("break" if isinstance(statement, Break) else "continue", statement.offset)
            case Throw():
                self.node(statement.value)
                self.here.emit(Op.THROW, at=statement.offset)
            case Try():
                self.trying(statement)
            case Function():
                pass  # hoisted to the top of its block

    def hoist(self, functions: Iterable[Function]) -> None:
        for function in functions:
            arrow = Arrow(function.parameters, function.body, function.offset, 1)
            self.function(function.name, arrow)
            self.bind(NamePattern(function.name, function.offset))

    # declarations and assignments

    def declaration(self, statement: Declaration) -> None:
        if statement.value is None:
            self.here.emit(Op.CONSTANT, self.pool.add(None), at=statement.offset)
        else:
            self.named(statement.value, statement.pattern)
        self.take_apart(statement.pattern, self.bind)

    def named(self, value: Node, target: object) -> None:
        """Compile a value; a function takes the name of its variable."""
        if isinstance(value, Arrow) and isinstance(target, NamePattern | Name):
            self.function(target.name, value)
        else:
            self.node(value)

    def bind(self, pattern: NamePattern) -> None:
        """Bind to the innermost scope's variable of that name; patterns of parameters declare theirs here."""
        variable = self.here.visible[-1].get(pattern.name)
        slot = self.here.declare(pattern.name) if variable is None else variable.slot
        self.here.store(slot, at=pattern.offset)

    def rebind(self, pattern: NamePattern) -> None:
        """Assign the value on the stack to the variable that the name refers to here."""
        self.store_name(pattern.name, pattern.offset)

    def store_name(self, name: str, offset: int) -> None:
        variable = self.here.find(name)
        if variable is None:
            self.implicit.add(name)
            self.here.emit(Op.STORE_GLOBAL, self.global_name(name), at=offset)
        elif variable.constant:
            self.fail("TypeError", f"'{name}' is a constant and cannot be assigned again", offset)
        else:
            self.here.store(variable.slot, at=offset)

    def assignment(self, statement: Assignment) -> None:
        target = statement.target
        if isinstance(target, Chain) and not target.links:
            target = target.base if isinstance(target.base, Name) else target
        if isinstance(target, Chain):
            self.assignment_to_place(target, statement)
        elif isinstance(target, Name):
            self.assignment_to_name(target, statement)
        else:
            self.named(statement.value, target)
            self.take_apart(target, self.rebind)

    def assignment_to_name(self, target: Name, statement: Assignment) -> None:
        here, at = self.here, statement.offset
        if statement.operator == "=":
            self.named(statement.value, target)
            self.store_name(target.name, at)
            return
        self.node(target)
        if statement.operator in _SHORT_CIRCUIT:
            kept = here.emit(_SHORT_CIRCUIT[statement.operator], at=at)
            self.node(statement.value)
            self.store_name(target.name, at)
            done = here.emit(Op.JUMP, at=at)
            here.land(kept)
            here.emit(Op.DROP, at=at)
            here.land(done)
            return
        self.node(statement.value)
        here.emit(Op.BINARY, BINARY_NAMES.index(statement.operator[:-1]), at=at)
        self.store_name(target.name, at)

    def assignment_to_place(self, target: Chain, statement: Assignment) -> None:
        here, at, operator = self.here, statement.offset, statement.operator
        if not isinstance(target.base, Name | Root):
            self.node(target.base)
            here.emit(Op.DROP, at=at)
            self.fail("TypeError", "only a variable, its members and its indexes can be assigned", at)
            return
        place = self.place(target.base, target.links)
        if operator == "=":
            self.node(statement.value)
            here.emit(Op.ASSIGN, place, at=at)
            return
        here.emit(Op.READ_PLACE, place, int(operator == "??="), at=at)
        if operator not in _SHORT_CIRCUIT:
            self.node(statement.value)
            here.emit(Op.BINARY, BINARY_NAMES.index(operator[:-1]), at=at)
            here.emit(Op.ASSIGN, place, at=at)
            return
        kept = here.emit(_SHORT_CIRCUIT[operator], at=at)
        self.node(statement.value)
        here.emit(Op.ASSIGN, place, at=at)
        done = here.emit(Op.JUMP, at=at)
        here.land(kept)
        for _ in range(1 + self.places[place].dynamic):
            here.emit(Op.DROP, at=at)
        here.land(done)


def compile_unit(source: str, program: Program) -> CodeUnit:
    """Compile a program.

    A name that hides a library name is known only when it is assigned, maybe after its first use: then the program is
    compiled again with that knowledge.
    """
    compiler = ProgramCompiler(source)
    unit = compiler.program(program)
    hidden_names = frozenset(
        [name for name in compiler.implicit if is_library_name(name) and name not in GIVEN]
    )
    if hidden_names:
        unit = ProgramCompiler(source, hidden_names).program(program)
    return unit
