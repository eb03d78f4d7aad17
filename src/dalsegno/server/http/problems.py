"""Errors as problem documents (RFC 9457): every refusal states the problem, its place, and a code that is
documented."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, get_args

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from dalsegno.core.values import MAX_DEPTH
from dalsegno.engine.scripts.programs import InvalidScript
from dalsegno.errors import (
    AccessError,
    BadRequest,
    Conflict,
    CredentialNotFound,
    DalSegnoError,
    ExecutionEnded,
    Forbidden,
    InternalError,
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NoSecretKey,
    NotFound,
    NotJson,
    OperatorError,
    SecretUnreadable,
    StoreFull,
    TooLarge,
    TooManyRequests,
    TooSlow,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
)
from dalsegno.lang import FlowSyntaxError
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.server.http.request import joined, without_secrets
from dalsegno.server.schemas.values import PRINTABLE

logger = logging.getLogger("dalsegno.server")

MEDIA_TYPE = "application/problem+json"
MOST_PLACES = 100
"""Problems of a definition that are listed; the rest is counted."""
MOST_FIELDS = 20
"""The same for a request's parameters and body."""
LONGEST_DETAIL = 4_000
LONGEST_MESSAGE = 1_000
LONGEST_POINTER = 500
"""Characters: a refusal quotes parts of the request, and must not become many times as large."""

FIELD_FIRST = re.compile(r"(/(?:body|query|path)/[^\s:]+):? (.+)", re.DOTALL)
"""A refusal of one field of a request begins with its pointer: ``/body/timing: say when it starts``."""

STATUSES: dict[type[DalSegnoError], int] = {
    InvalidDefinition: 422,
    InvalidScript: 422,
    InvalidInput: 422,
    NotJson: 422,
    BadRequest: 400,
    NotFound: 404,
    LimitExceeded: 422,
    TooLarge: 413,
    UnsupportedMedia: 415,
    Conflict: 409,
    ExecutionEnded: 409,
    Unauthenticated: 401,
    Forbidden: 403,
    TooManyRequests: 429,
    TooSlow: 408,
    AccessError: 403,
    Unavailable: 503,
    StoreFull: 507,
    CredentialNotFound: 404,
    NoSecretKey: 409,
    SecretUnreadable: 409,
    OperatorError: 503,
    InternalError: 500,
}
"""Statuses by error class; the nearest ancestor of an error's class applies."""

TITLES: dict[int, str] = {
    400: "Unreadable request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timed out",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid request",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Temporarily unavailable",
    507: "Store full",
}


class OutcomeUnknown(Unavailable):
    """The call was not confirmed in time, and may still take effect. ``execution``: the one it would create, if
    known."""

    def __init__(self, message: str, execution: str | None) -> None:
        super().__init__(message)
        self.execution = execution


class Place(BaseModel):
    """One problem and its place."""

    pointer: str = Field(
        description="JSON pointer: into the document or the input where one is refused, else into the request "
        "(`/body/tags`, `/query/limit`, `/path/execution`)."
    )
    message: str = Field(description="The problem, as a sentence.")
    rule: str | None = Field(default=None, description="The rule that is broken, such as `unknown-type`.")
    line: int | None = Field(default=None, description="In the text of a script or of the body, from 1.")
    column: int | None = Field(default=None, description="In that line, from 1.")


class Problem(BaseModel):
    """Every error reply: a problem document (RFC 9457) with a stable code."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "/v1/errors/DS-130",
                "title": "Not found",
                "status": 404,
                "detail": "there is no execution 0198f3 in this store",
                "code": "DS-130",
                "findings": [],
                "errors": [],
            }
        }
    )

    type: str = Field(description="Where the code is explained, with cause and cure.")
    title: str = Field(description="The meaning of the status, the same for every problem with it.")
    status: int = Field(description="The HTTP status.")
    detail: str = Field(description="The problem with this request, in one or a few sentences.")
    code: str = Field(description="The stable code of the error, `DS-…`.")
    findings: list[Place] = Field(
        default=[],
        description="All problems, each with its place. Empty if the error does not concern a place.",
    )
    errors: list[Place] = Field(
        default=[], deprecated=True, description="The same list under its earlier name. Use `findings`."
    )
    omitted: int | None = Field(
        default=None, description="How many more findings there are than `findings` lists."
    )
    execution: str | None = Field(
        default=None, description="Where the outcome is unknown: the execution that may have been made."
    )


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        """Encode the document. A quoted text may contain lone surrogates, which UTF-8 cannot encode."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def problem(
    status: int,
    code: str,
    detail: str,
    findings: Sequence[Place] = (),
    headers: Mapping[str, str] | None = None,
    execution: str | None = None,
    most: int = MOST_PLACES,
    omitted: int = 0,
) -> ProblemResponse:
    """Return a problem document as a response. ``omitted``: the number of findings beyond those given."""
    body = _document(status, code, detail, findings, execution, most, omitted)
    return ProblemResponse(body.model_dump(exclude_none=True), status, dict(headers or {}))


def _document(
    status: int,
    code: str,
    detail: str,
    findings: Sequence[Place],
    execution: str | None,
    most: int,
    omitted: int,
) -> Problem:
    shown = list(findings[:most])
    return Problem(
        type=f"/v1/errors/{code}",
        title=TITLES.get(status, "The request failed"),
        status=status,
        detail=_shortened(detail, LONGEST_DETAIL),
        code=code,
        findings=shown,
        errors=shown,
        omitted=(max(len(findings) - most, 0) + omitted) or None,
        execution=execution,
    )


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


def status_of(error: DalSegnoError) -> int:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 422)


def problem_of(error: DalSegnoError) -> ProblemResponse:
    body = document_of(error)
    headers: dict[str, str] = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    if (after := retry_after(error)) is not None:
        headers["Retry-After"] = str(after)
    return ProblemResponse(body.model_dump(exclude_none=True), body.status, headers)


def document_of(error: DalSegnoError) -> Problem:
    """Return the problem document of an error, without a response."""
    execution = error.execution if isinstance(error, OutcomeUnknown) else None
    listed = _places(error)
    found = getattr(error, "findings", ())
    omitted = len(found) - len(listed) if listed else 0
    return _document(status_of(error), error.code, str(error), listed, execution, MOST_PLACES, omitted)


def retry_after(error: DalSegnoError) -> int | None:
    """Return the seconds after which a retry is worthwhile; None if it is not."""
    if isinstance(error, TooManyRequests):
        return max(1, math.ceil(error.after))
    return 1 if status_of(error) == 503 else None


def _places(error: DalSegnoError) -> list[Place]:
    if isinstance(error, InvalidScript):
        return [
            Place(pointer="", message=_message_of(each), rule=each.rule, line=each.line, column=each.column)
            for each in error.findings[:MOST_PLACES]
        ]
    if isinstance(error, FlowSyntaxError):
        return [
            Place(pointer="", message=_message_of(error), rule="syntax", line=error.line, column=error.column)
        ]
    if isinstance(error, InvalidInput) and not error.findings and (found := FIELD_FIRST.match(str(error))):
        return [
            Place(
                pointer=_shortened(found[1], LONGEST_POINTER), message=_shortened(found[2], LONGEST_MESSAGE)
            )
        ]
    if isinstance(error, InvalidDefinition | InvalidInput):
        return [
            Place(
                pointer=_shortened(each.pointer, LONGEST_POINTER), message=_message_of(each), rule=each.rule
            )
            for each in error.findings[:MOST_PLACES]
        ]
    return []


class _Finding(Protocol):
    @property
    def message(self) -> str: ...


def _message_of(finding: _Finding) -> str:
    return _shortened(finding.message, LONGEST_MESSAGE)


# -- handlers -------------------------------------------------------------------------------------------------


def install(application: FastAPI) -> None:
    application.add_exception_handler(DalSegnoError, _known_error)
    application.add_exception_handler(RequestValidationError, _malformed)
    application.add_exception_handler(HTTPException, _framework)
    application.add_exception_handler(Exception, _unexpected)


async def _known_error(request: Request, error: Exception) -> ProblemResponse:
    if not isinstance(error, DalSegnoError):
        return await _unexpected(request, error)
    if status_of(error) >= 500:
        logger.warning("%s %s: %s", request.method, _path_of(request), error)
    return problem_of(error)


async def _malformed(request: Request, error: Exception) -> ProblemResponse:
    """Handle an invalid request that the framework refused before the route ran."""
    if isinstance(error.__cause__, json.JSONDecodeError):
        return _unreadable(error.__cause__)
    found = error.errors() if isinstance(error, RequestValidationError) else []
    model = body_model(request)
    places = [Place(pointer=_pointer(each["loc"]), message=_message(each, model)) for each in found]
    first = places[0] if places else Place(pointer="", message="it does not fit")
    more = f" (and {len(places) - 1:,} more)" if len(places) > 1 else ""
    where = first.pointer or "the body"
    return problem(422, InvalidInput.code, f"{where}: {first.message}{more}", places, most=MOST_FIELDS)


def _unreadable(error: json.JSONDecodeError) -> ProblemResponse:
    words = f"{error.msg} (line {error.lineno:,}, column {error.colno:,})"
    place = Place(pointer="/body", message=words, line=error.lineno, column=error.colno)
    return problem(400, BadRequest.code, f"the body is not valid JSON: {words}", [place])


def _message(found: Mapping[str, Any], model: Any) -> str:
    if found["type"] == "extra_forbidden":
        return unknown_field(found, model)
    if found["type"] == "string_pattern_mismatch" and found["ctx"]["pattern"] == PRINTABLE:
        return "It must not hold control characters, such as a line break or a tab"
    return _shortened(str(found["msg"]), LONGEST_MESSAGE)


def _pointer(place: Sequence[Any]) -> str:
    """Return the place in the request: ``/body/tags/env``, ``/query/limit``, ``/path/execution``."""
    found = "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place)
    return _shortened(found, LONGEST_POINTER)


async def _framework(request: Request, error: Exception) -> ProblemResponse:
    """Handle the framework's own errors: unknown route, unknown method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    codes = {404: NotFound.code, 405: BadRequest.code}
    details = {
        404: f"there is no route at {_path_of(request)}",
        405: f"{request.method} is not allowed at {_path_of(request)}",
    }
    if isinstance(error.__cause__, DalSegnoError):
        return problem_of(error.__cause__)
    if isinstance(error.__cause__, RecursionError):
        return problem(422, NotJson.code, f"the body is nested more than {MAX_DEPTH} levels deep")
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 405:
        headers = {"Allow": ", ".join(_methods_of(request))}
    detail = details.get(status) or str(getattr(error, "detail", error))
    return problem(status, codes.get(status, BadRequest.code), detail, headers=headers)


def _path_of(request: Request) -> str:
    return without_secrets(joined(request.url.path))


def _methods_of(request: Request) -> list[str]:
    """Return the methods of all routes that match the path. The framework names only those of the first one."""
    found = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    ]
    return ["GET", "HEAD", *found[1:]] if found[:1] == ["GET"] else found


async def _unexpected(request: Request, error: Exception) -> ProblemResponse:
    return problem_of(internal_error(f"{request.method} {_path_of(request)}", error))


def internal_error(call: str, error: Exception) -> InternalError:
    """Return the reply to a bug. The exception's text stays in the log, because it may contain anything."""
    logger.error("%s broke", call, exc_info=error)
    return InternalError("an internal error; the server's log has its traceback. Please report it.")


REFERENCE = {"$ref": "#/components/schemas/Problem"}
"""A reference instead of the model: for a model, the framework builds a validator per status and route on the first
request."""


def refusal(status: int, description: str | None = None) -> dict[str, Any]:
    """Return the OpenAPI description of an error reply."""
    return {
        "content": {MEDIA_TYPE: {"schema": REFERENCE}},
        "description": description or f"{TITLES[status]}.",
    }


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: refusal(status)
    for status in (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 431, 500, 503, 507)
}
"""Error replies that every route may return."""


# -- fields of a request's body ------------------------------------------------------------------------------

KNOWN = "known"
"""The key of a finding's context under which a route that reads its body itself gives the model."""


def body_model(request: Request) -> Any:
    """Return the annotation of the body of the route that was asked; None if it has none."""
    field = getattr(request.scope.get("route"), "body_field", None)
    return None if field is None else field.field_info.annotation


def unknown_field(found: Mapping[str, Any], model: Any) -> str:
    """Return the message for a finding of the type ``extra_forbidden``: the name that was probably meant, or all."""
    place = found["loc"][1:]
    known = fields_at(found.get("ctx", {}).get(KNOWN, model), place[:-1])
    instead = did_you_mean(str(place[-1]), known)
    if not instead and known:
        instead = f"; there are {listed(known)}"
    return f"There is no field of this name{instead}"


def fields_at(annotation: Any, place: Sequence[str | int]) -> list[str]:
    """Return the names of the fields that an object at this place of a body may have.

    Items of lists, keys of objects and tags of unions lead to no field: the models inside stay the same.
    """
    models = list(_models(annotation))
    for part in place:
        inner = [model.model_fields[part] for model in models if part in model.model_fields]
        models = [each for field in inner for each in _models(field.annotation)] if inner else models
    fields = {
        field.alias or name: field.deprecated
        for model in models
        for name, field in model.model_fields.items()
    }
    return sorted(name for name, deprecated in fields.items() if not deprecated)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation names: ``M``, ``M | None``, ``list[M]``, ``dict[str, M]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
