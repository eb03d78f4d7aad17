"""The vocabulary of parameter models: base class, kind marks, and field types with readable error messages.

A model is the single source of a node's check, JSON Schema, form and documentation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, GetJsonSchemaHandler, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema

from dalsegno.graph.catalog import ParameterKind
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.values.numbers import number_text


class NodeParameters(BaseModel):
    """Base of parameter models: unknown parameters are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Kind:
    """Marks a parameter (in ``Annotated``) that is not a template."""

    kind: ParameterKind

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Add the kind for forms, which show another editor for conditions and expressions."""
        return {**handler(schema), "x-kind": self.kind}


class Sensitive:
    """Marks a parameter (in ``Annotated``) whose value must not appear in messages."""


CONDITION = Kind("condition")
EXPRESSION = Kind("expression")
RAW = Kind("raw")


def spelling(name: str, field: FieldInfo) -> str:
    """Return a field's name in the spelling of documents."""
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name


def kinds_of(model: type[BaseModel]) -> Mapping[str, ParameterKind]:
    """Return the parameters of a model that are not plain templates."""
    return {
        spelling(name, field): mark.kind
        for name, field in model.model_fields.items()
        for mark in field.metadata
        if isinstance(mark, Kind)
    }


def as_text(value: Any) -> str:
    """Return a value as templates interpolate it into text."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_type(value: Any) -> str:
    """Return the JSON name of a value's type, with its article, for messages."""
    if value is None:
        return "null"
    for python_type, name in _TYPE_NAMES:
        if isinstance(value, python_type):
            return name
    return f"a {type(value).__name__}"


_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "a boolean"),
    (int, "a number"),
    (float, "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "an object"),
)


def _refuse_boolean(value: Any) -> Any:
    if isinstance(value, bool):
        # Python counts booleans as integers. A document with `true` for a number is a mistake.
        raise ValueError("should be a number, not a boolean")
    return value


def _scalar_text(value: Any) -> Any:
    return as_text(value) if isinstance(value, int | float | bool) else value


WholeNumber = Annotated[int, BeforeValidator(_refuse_boolean)]
Number = Annotated[float, BeforeValidator(_refuse_boolean)]
Text = Annotated[str, BeforeValidator(_scalar_text)]
"""Text that also accepts a number or boolean, which a template may yield."""
Seconds = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "examples": ["30s", "1h30m"]}]}),
]
"""A duration: seconds, or text such as ``500ms``, ``30s``, ``1h30m``."""
