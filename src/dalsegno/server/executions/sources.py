"""Sources of definitions in requests: JSON with a document or a text in it, or a bare graph or script as the body."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import msgspec
from fastapi import Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from dalsegno.core.json_fields import is_graph, read_object, read_parts
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload
from dalsegno.errors import BadRequest, InvalidInput, UnsupportedMedia
from dalsegno.server.http.problems import KNOWN
from dalsegno.server.schemas.definitions import DefinitionSource

JSON = "application/json"
YAML = ("application/yaml", "application/x-yaml", "text/yaml")
SCRIPT = ("application/vnd.dalsegno.flow", "text/x-flow")

LARGE = 4_096
"""Bytes of a body from which on its document is left unparsed here; the check parses it."""
VERY_LARGE = 262_144
"""Bytes of a body from which on it is not scanned here either."""
MOST_FIELDS = 200
"""Fields of a body that are examined; bodies with more fields are refused."""
YAML_EXAMPLE = "name: hello\nnodes:\n  - {id: greet, type: log, parameters: {message: hello}}\n"
SCRIPT_EXAMPLE = "workflow hello(inputs) {\n  return `Hello, ${inputs.name}!`\n}\n"

BODY = (
    "JSON: a definition with its name, or a graph document itself. The text of a graph or script may be given as "
    "`source`; without JSON around it, it is sent as `application/yaml` or `application/vnd.dalsegno.flow`."
)
OTHER_MEDIA_TYPES = "x-other-media-types"
"""The same body in other media types. They are not listed under `content`, because client generators have no type
for them and either omit the route or pick one of two texts arbitrarily."""

Named = Annotated[
    str | None, Query(min_length=1, max_length=200, description="For bare documents that have no name.")
]
Aliased = Annotated[str | None, Query(max_length=63, description="An alias for this version.")]


async def read_source(request: Request, name: Named = None, alias: Aliased = None) -> DefinitionSource:
    media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    body = await request.body()
    if media in YAML:
        return DefinitionSource(source=_text(body), kind="graph", name=name, alias=alias)
    if media in SCRIPT:
        return DefinitionSource(source=_text(body), kind="script", name=name, alias=alias)
    if media != JSON:
        known = ", ".join((JSON, YAML[0], SCRIPT[0]))
        raise UnsupportedMedia(f"a definition cannot be of type {media[:100]!r}; send one of {known}")
    if len(body) > VERY_LARGE:
        offload: Offload = request.app.state.services.client.offload
        parts = value_of(await offload.large("source_parts", body))
        raw = {key: msgspec.Raw(part) for key, part in parts.items()}
        return _from_parts(raw) if parts else DefinitionSource.unread(body, name=name, alias=alias)
    return _from_json(body, name, alias)


Source = Annotated[DefinitionSource, Depends(read_source)]


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: {error}") from None


def _from_json(body: bytes, name: str | None, alias: str | None) -> DefinitionSource:
    if len(body) > LARGE:
        parts = read_parts(body)
        if is_graph(parts):
            return DefinitionSource.unread(body, name=name, alias=alias)
        return _from_parts(parts)
    found = read_object(body, Any)
    if is_graph(found):
        return DefinitionSource(document=found, name=name, alias=alias)
    return _checked(found)


def _from_parts(parts: dict[str, msgspec.Raw]) -> DefinitionSource:
    """Build the source of a large body, leaving its document unparsed."""
    document = parts.pop("document", None)
    fields = {key: _field(key, bytes(value)) for key, value in islice(parts.items(), MOST_FIELDS)}
    raw = bytes(document) if document is not None else b"null"
    if raw == b"null":
        return _checked(fields)
    if not raw.startswith(b"{"):
        raise InvalidInput("/body/document: a graph document is an object")
    return DefinitionSource.unread(
        raw, **_checked({**fields, "document": {}}).model_dump(exclude={"document"})
    )


def _field(name: str, raw: bytes) -> Any:
    """Decode a field. Only the document may be an object or a list; of any other such field only the type is
    reported in the refusal."""
    if raw[:1] in (b"{", b"["):
        return {} if raw[:1] == b"{" else []
    try:
        return msgspec.json.decode(raw)
    except msgspec.MsgspecError as error:  # a number out of range
        raise InvalidInput(f"/body/{name[:100]}: {error}") from None


def _checked(found: dict[str, Any]) -> DefinitionSource:
    try:
        given = DefinitionSource.model_validate(found)
    except ValidationError as error:
        problems = [
            {**each, "loc": ("body", *each["loc"]), "ctx": {**each.get("ctx", {}), KNOWN: DefinitionSource}}
            for each in error.errors()
        ]
        raise RequestValidationError(problems) from None
    if (given.document is None) == (given.source is None):
        raise InvalidInput("/body: give either 'document' or 'source'")
    return given


def openapi_body() -> dict[str, Any]:
    """Return the OpenAPI description of these bodies, which the framework cannot derive."""
    content = {
        JSON: {
            "schema": {
                "anyOf": [
                    {"$ref": "#/components/schemas/DefinitionSource"},
                    {"$ref": "#/components/schemas/GraphDocument"},
                ]
            },
            "example": DefinitionSource.model_json_schema()["example"],
        },
    }
    bare = {YAML[0]: {"example": YAML_EXAMPLE}, SCRIPT[0]: {"example": SCRIPT_EXAMPLE}}
    body = {"required": True, "description": BODY, "content": content, OTHER_MEDIA_TYPES: bare}
    return {"requestBody": body}
