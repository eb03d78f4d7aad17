"""Execution messages of other programs: the published schemas, and the parser with its refusals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import MAX_DEPTH, decode_value, nesting
from dalsegno.errors import Finding
from dalsegno.graph.json_schema.shape import check_input

MAX_BYTES = 10 * 1024 * 1024
SHOWN_FINDINGS = 10

SchemaName = Literal["node-execution", "node-status", "completion", "task", "result"]
SCHEMAS: tuple[SchemaName, ...] = get_args(SchemaName)


@cache
def message_schema(name: SchemaName) -> dict[str, Any]:
    """Return the JSON Schema of a message."""
    text = (files(__package__) / "schemas" / f"{name}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


class InvalidMessage(Exception):
    """A message that can never be taken in. ``code`` is for programs; the text names each place."""

    def __init__(self, code: str, message: str, findings: Sequence[Finding] = ()) -> None:
        lines = [f"{found.pointer or '/'}: {found.message}" for found in findings[:SHOWN_FINDINGS]]
        if len(findings) > SHOWN_FINDINGS:
            lines.append(f"and {len(findings) - SHOWN_FINDINGS} more")
        super().__init__("\n".join([message, *lines]))
        self.code = code
        self.findings = tuple(findings)

    @classmethod
    def at(cls, pointer: str, code: str, message: str) -> InvalidMessage:
        return cls(code, f"{pointer}: {message}")


class Frame(Struct, frozen=True):
    """One split around the node of a message."""

    split_node_id: str
    item_index: int
    total_items: int


class ExecutionMessage(Struct, frozen=True):
    """A message that fits the schema. Values of its context are JSON as it came."""

    workflow_id: str
    execution_id: str
    current_node: str
    workflow_definition: Raw
    accumulated_context: dict[str, Raw] | None = None
    from_node: str | None = None
    edge_id: str | None = None
    lineage_stack: tuple[Frame, ...] | None = None
    token_id: str | None = None

    @property
    def context(self) -> dict[str, Raw]:
        return self.accumulated_context or {}

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.lineage_stack or ()

    @property
    def trigger(self) -> bytes:
        """Return the start payload."""
        return bytes(self.context.get("$trigger", b"{}"))


class Reference(Struct, frozen=True):
    """A definition that is named, not carried."""

    name: str | None = None
    version: int | str | None = None
    hash: str | None = None


_decode = msgspec.json.Decoder(ExecutionMessage).decode


def read_message(body: bytes) -> ExecutionMessage:
    """Return the message; raise `InvalidMessage`."""
    data = read_json(body, "The message")
    findings = check_input(message_schema("node-execution"), data)
    if findings:
        raise InvalidMessage("INVALID_MESSAGE", "The message does not fit its schema.", findings)
    try:
        return _decode(body)
    except msgspec.DecodeError as error:
        raise InvalidMessage("INVALID_MESSAGE", f"The message does not fit its schema: {error}") from None


def read_json(body: bytes, what: str) -> Any:
    """Return the JSON of a message; raise `InvalidMessage` if it is none, or too large or deep."""
    if len(body) > MAX_BYTES:
        raise InvalidMessage("TOO_LARGE", f"{what} has {len(body):,} bytes, more than {MAX_BYTES:,}.")
    try:
        data = decode_value(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("NOT_JSON", f"{what} is not JSON: {error}") from None
    if len(body) > MAX_DEPTH and nesting(body) > MAX_DEPTH:
        raise InvalidMessage("TOO_DEEP", f"{what} nests more than {MAX_DEPTH} levels deep.")
    return data


def identity_of(body: bytes, identity: str | None) -> str:
    """Return the id under which a message is known: the sender's, else the hash of its body."""
    return f"message:{identity}" if identity else f"body:{sha256(body).hexdigest()}"


def reference_in(definition: Raw) -> Reference | None:
    """Return what a definition refers to; None if it is a document."""
    data = decode_value(definition)
    if isinstance(data.get("$ref"), str):
        return Reference(hash=data["$ref"])
    if isinstance(data.get("name"), str) and not any(key in data for key in ("nodes", "edges", "dag")):
        version = data.get("version")
        if version is None or (isinstance(version, int | str) and not isinstance(version, bool)):
            return Reference(data["name"], version)
    return None
