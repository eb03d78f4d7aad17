"""A form's JSON Schema as fields of a page, and what comes back from them as data.

What has no field of its own kind (objects, lists) is written as JSON. Whether the data fit is for the schema to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from dalsegno.errors import InvalidInput

Kind = Literal["text", "long", "number", "integer", "yes", "choice", "date", "email", "json"]
WHOLE = "data"
LONG = 200


@dataclass(frozen=True, slots=True)
class FormField:
    name: str
    label: str
    kind: Kind
    help: str = ""
    required: bool = False
    choices: tuple[Any, ...] = ()
    default: Any = None
    bounds: Mapping[str, Any] | None = None


def fields_of(form: Mapping[str, Any] | None) -> list[FormField]:
    """Without a form there are none: a comment needs no form."""
    if not form:
        return []
    properties = form.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return [FormField(WHOLE, "Data (JSON)", "json", required=form.get("type") not in (None, "null"))]
    required = form.get("required")
    needed = required if isinstance(required, Sequence) else ()
    return [
        _field(str(name), schema if isinstance(schema, Mapping) else {}, required=name in needed)
        for name, schema in properties.items()
    ]


def _field(name: str, schema: Mapping[str, Any], *, required: bool) -> FormField:
    schema = _without_null(schema)
    choices = schema.get("enum")
    return FormField(
        name,
        str(schema.get("title") or name.replace("_", " ").capitalize()),
        _kind(schema),
        str(schema.get("description") or ""),
        required,
        tuple(choices) if isinstance(choices, list) else (),
        schema.get("default"),
        {key: schema[key] for key in ("minimum", "maximum", "minLength", "maxLength") if key in schema},
    )


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of a value that may be missing, what it is otherwise: an empty field is left out."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list):
        return schema
    others = [each for each in choices if isinstance(each, Mapping) and each.get("type") != "null"]
    return {**others[0], **schema} if len(others) == 1 and len(choices) == 2 else schema


def _kind(schema: Mapping[str, Any]) -> Kind:
    if isinstance(schema.get("enum"), list):
        return "choice"
    match schema.get("type"):
        case "string":
            return _text_kind(schema)
        case "number":
            return "number"
        case "integer":
            return "integer"
        case "boolean":
            return "yes"
        case _:
            return "json"


def _text_kind(schema: Mapping[str, Any]) -> Kind:
    longest = schema.get("maxLength")
    if schema.get("format") == "date":
        return "date"
    if schema.get("format") == "email":
        return "email"
    return "long" if isinstance(longest, int) and longest > LONG else "text"


def data_of(form: Mapping[str, Any] | None, given: Mapping[str, str]) -> Any:
    """Raises InvalidInput that names the field. Fields that were left empty are left out."""
    found = {
        field.name: _value(field, given.get(f"field:{field.name}", ""))
        for field in fields_of(form)
        if field.kind == "yes" or given.get(f"field:{field.name}", "").strip()
    }
    if form and list(found) == [WHOLE] and not form.get("properties"):
        return found[WHOLE]
    return found or None


def _value(field: FormField, text: str) -> Any:
    match field.kind:
        case "yes":
            return text == "yes"
        case "choice":
            return next((each for each in field.choices if _written(each) == text), text)
        case "number" | "integer" | "json":
            return _read(field, text)
        case _:
            return text.replace("\r\n", "\n")


def _read(field: FormField, text: str) -> Any:
    what = "JSON" if field.kind == "json" else "a number"
    try:
        value = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise InvalidInput(f"{field.label}: {text[:60]!r} is not {what}") from None
    if field.kind != "json" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput(f"{field.label}: {text[:60]!r} is not a number")
    return value


def _written(choice: Any) -> str:
    return choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()


def written(value: Any) -> str:
    """A default or choice as it stands in a field."""
    return "" if value is None else _written(value)
