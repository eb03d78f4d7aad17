"""The parser of scripts: source to syntax tree.

The forms that a program may have are reduced to one: the code that runs, its parameters and the other functions.

Builds the syntax tree of programs during parsing; one method per rule of statements.lark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias, cast
from typing import Literal as OneOf

from lark import Lark, UnexpectedToken

from dalsegno.lang.errors import ExpressionError, FlowSyntaxError
from dalsegno.lang.expressions.syntax.lexer import Token
from dalsegno.lang.expressions.syntax.parser import ReadyTokens, TreeBuilder, check_rest_is_last
from dalsegno.lang.expressions.syntax.precedence import SyntaxProblem, depth_over
from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Assignment,
    Binary,
    Block,
    Break,
    Call,
    Chain,
    Continue,
    Declaration,
    ExpressionStatement,
    For,
    ForEach,
    Function,
    If,
    Index,
    Literal,
    Member,
    Name,
    NamePattern,
    Node,
    Pattern,
    Program,
    Return,
    Statement,
    Step,
    Target,
    Throw,
    Try,
    While,
)
from dalsegno.lang.flow.syntax.front_matter import split_front_matter
from dalsegno.lang.flow.syntax.lexer import ScriptLexer
from dalsegno.lang.flow.syntax.syntax_errors import explain, runaway_string
from dalsegno.lang.flow.syntax.tree import depth_of
from dalsegno.lang.runtime.limits import MAX_SOURCE

Children: TypeAlias = list[Any]
"""The input from lark: tokens, and results of other methods of the builder."""


class Workflow:
    """``workflow name(…) { … }``, until the form of the program is known."""

    __slots__ = ("body", "name", "offset", "parameters")

    def __init__(self, name: str | None, parameters: tuple[Target, ...], body: Block, offset: int) -> None:
        self.name = name
        self.parameters = parameters
        self.body = body
        self.offset = offset


class ScriptBuilder(TreeBuilder):
    """Builds statements. A declaration is a list, because it may hold several declarators."""

    def program(self, children: Children) -> list[Statement | Workflow]:
        return _flat(children)

    def nothing(self, children: Children) -> list[Statement]:
        return []

    def first_of(self, children: Children) -> Any:
        return children[0]

    def second_of(self, children: Children) -> Any:
        return children[1]

    def block(self, children: Children) -> Block:
        return block_of(_flat(children[1:-1]), children[0].offset)

    # simple statements

    def expression_statement(self, children: Children) -> ExpressionStatement:
        return ExpressionStatement(children[0], children[0].offset)

    def return_statement(self, children: Children) -> Return:
        value = None if type(children[1]) is Token else children[1]
        return Return(value, children[0].offset)

    def throw_statement(self, children: Children) -> Throw:
        return Throw(children[1], children[0].offset)

    def break_statement(self, children: Children) -> Break:
        return Break(children[0].offset)

    def continue_statement(self, children: Children) -> Continue:
        return Continue(children[0].offset)

    def declaration(self, children: Children) -> list[Declaration]:
        constant = children[0].type == "CONST"
        pairs = [child for child in children if type(child) is tuple]
        return [Declaration(pattern, value, constant, pattern.offset) for pattern, value in pairs]

    def declarator(self, children: Children) -> tuple[Pattern, Node | None]:
        if len(children) > 1:
            return children[0], children[2]
        if not isinstance(children[0], NamePattern):
            raise SyntaxProblem(
                "a pattern needs a value to take apart: write = and the value", children[0].offset
            )
        return children[0], None

    # assignments

    def assignment(self, children: Children) -> Assignment:
        place, operator, value = children
        return Assignment(_checked_place(place), operator.value, value, place.offset)

    def list_assignment(self, children: Children) -> Assignment:
        pattern = self.list_pattern(children[:3])
        return Assignment(pattern, "=", children[4], pattern.offset)

    def object_assignment(self, children: Children) -> Assignment:
        pattern = self.object_pattern(children[:3])
        return Assignment(pattern, "=", children[4], pattern.offset)

    def increment_after(self, children: Children) -> Assignment:
        place, sign = children
        return Assignment(_checked_place(place), f"{sign.value[0]}=", Literal(1, sign.offset), place.offset)

    def increment_before(self, children: Children) -> Assignment:
        sign, place = children
        return Assignment(_checked_place(place), f"{sign.value[0]}=", Literal(1, sign.offset), place.offset)

    # compound statements

    def conditional_statement(self, children: Children) -> If:
        mark, _, test, _, then, *otherwise = children
        last = otherwise[1] if otherwise else None
        if isinstance(last, If):
            last = block_of([last], last.offset)
        return If(test, then, last, mark.offset)

    def while_statement(self, children: Children) -> While:
        mark, _, test, _, body = children
        return While(test, body, mark.offset)

    def for_each(self, children: Children) -> ForEach:
        mark, _, (declares, pattern), over, subject, _, body = children
        return ForEach(pattern, declares, over.value, subject, body, mark.offset)

    def declared(self, children: Children) -> tuple[str, Pattern]:
        return children[0].value, children[1]

    def assigned_name(self, children: Children) -> tuple[None, Pattern]:
        return None, self.name_pattern(children)

    def assigned_list(self, children: Children) -> tuple[None, Pattern]:
        return None, self.list_pattern(children)

    def assigned_object(self, children: Children) -> tuple[None, Pattern]:
        return None, self.object_pattern(children)

    def for_statement(self, children: Children) -> For:
        mark, _, init, _, test, _, step, _, body = children
        return For(tuple(init), test, tuple(step), body, mark.offset)

    def init(self, children: Children) -> list[Statement]:
        return _flat(children)

    def actions(self, children: Children) -> list[Statement]:
        return _flat(children)

    def test(self, children: Children) -> Node | None:
        return children[0] if children else None

    def try_statement(self, children: Children) -> Try:
        mark, body, *rest = children
        caught = handler = cleanup = None
        for kind, pattern, block in rest:
            if kind == "CATCH":
                caught, handler = pattern, block
            else:
                cleanup = block
        return Try(body, caught, handler, cleanup, mark.offset)

    def handler(self, children: Children) -> tuple[str, Pattern | None, Block]:
        return "CATCH", children[2] if len(children) > 2 else None, children[-1]

    def cleanup(self, children: Children) -> tuple[str, Pattern | None, Block]:
        return "FINALLY", None, children[1]

    # functions

    def function(self, children: Children) -> Function:
        _, name, _, targets, _, body = children
        check_rest_is_last(targets)
        return Function(name.value, tuple(targets), body, name.offset)

    def workflow(self, children: Children) -> Workflow:
        mark, *name, _, targets, _, body = children
        check_rest_is_last(targets)
        return Workflow(name[0].value if name else None, tuple(targets), body, mark.offset)

    def async_arrow(self, children: Children) -> Arrow:
        return self.arrow(children[1:])

    def assigning_body(self, children: Children) -> Block:
        """Build ``x => total += x``, which assigns and returns the new value.

        The value is read from the place again, which must have no side effect.
        """
        assignment = children[0]
        return _returning(assignment, assignment.target)

    def increasing_body(self, children: Children) -> Block:
        """Build ``() => count++``: it returns the value before."""
        assignment = self.increment_after(children)
        inverse = Step("-" if assignment.operator == "+=" else "+", assignment.value, assignment.offset)
        target: Any = assignment.target
        return _returning(assignment, target, [inverse])

    def function_value(self, children: Children) -> Arrow:
        mark, _, targets, _, body = children
        check_rest_is_last(targets)
        return Arrow(tuple(targets), body, mark.offset, _depth([body, *targets], mark.offset))

    def named_function_value(self, children: Children) -> Chain:
        """Build a named function value, whose name is known inside it only.

        The tree is that of ``(() => { function name(…) {…} return name })()``.
        """
        function = self.function(children)
        offset = function.offset
        body = block_of([function, Return(Name(function.name, offset), offset)], offset)
        maker = Arrow((), body, offset, _depth([body], offset))
        call = Call((), offset, 1)
        return Chain(maker, (call,), offset, _depth([maker], offset))


def block_of(body: list[Statement], offset: int) -> Block:
    return Block(tuple(body), offset, depth_over(map(depth_of, body), offset))


def _depth(nodes: list[Any], offset: int) -> int:
    return depth_over([node.depth for node in nodes], offset)


def _flat(children: Children) -> list[Any]:
    statements: list[Any] = []
    for child in children:
        if type(child) is list:
            statements += child
        elif type(child) is not Token:
            statements.append(child)
    return statements


def _checked_place(node: Node) -> Name | Chain:
    """Return the place if it is a variable, or a chain that ends in a member or an index."""
    if isinstance(node, Name):
        return node
    if not isinstance(node, Chain) or isinstance(node.links[-1], Call):
        raise SyntaxProblem("only a variable, a member or an index can be assigned to", node.offset)
    if any(isinstance(link, Member | Index) and link.optional for link in node.links):
        raise SyntaxProblem("a place reached with '?.' cannot be assigned to: it may not exist", node.offset)
    return node


def _returning(assignment: Assignment, target: Any, steps: list[Step] | None = None) -> Block:
    body: list[Statement] = [assignment]
    if _is_plain(target):
        value = Binary(target, steps, target.offset, target.depth + 1) if steps else target
        body.append(Return(value, assignment.offset))
    return block_of(body, assignment.offset)


def _is_plain(target: Any) -> bool:
    if isinstance(target, Chain):
        return isinstance(target.base, Name) and all(isinstance(link, Member) for link in target.links)
    return isinstance(target, Name)


# -- parsing -------------------------------------------------------------------------------------------------


MAIN = "main"
MIGRATE = "migrate"
"""The function that nothing calls: it is the migration of machines that come from an earlier version."""
EMPTY = "the program is empty: write at least one statement"


def program_of(items: Sequence[Statement | Workflow], start: int) -> Program:
    """Return the program. ``start`` is its first offset, after the front matter."""
    wrappers = [item for item in items if isinstance(item, Workflow)]
    statements = [item for item in items if not isinstance(item, Workflow)]
    if wrappers:
        return _wrapped(wrappers, statements)
    mains = [item for item in statements if isinstance(item, Function) and item.name == MAIN]
    others = [item for item in statements if not isinstance(item, Function)]
    if mains and all(isinstance(item, Declaration) for item in others):
        main = mains[-1]
        rest = [item for item in statements if item is not main]
        return _around(rest, main.parameters, main.body, None, "main")
    if not statements:
        raise SyntaxProblem(EMPTY, start)
    body = block_of(statements, start)
    return Program((), (), body, None, "statements")


def _wrapped(wrappers: Sequence[Workflow], statements: list[Statement]) -> Program:
    wrapper = wrappers[0]
    if len(wrappers) > 1:
        raise SyntaxProblem("a source holds one workflow; this is the second", wrappers[1].offset)
    for statement in statements:
        if not isinstance(statement, Function | Declaration):
            message = (
                "only functions and declarations may be written beside a workflow: move this into its body"
            )
            raise SyntaxProblem(message, statement.offset)
    return _around(statements, wrapper.parameters, wrapper.body, wrapper.name, "workflow")


def _around(
    other_statements: list[Statement],
    parameters: tuple[Target, ...],
    body: Block,
    name: str | None,
    form: OneOf["main", "workflow"],
) -> Program:
    """Return a program with variables outside its main function.

    They are set before the function runs, whose body is a block inside the surrounding one.
    """
    if len(parameters) > 2:
        message = "a workflow takes at most two parameters: the context and the inputs"
        raise SyntaxProblem(message, parameters[2].offset)
    functions = tuple(item for item in other_statements if isinstance(item, Function))
    if len(functions) < len(other_statements):
        return Program((), parameters, block_of([*other_statements, body], body.offset), name, form)
    return Program(functions, parameters, body, name, form)


@cache
def _lark() -> Lark:
    parts = [
        files("dalsegno.lang.expressions.syntax").joinpath("grammar.lark"),
        files("dalsegno.lang.flow.syntax").joinpath("statements.lark"),
    ]
    grammar = "\n".join(part.read_text("utf-8") for part in parts)
    return Lark(grammar, parser="lalr", lexer=ReadyTokens, start="program", transformer=ScriptBuilder())


Parsed = tuple[Program, dict[str, Any]]
"""The tree of a script, and its front matter. Callers that need it twice keep it: parsing is most of the work."""


def parse_program(source: str, name: str | None = None) -> Parsed:
    """Return the tree and the front matter; `FlowSyntaxError` says what is wrong and where.

    The program's name is the front matter's, else the wrapper's, else ``name``.
    """
    if len(source) > MAX_SOURCE:
        message = f"the source has {len(source):,} characters; the limit is {MAX_SOURCE:,}"
        raise FlowSyntaxError(message)
    _check_unicode(source)
    front_matter, start = split_front_matter(source)
    program = _parse(source, start)
    return replace(program, name=front_matter.get("name") or program.name or name), front_matter


def _check_unicode(source: str) -> None:
    """Refuse lone surrogates: text that holds one can be neither stored nor shown."""
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as problem:
        shown = source.encode("utf-8", "replace").decode("utf-8")
        raise FlowSyntaxError.at("half a surrogate pair is not a character", shown, problem.start) from None


def _parse(source: str, start: int) -> Program:
    lexer = ScriptLexer(source, start)
    try:
        tokens = lexer.tokens()
        return program_of(cast(Any, _lark().parse(cast(Any, tokens))), start)
    except UnexpectedToken as problem:
        raise explain(problem, lexer.found, source) from None
    except SyntaxProblem as problem:
        raise FlowSyntaxError.at(problem.message, source, problem.offset) from None
    except ExpressionError as problem:
        message = problem.message + runaway_string(lexer.found[-3:], source)
        raise FlowSyntaxError(message, problem.line, problem.column, source) from None
