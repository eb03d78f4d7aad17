"""The forms that a program may have, reduced to one: what runs, its parameters and the functions beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

from dalsegno.lang.precedence import SyntaxProblem
from dalsegno.lang.script.builder import Workflow, block_of
from dalsegno.lang.statements import Block, Declaration, Function, Program, Statement
from dalsegno.lang.syntax import Target

MAIN = "main"
EMPTY = "the program is empty: write at least one statement"


def program_of(items: Sequence[Statement | Workflow], start: int) -> Program:
    """``start`` is where the program begins, after the front matter."""
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
            message = "only functions and declarations may stand beside a workflow: move this into its body"
            raise SyntaxProblem(message, statement.offset)
    return _around(statements, wrapper.parameters, wrapper.body, wrapper.name, "workflow")


def _around(
    beside: list[Statement],
    parameters: tuple[Target, ...],
    body: Block,
    name: str | None,
    form: OneOf["main", "workflow"],
) -> Program:
    """Variables beside the main function are set before it runs; then it is a block inside what surrounds it."""
    if len(parameters) > 2:
        message = "a workflow takes at most two parameters: the context and the inputs"
        raise SyntaxProblem(message, parameters[2].offset)
    functions = tuple(item for item in beside if isinstance(item, Function))
    if len(functions) < len(beside):
        return Program((), parameters, block_of([*beside, body], body.offset), name, form)
    return Program(functions, parameters, body, name, form)
