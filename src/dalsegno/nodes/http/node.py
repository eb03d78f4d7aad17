"""The ``http`` node and its parameters: one exchange with an HTTP service, or several for paginated resources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from dalsegno.errors import InternalError
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.data.paths import parse_path
from dalsegno.nodes.http.service import HttpService
from dalsegno.nodes.parameters import HEADER_NAME, RAW, NodeParameters, Seconds, Sensitive, Text, WholeNumber
from dalsegno.ports.node import NodeContext
from dalsegno.ports.secrets import is_connection_header

DEFAULT_MAX_RESPONSE_BYTES = 10 * 1024 * 1024
LINK_HEADER = "link"

_STATUS = re.compile(r"(?P<family>[1-5])xx|(?P<low>[1-5]\d\d)(?:-(?P<high>[1-5]\d\d))?", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

StatusTest = Callable[[int], bool]


def status_test(pattern: str) -> StatusTest:
    """Return a test for a pattern such as ``4xx,5xx``, ``404``, ``500-503``; raise ValueError if invalid."""
    ranges: list[range] = []
    for part in filter(None, re.split(r"[\s,]+", pattern)):
        found = _STATUS.fullmatch(part)
        if found is None:
            raise ValueError(f"should list statuses such as '4xx,5xx', '404' or '500-503', not {part!r}")
        if found["family"]:
            ranges.append(range(int(found["family"]) * 100, int(found["family"]) * 100 + 100))
        else:
            ranges.append(range(int(found["low"]), int(found["high"] or found["low"]) + 1))
    return lambda status: any(status in each for each in ranges)


def _joined(value: Any) -> Any:
    """Accept a list of patterns or a single number as well."""
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _statuses(pattern: str) -> str:
    status_test(pattern)
    return pattern


def _upper(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def _header_problem(name: str) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "is not a header name"
    if is_connection_header(name):
        return "belongs to the connection and is set by the client; leave it out"
    return None


def _header_name(name: str) -> str:
    """Raise an error of its own type: names are checked even where the values are templates."""
    if problem := _header_problem(name):
        raise PydanticCustomError(HEADER_NAME, "{problem}", {"problem": problem})
    return name


def _header_values(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if any(sign in value for sign in "\r\n\0"):
            raise ValueError(f"has a line break in the value of '{name}'")
    return headers


def _check_own_header(name: str) -> None:
    if problem := _header_problem(name):
        raise ValueError(f"has the 'name' {name[:100]!r}, which {problem}")


def _is_path(text: str) -> str:
    parse_path(text)
    return text


class Auth(NodeParameters):
    """How requests are authorised. Dropped when a redirect or a next page leads to another host."""

    type: Literal["basic", "bearer", "header"] = Field(description="Kind of authorisation.")
    username: Text = Field("", description="For `basic`.")
    password: Text = Field("", description="For `basic`.")
    token: Text | None = Field(None, description="For `bearer`.")
    name: str | None = Field(None, description="For `header`: name of the header.")
    value: Text | None = Field(None, description="For `header`: value of the header.")

    @model_validator(mode="after")
    def _is_complete(self) -> Auth:
        if self.type == "bearer" and not self.token:
            raise ValueError("of type 'bearer' needs 'token'")
        if self.type == "header" and not (self.name and self.value):
            raise ValueError("of type 'header' needs 'name' and 'value'")
        if self.type == "header":
            _check_own_header(self.name or "")
        _header_values({self.name or "Authorization": self.value or self.token or ""})
        return self


class Pagination(NodeParameters):
    """Follows pages: by the address of the next one (`next_url_path`), or by counting (`page_param`)."""

    next_url_path: Annotated[str, AfterValidator(_is_path)] | None = Field(
        None,
        description="Where a response holds the next page's address, e.g. `body.next`; "
        "`link` reads the Link header. Ends where there is none.",
    )
    page_param: str | None = Field(None, min_length=1, description="Query parameter that counts the pages.")
    start_page: WholeNumber = Field(1, ge=0, description="Number of the first page.")
    items_path: Annotated[str, AfterValidator(_is_path)] | None = Field(
        None,
        description="Where a response holds its list, e.g. `body.items`: the lists are joined. "
        "A page with an empty list is the last one counted.",
    )
    max_pages: WholeNumber = Field(10, ge=1, le=1000, description="Maximum number of pages to fetch.")

    @model_validator(mode="after")
    def _check_paging(self) -> Pagination:
        if (self.next_url_path is None) == (self.page_param is None):
            raise ValueError("needs either 'next_url_path' or 'page_param'")
        return self


class HttpParameters(NodeParameters):
    url: str = Field(min_length=1, description="Address, http or https.")
    method: Annotated[
        Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], BeforeValidator(_upper)
    ] = Field("GET", description="HTTP method.")
    query: dict[str, Any] = Field(
        default={},
        description="Query parameters, added to the address; lists repeat a parameter, null omits it.",
    )
    headers: Annotated[
        dict[Annotated[str, AfterValidator(_header_name)], Text], AfterValidator(_header_values), Sensitive()
    ] = Field(
        default={},
        description="Request headers. `Host`, `Content-Length` and others that belong to the connection are refused.",
    )
    body: Any = Field(
        None,
        description="Objects and lists are sent as JSON, text as text; a form or another content type is chosen "
        "by the header Content-Type.",
    )
    auth: Annotated[Auth | None, Sensitive()] = Field(None, description="Authorisation.")
    credential: Annotated[str | None, RAW] = Field(
        None,
        min_length=1,
        max_length=100,
        description="Name of a credential that authorises the request, instead of `auth`. It is sent only to the hosts "
        "on its own list. In a graph, the node's `credentials` does the same.",
    )
    timeout: Seconds = Field(
        30, gt=0, description="Time limit of the whole exchange, redirects and body included."
    )
    retry: Annotated[Any, RAW] = Field(
        None, description="Shorthand for the node's `retry`: number of further attempts."
    )
    retry_delay: Annotated[Any, RAW] = Field(
        None, description="Shorthand: time before the first further attempt."
    )
    raise_on_status: Annotated[str, BeforeValidator(_joined), AfterValidator(_statuses)] = Field(
        "", description="Statuses that fail the node: `4xx,5xx`, `404`, `500-503`. Default: none."
    )
    ignore_ssl: bool = Field(False, description="Accept any certificate.")
    follow_redirects: bool = Field(True, description="Follow up to ten redirects.")
    max_response_bytes: WholeNumber = Field(
        DEFAULT_MAX_RESPONSE_BYTES, ge=1, description="Largest response body, over all pages, unpacked."
    )
    pagination: Pagination | None = Field(None, description="How to fetch further pages.")

    @model_validator(mode="after")
    def _authorises_once(self) -> HttpParameters:
        if self.auth is not None and self.credential is not None:
            raise ValueError("'auth' and 'credential' are both given; keep one of them")
        return self


_OUTPUT = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "status_text": {"type": "string"},
        "headers": {"type": "object", "description": "Names in lower case."},
        "body": {"description": "JSON or text; binary content as {encoding, data, content_type, size}."},
        "duration_ms": {"type": "number"},
        "pages": {"type": "integer", "description": "With pagination: number of pages fetched."},
        "more": {"type": "boolean", "description": "With pagination: whether `max_pages` cut it short."},
    },
}


@node_type("http", parameters=HttpParameters, aliases=("call_external_service",), output_schema=_OUTPUT)
async def http(ctx: NodeContext, parameters: HttpParameters) -> dict[str, Any]:
    """Sends an HTTP request; any status is a success unless `raise_on_status` names it."""
    from dalsegno.nodes.http.exchange import run_http  # noqa: PLC0415 - the client is loaded by the first request

    service = ctx.services.get("http")
    if not isinstance(service, HttpService):
        raise InternalError("the engine gives the http node no HttpService as service 'http'")
    return await run_http(ctx, parameters, service)
