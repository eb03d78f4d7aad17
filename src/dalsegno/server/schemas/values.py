"""Types that several schemas share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, Field, ValidationInfo, WrapValidator, field_validator, model_validator
from pydantic_core import PydanticCustomError

from dalsegno.server.http.request import NO_NUL

Shown = TypeVar("Shown", bound=BaseModel)
Name = Annotated[str, Field(min_length=1, max_length=200)]
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
"""Without NUL and control characters, which break logs, headers and terminals."""
Tags = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=200, pattern=PRINTABLE)],
        Annotated[str, Field(max_length=1000, pattern=PRINTABLE)],
    ],
    Field(max_length=50),
]
Delay = Annotated[str, Field(max_length=50)] | Annotated[float, Field(ge=0, le=100 * 366 * 86_400)]
"""Seconds, or text such as ``10m``."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Marks a field of a body that stays JSON, as `msgspec.Raw`; see `dalsegno.core.json_fields`."""

    kind: Literal["values", "documents", "members"]
    what: str
    """The field's name in messages."""


@dataclass(frozen=True, slots=True)
class Items:
    """Marks a list of objects whose own fields stay JSON if their model says so."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Marks the field that receives the whole body as one document, without the fields ``apart``."""

    apart: tuple[str, ...] = ()


def _kept_or_checked(value: Any, check: Any) -> Any:
    return value if isinstance(value, msgspec.Raw) else check(value)


OrRaw = WrapValidator(_kept_or_checked)
"""Accepts JSON that stays unparsed."""
Input = Annotated[Any, Kept("values", "the input")]
"""The input of an execution."""

MOST_UNKNOWN = 20
"""Unknown fields of a request's body that are reported one by one."""


class Asked(BaseModel):
    """The body of a request. Its texts contain no NUL, which not every store can hold. The users' own data are not
    checked."""

    @model_validator(mode="before")
    @classmethod
    def _hold_few_unknown_fields(cls, value: Any) -> Any:
        """Limit the number of unknown fields: otherwise each of a million unknown fields would be an error of its
        own."""
        closed = cls.model_config.get("extra") == "forbid"
        if closed and isinstance(value, dict) and len(value) > len(cls.model_fields) + MOST_UNKNOWN:
            more = len(value) - len(cls.model_fields)
            raise PydanticCustomError(
                "too_many_fields", "There are at least {more} fields that do not exist here", {"more": more}
            )
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _hold_no_nul(cls, value: Any, info: ValidationInfo) -> Any:
        own = cls.model_fields[info.field_name].annotation if info.field_name in cls.model_fields else Any
        texts = value if isinstance(value, list) else [value]
        if own is not Any and any(isinstance(each, str) and "\0" in each for each in texts):
            raise PydanticCustomError("nul", NO_NUL)
        return value


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def maybe_moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def shown(schema: type[Shown], value: object, **other: Any) -> Shown:
    """Return a reply that shows a value of the engine: fields of the same names, times as moments. ``other``: the
    fields that the value does not have, or has in another form.
    """
    for name, is_time in _fields_of(schema):
        if name not in other:
            own = getattr(value, name)
            other[name] = maybe_moment(own) if is_time else own
    return schema(**other)


@cache
def _fields_of(schema: type[BaseModel]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields, each with whether it is a time."""
    times = (datetime, datetime | None)
    return tuple((name, field.annotation in times) for name, field in schema.model_fields.items())


def stored(raw: bytes | None) -> Any:
    """Return stored JSON as `msgspec.Raw`, to be sent unchanged; None if nothing is stored."""
    return None if raw is None or raw == b"null" else msgspec.Raw(raw)
