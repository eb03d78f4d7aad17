"""Workflow-level fields of a document: input schema, time limit, output, tags, concurrency.

The concurrency limit of a workflow, read from a graph, a script's front matter or a decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dalsegno.errors import InvalidInput
from dalsegno.graph.checks.parameters import ParameterCompiler
from dalsegno.graph.checks.settings import positive_duration
from dalsegno.graph.documents.draft import Draft
from dalsegno.graph.documents.findings import Report, kind_of
from dalsegno.graph.plan import WorkflowLimit
from dalsegno.lang import Expression, ExpressionError, RootNames, compile_expression
from dalsegno.model.limits import read_concurrency


@dataclass(frozen=True, slots=True)
class Header:
    description: str
    timeout: float | None
    input_schema: Mapping[str, Any] | None
    output: Expression | None
    limit: WorkflowLimit | None = None


def read_header(draft: Draft, compiler: ParameterCompiler, report: Report) -> Header:
    fields = draft.fields
    timeout = fields.get("timeout")
    _check_tags(fields.get("tags"), report)
    return Header(
        description=_description(fields.get("description"), report),
        timeout=None if timeout is None else positive_duration(timeout, "/timeout", report),
        input_schema=_input_schema(fields.get("input_schema"), report),
        output=_output(fields.get("output"), compiler, report),
        limit=_limit(draft, compiler, report),
    )


def _description(value: Any, report: Report) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    report.error("/description", "wrong-type", f"'description' must be text, not {kind_of(value)}.")
    return ""


def _check_tags(value: Any, report: Report) -> None:
    if value is not None and not (isinstance(value, list) and all(isinstance(tag, str) for tag in value)):
        report.error("/tags", "wrong-type", "'tags' must be a list of texts.")


def _limit(draft: Draft, compiler: ParameterCompiler, report: Report) -> WorkflowLimit | None:
    value = draft.fields.get("concurrency")
    if not value:
        return None
    try:
        return read_workflow_limit(
            value, draft.name, lambda source: compiler.expression(source, "/concurrency/key")
        )
    except ValueError as error:
        named = next((name for name in ("limit", "key") if str(error).startswith(f"'{name}'")), None)
        pointer = f"/concurrency/{named}" if named is not None else "/concurrency"
        report.error(pointer, "wrong-type", f"'concurrency' is not valid: {error}.")
        return None


def _input_schema(value: Any, report: Report) -> Mapping[str, Any] | None:
    if value is None or value == {}:
        return None
    if not isinstance(value, dict):
        message = f"'input_schema' must be a JSON Schema, an object, not {kind_of(value)}."
        report.error("/input_schema", "bad-input-schema", message)
        return None
    from dalsegno.graph.json_schema.shape import schema_problems  # noqa: PLC0415 - only documents with one need it

    for pointer, message in schema_problems(value, report.meter) if not report.is_stored else ():
        report.error(f"/input_schema{pointer}", "bad-input-schema", message)
    return value


def _output(value: Any, compiler: ParameterCompiler, report: Report) -> Expression | None:
    if value is None or value in ({}, ""):
        return None
    if isinstance(value, dict | list):
        message = (
            f"'output' must be an expression, as text, not {kind_of(value)}; "
            'an object is written as "{ total: $sum.total }".'
        )
        report.error("/output", "bad-expression", message)
        return None
    return compiler.expression(value, "/output")


# -- concurrency ---------------------------------------------------------------------------------------------


def read_workflow_limit(
    value: object, workflow: str, compile_key: Callable[[str], Expression | None]
) -> WorkflowLimit:
    """Read the limit. A key that begins with ``$`` or is in ``{{ }}`` is an expression; any other key is constant.

    Raises ValueError with the reason.
    """
    read = read_concurrency(value)
    key = (read.key or "").strip()
    if not key.startswith(("$", "{{")):
        return WorkflowLimit(read.allows, key or f"workflow:{workflow}")
    source = key[2:-2] if key.startswith("{{") and key.endswith("}}") else key
    return WorkflowLimit(read.allows, key, compile_key(source))


def front_matter_limit(front_matter: Mapping[str, Any], workflow: str) -> WorkflowLimit | None:
    """Read the limit of a script or Python workflow; raise InvalidInput with the reason."""
    value = front_matter.get("concurrency")
    if value is None:
        return None
    try:
        return read_workflow_limit(value, workflow, _over_the_input)
    except (ValueError, ExpressionError) as error:
        of = f" of workflow '{workflow}'" if workflow else ""
        raise InvalidInput(f"the concurrency{of} is not valid: {error}") from None


def _over_the_input(source: str) -> Expression:
    """Compile an expression over the input. There are no nodes to name, only ``$trigger``."""
    return compile_expression(source, names=RootNames.of())
