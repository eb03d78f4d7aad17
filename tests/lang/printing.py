"""Prints the tree of a program as source with every bracket and ``;`` written out, so that tests can compare trees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from dalsegno.lang.expressions.syntax.tree import (
    Arrow,
    Assignment,
    Await,
    Binary,
    Block,
    Break,
    Call,
    Chain,
    Conditional,
    Continue,
    Declaration,
    Entry,
    ExpressionStatement,
    For,
    ForEach,
    Function,
    If,
    Index,
    ListLiteral,
    ListPattern,
    Literal,
    Logical,
    Member,
    Name,
    NamePattern,
    ObjectLiteral,
    ObjectPattern,
    Return,
    Spread,
    Statement,
    Target,
    TextTemplate,
    Throw,
    Try,
    Unary,
    While,
)
from dalsegno.lang.flow.syntax.parser import parse_program


def printed(source: str) -> str:
    """The canonical text of the statements of a program in the form of bare statements."""
    program, _ = parse_program(source)
    return " ".join(statement(each) for each in program.body.body)


def statement(node: Statement) -> str:
    match node:
        case Declaration(pattern, value, constant):
            word = "const" if constant else "let"
            return f"{word} {pattern_text(pattern)}{'' if value is None else ' = ' + text(value)};"
        case Assignment() | ExpressionStatement():
            return f"{action(node)};"
        case Block(body):
            return "{" + " ".join(map(statement, body)) + "}"
        case If(test, then, otherwise):
            tail = f" else {statement(otherwise)}" if otherwise else ""
            return f"if ({text(test)}) {statement(then)}{tail}"
        case While(test, body):
            return f"while ({text(test)}) {statement(body)}"
        case ForEach(pattern, declares, over, subject, body):
            word = f"{declares} " if declares else ""
            return f"for ({word}{pattern_text(pattern)} {over} {text(subject)}) {statement(body)}"
        case For(init, test, step, body):
            return f"for ({head(init)}; {'' if test is None else text(test)}; {head(step)}) {statement(body)}"
        case Break():
            return "break;"
        case Continue():
            return "continue;"
        case Return(value):
            return "return;" if value is None else f"return {text(value)};"
        case Throw(value):
            return f"throw {text(value)};"
        case Try():
            return tried(node)
        case Function(name, parameters, body):
            return f"function {name}({', '.join(map(target, parameters))}) {statement(body)}"


def head(actions: tuple[Statement, ...]) -> str:
    parts = [statement(each).rstrip(";") for each in actions]
    return ", ".join(
        part if not position else part.removeprefix("let ") for position, part in enumerate(parts)
    )


def action(node: Assignment | ExpressionStatement) -> str:
    if isinstance(node, ExpressionStatement):
        return text(node.value)
    left = text(node.target) if isinstance(node.target, Name | Chain) else pattern_text(node.target)
    return f"{left} {node.operator} {text(node.value)}"


def tried(node: Try) -> str:
    parts = [f"try {statement(node.body)}"]
    if node.handler is not None:
        caught = f" ({pattern_text(node.caught)})" if node.caught else ""
        parts.append(f"catch{caught} {statement(node.handler)}")
    if node.cleanup is not None:
        parts.append(f"finally {statement(node.cleanup)}")
    return " ".join(parts)


def text(node: Any) -> str:
    match node:
        case Literal(value):
            return json.dumps(value)
        case Name(name):
            return name
        case TextTemplate(parts):
            return "`" + "".join(f"${{{text(part)}}}" for part in parts) + "`"
        case ListLiteral(items):
            return f"[{joined(items)}]"
        case ObjectLiteral(entries):
            return f"{{{joined(entries)}}}"
        case Entry(Literal(str() as key), value):
            return f"{json.dumps(key)}: {text(value)}"
        case Entry(key, value):
            return f"[{text(key)}]: {text(value)}"
        case Spread(value):
            return f"...{text(value)}"
        case Chain(base, links):
            inner = text(base) if isinstance(base, Name) else f"({text(base)})"
            return inner + "".join(map(link, links))
        case Arrow(parameters, body):
            inner = statement(body) if isinstance(body, Block) else f"({text(body)})"
            return f"({', '.join(map(target, parameters))}) => {inner}"
    return operation(node)


def joined(nodes: Iterable[Any]) -> str:
    return ", ".join(map(text, nodes))


def link(node: Member | Index | Call) -> str:
    match node:
        case Member(name, optional):
            return f"{'?.' if optional else '.'}{name}"
        case Index(index, optional):
            return f"{'?.' if optional else ''}[{text(index)}]"
        case Call(arguments):
            return f"({joined(arguments)})"


def operation(node: Unary | Await | Binary | Logical | Conditional) -> str:
    match node:
        case Unary(operator, operand):
            return f"({operator} {text(operand)})"
        case Await(operand):
            return f"(await {text(operand)})"
        case Binary(first, steps):
            result = text(first)
            for step in steps:
                result = f"({result} {step.operator} {text(step.operand)})"
            return result
        case Logical(operator, operands):
            return "(" + f" {operator} ".join(map(text, operands)) + ")"
        case Conditional(test, then, otherwise):
            return f"({text(test)} ? {text(then)} : {text(otherwise)})"


def target(node: Target) -> str:
    default = "" if node.default is None else f" = {text(node.default)}"
    return f"{'...' if node.rest else ''}{pattern_text(node.pattern)}{default}"


def pattern_text(node: NamePattern | ListPattern | ObjectPattern) -> str:
    match node:
        case NamePattern(name):
            return name
        case ListPattern(targets):
            return "[" + ", ".join(map(target, targets)) + "]"
        case ObjectPattern(entries):
            return "{" + ", ".join(f"{json.dumps(key)}: {target(each)}" for key, each in entries) + "}"
