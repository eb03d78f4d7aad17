"""Pages of long lists: a cursor is opaque to callers, and stays valid while others are being added."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from dalsegno.errors import InvalidInput

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next` of the previous page.")]


class Page(BaseModel, Generic[T]):
    """``next`` is absent on the last page."""

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """``ExecutionInfoPage``: the name of its schema."""
        return f"{params[0].__name__}Page"

    items: list[T]
    next: str | None = Field(default=None, description="Give it as `cursor` to get the next page.")


def to_cursor(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def from_cursor(cursor: str | None) -> str | None:
    if cursor is None:
        return None
    try:
        place = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise not_given_out() from None
    if "\0" in place:
        raise not_given_out()
    return place


def not_given_out() -> InvalidInput:
    return InvalidInput("'cursor' is none that this server gave out; leave it away to begin anew")
