"""Name resolution: lexical scopes, hoisting, and undeclared variables.

A block's variables and functions are known in the whole block; reading one before its declaration in the same function
is an error. A name that no scope knows is left open here: `validation` checks whether the library has it.
The module also holds the facts about variables and functions that are known before the program runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Assignment,
    Await,
    Block,
    Call,
    Chain,
    Declaration,
    For,
    ForEach,
    Function,
    Name,
    NamePattern,
    Node,
    Pattern,
    Program,
    Statement,
    Target,
    Try,
)
from dalsegno.lang.flow.syntax.syntax_errors import Report
from dalsegno.lang.flow.syntax.tree import names_in, parts_of, targets_of

Kind = Literal["let", "const", "function", "parameter", "caught"]


class FunctionFacts:
    """Facts about a function: whether it awaits, itself or through the functions it calls."""

    __slots__ = ("awaits", "calls")

    def __init__(self) -> None:
        self.awaits = False
        self.calls: set[Variable] = set()


class Variable:
    __slots__ = ("declared", "function", "kind", "name", "offset", "owner", "read")

    def __init__(self, name: str, kind: Kind, offset: int, owner: FunctionFacts) -> None:
        self.name = name
        self.kind = kind
        self.offset = offset
        self.owner = owner
        """The function whose variable it is."""
        self.declared = kind not in ("let", "const")
        """Whether the walk has passed its declaration."""
        self.read = False
        self.function: FunctionFacts | None = None
        """The function that it was declared with."""


class Scope:
    __slots__ = ("function", "parent", "variables")

    def __init__(self, parent: Scope | None, function: FunctionFacts) -> None:
        self.parent = parent
        self.function = function
        self.variables: dict[str, Variable] = {}

    def find(self, name: str) -> Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        return None

    def visible(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            yield from scope.variables
            scope = scope.parent


def spread_awaiting(functions: Sequence[FunctionFacts]) -> None:
    """Mark every function that calls an awaiting one as awaiting."""
    callers: dict[int, list[FunctionFacts]] = {}
    for facts in functions:
        for called in facts.calls:
            if called.function is not None:
                callers.setdefault(id(called.function), []).append(facts)
    pending = [facts for facts in functions if facts.awaits]
    while pending:
        for caller in callers.get(id(pending.pop()), ()):
            if not caller.awaits:
                caller.awaits = True
                pending.append(caller)


class ScopeWalk:
    """Walks a program once, in source order."""

    def __init__(self, program: Program, report: Report) -> None:
        self.report = report
        self.variables: list[Variable] = []
        self.meanings: dict[int, Variable] = {}
        """The variable of each `Name`, by the id of the node."""
        self.functions: dict[int, FunctionFacts] = {}
        """By the id of an `Arrow`."""
        self.open_reads: list[tuple[Name, list[str]]] = []
        """Names that no scope knows; the first few have candidates from their scopes."""
        self.open_writes: dict[str, int] = {}
        """Assigned names that no scope knows, with the first offset."""
        self.scope = Scope(None, FunctionFacts())
        self.program(program)
        spread_awaiting([*self.functions.values(), *filter(None, (each.function for each in self.variables))])

    # scopes

    def program(self, program: Program) -> None:
        self.hoist(program.functions)
        for function in program.functions:
            self.visit(function)
        self.function(program.parameters, program.body, FunctionFacts())

    def function(self, parameters: Sequence[Target], body: Node | Block, facts: FunctionFacts) -> None:
        outer, self.scope = self.scope, Scope(self.scope, facts)
        for target in parameters:
            self.declare(target.pattern, "parameter")
        inside = body.body if isinstance(body, Block) else (body,)
        self.hoist(inside)
        for part in (*parameters, *inside):
            self.visit(part)
        self.scope = outer

    def block(self, block: Block, caught: Pattern | None = None) -> None:
        """Visit a block with its own scope, which includes the variables of a handler's pattern."""
        outer, self.scope = self.scope, Scope(self.scope, self.scope.function)
        if caught is not None:
            self.declare(caught, "caught")
            self.defaults(caught)
        self.hoist(block.body)
        for statement in block.body:
            self.visit(statement)
        self.scope = outer

    def hoist(self, statements: Iterable[Statement | Node]) -> None:
        for statement in statements:
            if isinstance(statement, Declaration):
                self.declare(statement.pattern, "const" if statement.constant else "let")
            elif isinstance(statement, Function):
                name = NamePattern(statement.name, statement.offset)
                self.declare(name, "function")
                self.scope.variables[statement.name].function = FunctionFacts()

    def declare(self, pattern: Pattern, kind: Kind, *, declared: bool = False) -> None:
        for place in names_in(pattern):
            known = self.scope.variables.get(place.name)
            if known is not None:
                line = self.report.line_of(known.offset)
                message = (
                    f"'{place.name}' is already declared in line {line}: choose another name, or assign to it"
                )
                self.report.note("redeclaration", message, place.offset)
                continue
            variable = Variable(place.name, kind, place.offset, self.scope.function)
            variable.declared = variable.declared or declared
            self.scope.variables[place.name] = variable
            self.variables.append(variable)

    # the walk

    def visit(self, node: Any) -> None:
        method = _METHODS.get(type(node))
        if method is not None:
            method(self, node)
            return
        for part in parts_of(node):
            self.visit(part)

    def on_name(self, node: Name) -> None:
        variable = self.refer(node)
        if variable is not None:
            variable.read = True

    def refer(self, node: Name) -> Variable | None:
        variable = self.scope.find(node.name)
        if variable is None:
            self.open_reads.append((node, self.candidates()))
            return None
        self.meanings[id(node)] = variable
        self.check_declared(variable, node.offset)
        return variable

    def candidates(self) -> list[str]:
        return list(islice(self.scope.visible(), 500)) if len(self.open_reads) < 1_000 else []

    def check_declared(self, variable: Variable, offset: int) -> None:
        if not variable.declared and variable.owner is self.scope.function:
            line = self.report.line_of(variable.offset)
            message = f"'{variable.name}' is used before its declaration in line {line}"
            self.report.note("undefined-variable", message, offset)

    def on_chain(self, node: Chain) -> None:
        self.visit(node.base)
        if isinstance(node.base, Name) and isinstance(node.links[0], Call):
            called = self.meanings.get(id(node.base))
            if called is not None:
                self.scope.function.calls.add(called)
        for link in node.links:
            self.visit(link)

    def on_await(self, node: Await) -> None:
        self.scope.function.awaits = True
        self.visit(node.operand)

    def on_arrow(self, node: Arrow) -> None:
        facts = self.functions[id(node)] = FunctionFacts()
        self.function(node.parameters, node.body, facts)

    def on_function(self, node: Function) -> None:
        variable = self.scope.variables[node.name]
        self.function(node.parameters, node.body, variable.function or FunctionFacts())

    def on_declaration(self, node: Declaration) -> None:
        if node.value is not None:
            self.visit(node.value)
        self.bind(node.pattern)
        if isinstance(node.pattern, NamePattern) and isinstance(node.value, Arrow):
            self.scope.variables[node.pattern.name].function = self.functions[id(node.value)]

    def bind(self, pattern: Pattern) -> None:
        """Bind a pattern from left to right: a default may use earlier variables."""
        if isinstance(pattern, NamePattern):
            self.scope.variables[pattern.name].declared = True
            return
        for target in targets_of(pattern):
            if target.default is not None:
                self.visit(target.default)
            self.bind(target.pattern)

    def on_assignment(self, node: Assignment) -> None:
        if isinstance(node.target, Name):
            self.write(node.target.name, node.target.offset)
        elif isinstance(node.target, Chain):
            self.change(node.target)
        else:
            self.write_pattern(node.target)
        self.visit(node.value)

    def change(self, chain: Chain) -> None:
        """Visit ``a.b[c] = …``: it changes the variable ``a``, which alone does not count as a use."""
        if isinstance(chain.base, Name):
            self.refer(chain.base)
        else:
            self.visit(chain.base)
        for link in chain.links:
            self.visit(link)

    def write_pattern(self, pattern: Pattern) -> None:
        self.defaults(pattern)
        for place in names_in(pattern):
            self.write(place.name, place.offset)

    def write(self, name: str, offset: int) -> None:
        variable = self.scope.find(name)
        if variable is None:
            self.open_writes.setdefault(name, offset)
            return
        self.check_declared(variable, offset)
        if variable.kind == "const":
            line = self.report.line_of(variable.offset)
            message = f"'{name}' is a const of line {line} and cannot be assigned to: declare it with 'let'"
            self.report.note("const-assignment", message, offset)

    def defaults(self, pattern: Pattern) -> None:
        """Visit the default values inside a pattern."""
        for target in targets_of(pattern):
            self.on_target(target)

    def on_target(self, node: Target) -> None:
        if node.default is not None:
            self.visit(node.default)
        self.defaults(node.pattern)

    def on_for(self, node: For) -> None:
        outer, self.scope = self.scope, Scope(self.scope, self.scope.function)
        self.hoist(node.init)
        for part in parts_of(node):
            self.visit(part)
        self.scope = outer

    def on_for_each(self, node: ForEach) -> None:
        self.visit(node.subject)
        outer, self.scope = self.scope, Scope(self.scope, self.scope.function)
        if node.declares is None:
            self.write_pattern(node.pattern)
        else:
            self.declare(node.pattern, node.declares, declared=True)
            self.defaults(node.pattern)
        self.block(node.body)
        self.scope = outer

    def on_try(self, node: Try) -> None:
        self.block(node.body)
        if node.handler is not None:
            self.block(node.handler, node.caught)
        if node.cleanup is not None:
            self.block(node.cleanup)


_METHODS: dict[type, Any] = {
    Name: ScopeWalk.on_name,
    Chain: ScopeWalk.on_chain,
    Await: ScopeWalk.on_await,
    Arrow: ScopeWalk.on_arrow,
    Function: ScopeWalk.on_function,
    Declaration: ScopeWalk.on_declaration,
    Assignment: ScopeWalk.on_assignment,
    Block: ScopeWalk.block,
    For: ScopeWalk.on_for,
    ForEach: ScopeWalk.on_for_each,
    Try: ScopeWalk.on_try,
    Target: ScopeWalk.on_target,
}
