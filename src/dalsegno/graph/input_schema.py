"""JSON Schema of the start payload: checked when a definition is, and again with every start.

No reference leaves the schema, and patterns run on RE2: a pattern cannot be made to run for hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import re2
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend, validator_for
from referencing.exceptions import Unresolvable

from dalsegno.errors import Finding
from dalsegno.graph.findings import pointer_to, quoted

MAX_PROBLEMS = 50
_extended: Any = extend  # untyped in the library
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_TOO_DEEP = "The schema nests or refers to itself too deeply."


def schema_problems(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(pointer within the schema, sentence) for everything that is wrong with a schema."""
    problems = list(_walk(schema))
    if problems:
        return problems
    validator = _validator_class(schema)
    try:
        validator.check_schema(schema)
    except SchemaError as error:
        return [(pointer_to("", *error.absolute_path), f"Not a valid JSON Schema: {_short(error.message)}.")]
    except RecursionError:
        return [("", _TOO_DEEP)]
    return []


def check_input(schema: Mapping[str, Any], payload: Any) -> list[Finding]:
    """What keeps a payload from fitting ``schema``, with pointers into the payload."""
    validator = _extended(_validator_class(schema), _LINEAR)(schema)
    findings: list[Finding] = []
    try:
        for error in validator.iter_errors(payload):
            pointer = pointer_to("", *error.absolute_path)
            findings.append(Finding(pointer, "input-schema", _short(error.message)))
            if len(findings) == MAX_PROBLEMS:
                break
    except RecursionError:
        findings.append(Finding("", "input-schema", _TOO_DEEP))
    except Unresolvable as error:
        findings.append(
            Finding("", "input-schema", f"The schema refers to {quoted(str(error.ref))}, which it lacks.")
        )
    return findings


def _short(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:300]}…"


def _validator_class(schema: Mapping[str, Any]) -> Any:
    return validator_for(schema, default=Draft202012Validator)


def _walk(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """References and patterns, wherever they stand."""
    stack: list[tuple[str, Any]] = [("", schema)]
    while stack:
        pointer, value = stack.pop()
        if isinstance(value, dict):
            yield from _object_problems(pointer, value)
            stack.extend((pointer_to(pointer, key), child) for key, child in value.items())
        elif isinstance(value, list):
            stack.extend((f"{pointer}/{index}", child) for index, child in enumerate(value))


def _object_problems(pointer: str, value: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in _REFERENCES:
        target = value.get(key)
        if isinstance(target, str) and not target.startswith("#"):
            message = f"{quoted(target)} points outside the schema; copy it into '$defs' and use '#/$defs/…'."
            yield f"{pointer}/{key}", message
    named = value.get("patternProperties")
    if isinstance(named, dict):
        if "unevaluatedProperties" in value:
            message = "'unevaluatedProperties' beside 'patternProperties' is not supported; use 'additionalProperties'."
            yield f"{pointer}/unevaluatedProperties", message
        for pattern in named:
            yield from _pattern_problem(pointer_to(pointer, "patternProperties", pattern), pattern)
    if isinstance(value.get("pattern"), str):
        yield from _pattern_problem(f"{pointer}/pattern", value["pattern"])


def _pattern_problem(pointer: str, pattern: str) -> Iterator[tuple[str, str]]:
    try:
        _compiled(pattern)
    except re2.error as error:
        reason = (
            error.args[0].decode("utf-8", "replace") if isinstance(error.args[0], bytes) else error.args[0]
        )
        yield pointer, f"{quoted(pattern)} is no regular expression that RE2 accepts: {reason}."


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _compiled(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in patterns.items():
        compiled = _compiled(pattern)
        for key, value in instance.items():
            if compiled.search(key):
                yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    patterns = [_compiled(pattern) for pattern in schema.get("patternProperties", {})]
    declared = schema.get("properties", {})
    for key, value in instance.items():
        if key in declared or any(pattern.search(key) for pattern in patterns):
            continue
        if validator.is_type(allowed, "object"):
            yield from validator.descend(value, allowed, path=key)
        elif not allowed:
            yield ValidationError(f"{key!r} is not expected here")


_LINEAR = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
