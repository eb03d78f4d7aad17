"""``/v1/errors``: cause and cure of every code; the `type` of a problem document leads here."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from dalsegno import errors as taxonomy
from dalsegno.errors import DalSegnoError, NotFound
from dalsegno.server.causes import CAUSES, NODE_CODES
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import ErrorInfo, ErrorList

router = APIRouter(prefix="/errors", tags=["operation"], route_class=Route)

Code = Annotated[str, Path(max_length=100, description="The error code.", examples=["DS-130"])]


def _names() -> dict[str, str]:
    """Classes by code."""
    found = [
        each for each in vars(taxonomy).values() if isinstance(each, type) and issubclass(each, DalSegnoError)
    ]
    return {each.code: each.__name__ for each in found}


@router.get("", operation_id="list_error_codes")
async def every_code() -> ErrorList:
    """All codes of errors (`DS-…`), and those of failed nodes."""
    return ErrorList(errors=[_info(code) for code in (*CAUSES, *NODE_CODES)])


@router.get("/{code}", operation_id="get_error_code")
async def one(code: Code) -> ErrorInfo:
    """Its cause, and what helps."""
    if code not in CAUSES and code not in NODE_CODES:
        raise NotFound(f"there is no error code {code!r}")
    return _info(code)


def _info(code: str) -> ErrorInfo:
    cause, cure = CAUSES[code] if code in CAUSES else NODE_CODES[code]
    return ErrorInfo(code=code, name=_names().get(code), cause=cause, cure=cure)
