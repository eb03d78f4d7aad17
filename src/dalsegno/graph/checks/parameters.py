"""Compilation of parameters (templates, conditions, expressions), once per definition, and the checks of each type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dalsegno.graph.catalog import NodeSpec, ParameterKind, ParameterProblem
from dalsegno.graph.checks.node_types import stands_for_start_payload
from dalsegno.graph.documents.draft import Draft, DraftNode
from dalsegno.graph.documents.findings import Report, kind_of, pointer_to
from dalsegno.graph.plan import Parameters
from dalsegno.graph.templates import Template, TemplateErrors, compile_template
from dalsegno.lang import Expression, ExpressionError, RootNames, compile_condition, compile_expression
from dalsegno.lang.runtime.limits import Meter

START_PAYLOAD = "$trigger"
OPERATOR = re.compile(r"\?\?|[=!]=|<=|>=|&&|\|\|")
"""Operators that texts seldom contain."""


def root_names(draft: Draft, provided: Iterable[str] = ()) -> RootNames:
    """Return the names that expressions may use. A name that two nodes share, or that is also an id, is not usable.

    ``provided``: names of values that come with the context.
    """
    unique = unique_names(draft)
    plain = [node for node in draft.by_id.values() if not stands_for_start_payload(node)]
    nodes = [(node.id, node.name if node.name in unique else None) for node in plain]
    names = RootNames.of([*nodes, *((name, None) for name in sorted(provided) if name not in draft.by_id)])
    starts = {node.id: START_PAYLOAD for node in draft.by_id.values() if stands_for_start_payload(node)}
    named = {
        node.name: START_PAYLOAD for node in draft.by_id.values() if node.id in starts and node.name in unique
    }
    return replace(names, ids={**names.ids, **starts}, names={**names.names, **named}) if starts else names


def unique_names(draft: Draft) -> dict[str, str]:
    """Return node name → id, for names that are unique and are not ids."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for node in draft.by_id.values():
        if node.name in found:
            shared.add(node.name)
        found[node.name] = node.id
    return {name: node for name, node in found.items() if name not in shared and name not in draft.by_id}


class ParameterCompiler:
    """Compiles the parameters of every node of one document."""

    def __init__(self, names: RootNames, report: Report) -> None:
        self.names = names
        self._report = report
        self._nothing = compile_template({}, names, "")
        self._with_locals: dict[frozenset[str], RootNames] = {frozenset(): names}

    def compile(self, node: DraftNode) -> None:
        if node.spec is None:
            node.compiled = Parameters(self._nothing)
            return
        self._check(node, node.spec)
        if node.trigger:
            node.compiled = Parameters(self._nothing, raw=node.parameters)
        elif not node.spec.kinds and not node.spec.local_names:
            template = self._template(node.parameters, self.names, node.parameters_pointer, condition=False)
            node.compiled = Parameters(template, roots=template.roots)
        else:
            node.compiled = self._compile_kinds(node, node.spec)

    def _check(self, node: DraftNode, spec: NodeSpec) -> None:
        if node.trigger and spec.control != "trigger":
            return  # A trigger never runs, so its parameters are never read.
        problems = list(spec.check(node.written))
        if not self._report.is_stored:
            problems += form_problems(spec, node.written, self._report.meter)
        placed = [(pointer_to(node.parameters_pointer, *problem.path), problem) for problem in problems]
        # Filter before reporting: a script may have several problems at the same pointer.
        for pointer, problem in [found for found in placed if not self._report.has_error_at(found[0])]:
            if problem.severity == "error":
                self._report.error(pointer, problem.rule, problem.message)
            else:
                self._report.warn(pointer, problem.rule, problem.message)

    def _compile_kinds(self, node: DraftNode, spec: NodeSpec) -> Parameters:
        names = self._names_for(spec)
        templated: dict[str, Any] = {}
        raw: dict[str, Any] = {}
        expressions: dict[str, Expression] = {}
        for key, value in node.parameters.items():
            kind = spec.kinds.get(key, "template")
            if kind == "template":
                templated[key] = value
            elif kind == "raw":
                raw[key] = value
            elif value is not None:
                expression = self._expression(node, key, kind, names)
                if expression is not None:
                    expressions[key] = expression
        condition = node.control == "switch"  # the rules of a switch are comparisons
        template = self._template(templated, names, node.parameters_pointer, condition=condition)
        roots = template.roots.union(*(expression.roots for expression in expressions.values()))
        return Parameters(template, expressions, raw, roots)

    def _names_for(self, spec: NodeSpec) -> RootNames:
        known = self._with_locals.get(spec.local_names)
        if known is None:
            known = self._with_locals[spec.local_names] = self.names.with_variables(*spec.local_names)
        return known

    def _template(self, value: Any, names: RootNames, pointer: str, *, condition: bool) -> Template:
        try:
            template = compile_template(value, names, pointer, condition=condition)
            self._warn_of_missing_braces(template, names)
            return template
        except TemplateErrors as problems:
            for place, error in problems.errors:
                self._report.error(place, "bad-expression", describe(error))
        except ExpressionError as error:
            self._report.error(pointer, "bad-expression", describe(error))
        return self._nothing

    def _warn_of_missing_braces(self, template: Template, names: RootNames) -> None:
        """Warn of texts such as ``$a.list ?? []``: without braces only the reference in them is replaced."""
        for pointer, source in () if self._report.is_stored else template.strings:
            if not source.startswith("$") or "{{" in source or not OPERATOR.search(source):
                continue
            with suppress(ExpressionError):
                compile_expression(source, names=names)
                message = (
                    f"This is a text in which only the reference is replaced: write {{{{ {source} }}}} for the value "
                    "of the expression."
                )
                self._report.warn(pointer, "missing-braces", message)

    def _expression(
        self, node: DraftNode, key: str, kind: ParameterKind, names: RootNames
    ) -> Expression | None:
        value, pointer = node.parameters[key], pointer_to(node.parameters_pointer, key)
        try:
            if kind == "condition":
                return compile_condition(value, node.parameters.get("operator"), names)
            return self.expression(value, pointer, names)
        except ExpressionError as error:
            if not self._report.has_error_at(pointer):
                self._report.error(pointer, "bad-expression", describe(error))
        return None

    def expression(self, value: Any, pointer: str, names: RootNames | None = None) -> Expression | None:
        """Compile a strict expression. Numbers, booleans and null are constants; ``{{ }}`` around it is allowed."""
        if isinstance(value, list | dict):
            message = f"An expression is needed here, as text, not {kind_of(value)}."
            self._report.error(pointer, "bad-expression", message)
            return None
        source = unwrapped(value) if isinstance(value, str) else json.dumps(value)
        try:
            return compile_expression(source, names=names or self.names)
        except ExpressionError as error:
            self._report.error(pointer, "bad-expression", describe(error))
        return None


def form_problems(
    spec: NodeSpec, parameters: Mapping[str, Any], meter: Meter | None = None
) -> list[ParameterProblem]:
    """Return the problems of the parameters that are JSON Schemas.

    A light ``meter`` raises Heavy before it compiles an expensive pattern.
    """
    found: list[ParameterProblem] = []
    for name in sorted(spec.schemas):
        schema = parameters.get(name)
        if isinstance(schema, dict):
            from dalsegno.graph.json_schema.shape import schema_problems  # noqa: PLC0415 - only approvals with a form

            found += [
                ParameterProblem((name, *_steps(pointer)), f"parameter '{name}': {message}", "bad-form")
                for pointer, message in schema_problems(schema, meter)
            ]
    return found


def _steps(pointer: str) -> tuple[str, ...]:
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def unwrapped(source: str) -> str:
    """Replace the braces of a single-expression template by blanks, so that columns stay correct."""
    stripped = source.strip()
    if not (stripped.startswith("{{") and stripped.endswith("}}") and "{{" not in stripped[2:]):
        return source
    start, end = source.index("{{"), source.rindex("}}")
    return f"{source[:start]}  {source[start + 2 : end]}  {source[end + 2 :]}"


def describe(error: ExpressionError) -> str:
    """Return the message and, below it, the expression with a caret under the error."""
    where = f"line {error.line}, column {error.column}" if error.line > 1 else f"column {error.column}"
    return f"Bad expression, {where}: {error.message}\n{error.excerpt}"
