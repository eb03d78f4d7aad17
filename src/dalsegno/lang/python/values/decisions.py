"""Human decisions as a Python workflow sees them: typed objects whose data are instances of the form's class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from dalsegno.errors import InvalidInput
from dalsegno.lang.python.values.typed_values import from_plain
from dalsegno.lang.runtime.effects import APPROVAL

F = TypeVar("F")


@dataclass(frozen=True)
class Decision(Generic[F]):
    """The decision on an approval."""

    approved: bool
    by: str | None
    """The person who decided."""
    data: F
    """The data submitted with an approval, as an instance of the form's class; None for a rejection."""
    comment: str | None = None


def schema_of(form: type[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a form."""
    if isinstance(form, Mapping):
        return dict(form)
    if not isinstance(form, type):
        raise TypeError(
            f"approval(): 'form' is a dataclass, a Pydantic model or a JSON Schema, not {type(form).__name__}"
        )
    if issubclass(form, msgspec.Struct):
        return _inlined(msgspec.json.schema(form))
    from pydantic import PydanticSchemaGenerationError, TypeAdapter  # noqa: PLC0415 - only where there is a form
    from pydantic.errors import PydanticUserError  # noqa: PLC0415 - as above

    try:
        schema = _inlined(TypeAdapter(form).json_schema())
        if is_dataclass(form):
            schema.setdefault("additionalProperties", False)  # its constructor takes no others either
        return schema
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise TypeError(f"approval(): no form can be made of {form.__name__}: {error}") from error


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline the definitions of its fields, one level deep: the pages show one input per field."""
    defined = schema.get("$defs", {})
    whole = {**_referred(schema, defined), "$defs": defined} if "$ref" in schema else schema
    fields = whole.get("properties", {})
    return {**whole, "properties": {name: _referred(field, defined) for name, field in fields.items()}}


def _referred(schema: Mapping[str, Any], defined: Mapping[str, Any]) -> dict[str, Any]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name not in defined:
        return dict(schema)
    return {**defined[name], **{key: value for key, value in schema.items() if key != "$ref"}}


class ClassNames(Protocol):
    """The names that snapshots of a program have for classes, as ``allowed_names.Naming`` knows them."""

    def name_of(self, thing: Any) -> str | None: ...

    def find_class(self, name: str) -> type | None: ...


def promise_name(form: type[Any] | None, naming: ClassNames) -> str:
    """Return the name of a decision's promise.

    It includes the class of the form, so that the snapshot keeps it by name.
    """
    if form is None:
        return APPROVAL
    name = naming.name_of(form)
    if name is None:
        raise TypeError(
            f"approval(): the class {form.__name__} cannot be found again by its name; define it at the top of the "
            "workflow's module, or import it there"
        )
    return f"{APPROVAL} {name}"


def decision_of(value: Any, name: str, naming: ClassNames) -> Decision[Any]:
    """Return the decision of the promise called ``name``."""
    form: Any = None
    dotted = name.partition(" ")[2]
    if dotted:
        form = naming.find_class(dotted)
        if form is None:
            raise InvalidInput(
                f"the form of a decision is of the class {dotted}, which this program does not name"
            )
    data = value["data"]
    if form is not None:
        data = from_plain(data, form, "the decision's data") if value["approved"] else None
    return Decision(value["approved"], value["by"], data, value["comment"])
