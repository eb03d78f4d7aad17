"""Parameters of nodes: the vocabulary of their models, and validation errors as readable problems with a path.

A model is the single source of a node's check, JSON Schema, form and documentation.

* `check_parameters` checks documents. Values that contain a template are checked when the node runs.
* `parameter_parser` checks rendered parameters and raises.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, ErrorDetails

from dalsegno.graph.catalog import ParameterKind, ParameterProblem
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.values.kinds import number_text
from dalsegno.ports.node import NodeError


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


# -- checks --------------------------------------------------------------------------------------------------


INVALID_PARAMETERS = "INVALID_PARAMETERS"
HEADER_NAME = "header_name"
"""The error type for a key of an object: the key is a constant even where its value is a template."""

_TEMPLATE = re.compile(r"\{\{|(?<!\$)(?:\$\$)*\$[^\W\d]")
"""``{{``, or a ``$word`` whose dollar sign is not escaped by another."""

_SHOWN = 60
_PLAIN_TEXTS = (
    ("a valid integer", "a whole number"),
    ("a valid dictionary", "an object"),
    ("a valid ", "a "),
)


def holds_template(value: Any) -> bool:
    """Return True if a value, or anything inside it, is rendered at run time."""
    pending = [value]
    while pending:
        match pending.pop():
            case str() as text if _TEMPLATE.search(text):
                return True
            case dict() as found:
                pending.extend(found.values())
            case list() as found:
                pending.extend(found)
    return False


def check_parameters(
    model: type[BaseModel], kinds: Mapping[str, ParameterKind], parameters: Mapping[str, Any]
) -> list[ParameterProblem]:
    """Return all problems of a document's constant parameters, at most one per place."""
    try:
        model.model_validate(dict(parameters))
    except ValidationError as error:
        found: dict[tuple[str | int, ...], ParameterProblem] = {}
        for detail in error.errors(include_url=False):
            path = _path(detail, parameters)
            if path not in found and not _judged_when_run(detail, path, kinds, parameters):
                found[path] = ParameterProblem(path, _sentence(detail, path, model))
        return list(found.values())
    return []


def parameter_parser(
    model: type[BaseModel], kinds: Mapping[str, ParameterKind]
) -> Callable[[Mapping[str, Any]], BaseModel]:
    """Return a parser of rendered parameters. Conditions and expressions are excluded: the node evaluates them."""
    runtime = _without_evaluated(model, kinds)

    def parse(parameters: Mapping[str, Any]) -> BaseModel:
        try:
            return runtime.model_validate(parameters)
        except ValidationError as error:
            raise _refusal(error, model, parameters) from None

    return parse


def _without_evaluated(model: type[BaseModel], kinds: Mapping[str, ParameterKind]) -> type[BaseModel]:
    """Return the model with its conditions and expressions optional and unchecked."""
    evaluated: dict[str, Any] = {
        name: (Any, None)
        for name, field in model.model_fields.items()
        if kinds.get(spelling(name, field)) in ("condition", "expression")
    }
    return create_model(model.__name__, __base__=model, **evaluated) if evaluated else model


def _refusal(error: ValidationError, model: type[BaseModel], parameters: Mapping[str, Any]) -> NodeError:
    problems: dict[tuple[str | int, ...], str] = {}
    for detail in error.errors(include_url=False):
        path = _path(detail, parameters)
        problems.setdefault(path, _sentence(detail, path, model))
    listed = [{"path": list(path), "message": message} for path, message in problems.items()]
    return NodeError(
        "; ".join(problems.values()), code=INVALID_PARAMETERS, details={"problems": listed}, retryable=False
    )


def _path(detail: ErrorDetails, parameters: Mapping[str, Any]) -> tuple[str | int, ...]:
    """Return the error's place in the document, without the segments that only name a branch of the model."""
    path: list[str | int] = []
    value: Any = parameters
    for segment in detail["loc"]:
        if _has(value, segment):
            value = value[segment]
        elif detail["type"] != "missing" or segment != detail["loc"][-1]:
            continue
        path.append(segment)
    return tuple(path)


def _has(value: Any, segment: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(segment, int) and segment < len(value)
    return isinstance(value, Mapping) and segment in value


def _judged_when_run(
    detail: ErrorDetails,
    path: tuple[str | int, ...],
    kinds: Mapping[str, ParameterKind],
    parameters: Mapping[str, Any],
) -> bool:
    if detail["type"] in ("missing", "extra_forbidden", HEADER_NAME):
        return False  # names are constants, even where their values are templates
    if path and kinds.get(str(path[0]), "template") != "template":
        return False
    value: Any = parameters
    for segment in path:
        value = value[segment]
    # A container of the wrong type is wrong whatever it contains. A rule about its content waits for the rendered
    # content.
    return holds_template(value) if isinstance(value, str) or detail["type"] == "value_error" else False


def _sentence(detail: ErrorDetails, path: tuple[str | int, ...], model: type[BaseModel]) -> str:
    place = _spell(path)
    given = "" if _sensitive(model, path) else f", not {_shown(detail['input'])}"
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return f"parameter '{place}' is missing"
        case "extra_forbidden":
            return _unknown(place, str(path[-1]), _known_names(model, path[:-1]))
        case "literal_error" | "enum":
            return f"parameter '{place}' should be {context['expected']}{given}" + _did_you_mean(
                detail["input"], re.findall(r"'([^']*)'", context["expected"])
            )
        case "value_error":
            message = str(context["error"])
            return f"parameter '{place}' {message}" if place else message
    message = detail["msg"].replace("Input should", "should", 1).partition(", unable to")[0]
    for pydantic_text, plain in _PLAIN_TEXTS:
        message = message.replace(pydantic_text, plain)
    return f"parameter '{place}' {message}{given}"


def _sensitive(model: type[BaseModel], path: tuple[str | int, ...]) -> bool:
    return any(
        isinstance(mark, Sensitive)
        for name, field in model.model_fields.items()
        if path and spelling(name, field) == path[0]
        for mark in field.metadata
    )


def _spell(path: tuple[str | int, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _unknown(place: str, name: str, known: Collection[str]) -> str:
    hint = _did_you_mean(name, known)
    if not hint:
        hint = f"; known: {', '.join(known)}" if known else "; this takes none"
    return f"unknown parameter '{place}'{hint}"


def _did_you_mean(given: Any, known: Collection[str]) -> str:
    if not isinstance(given, str):
        return ""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _known_names(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Return the parameter names at a place of the model; descends through lists and optional values."""
    for segment in path:
        if isinstance(segment, int):
            continue
        inner = next((f.annotation for n, f in model.model_fields.items() if spelling(n, f) == segment), None)
        nested = _first_model(inner)
        if nested is None:
            return []
        model = nested
    return [
        name for n, field in model.model_fields.items() for name in _spellings(n, field.validation_alias or n)
    ]


def _spellings(name: str, alias: Any) -> list[str]:
    if isinstance(alias, AliasChoices):
        return [choice for choice in alias.choices if isinstance(choice, str)]
    return [alias if isinstance(alias, str) else name]


def _first_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = getattr(annotation, "__args__", ())
    return next((found for part in inner if (found := _first_model(part)) is not None), None)
