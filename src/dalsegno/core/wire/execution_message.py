"""Execution messages of other programs: the published schemas, and the parser with its refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b, sha256
from importlib.resources import files
from typing import Any, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import MAX_DEPTH, decode_value, nesting
from dalsegno.errors import Finding
from dalsegno.graph.documents.normalise import RESERVED_IDS
from dalsegno.graph.json_schema.shape import check_input

MAX_BYTES = 10 * 1024 * 1024
SHOWN_FINDINGS = 10
LONGEST_IDENTITY = 512
_ROOT = re.compile(r"\$(\w[\w.:-]{0,127})")

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
        raise too_large(len(body), what)
    try:
        data = decode_value(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("NOT_JSON", f"{what} is not JSON: {error}") from None
    if len(body) > MAX_DEPTH and nesting(body) > MAX_DEPTH:
        raise InvalidMessage("TOO_DEEP", f"{what} nests more than {MAX_DEPTH} levels deep.")
    return data


def too_large(size: int, what: str) -> InvalidMessage:
    return InvalidMessage("TOO_LARGE", f"{what} has {size:,} bytes, more than {MAX_BYTES:,}.")


def identity_of(reading: Reading, identity: str | None) -> str:
    """Return the id under which a message is known: the sender's, else the hash of its body. Of an identity that no
    store can hold as it is, the hash stands for it."""
    if not identity:
        return f"body:{reading.body_hash}"
    if len(identity) > LONGEST_IDENTITY or not identity.isprintable():
        return f"hashed:{sha256(identity.encode(errors='backslashreplace')).hexdigest()}"
    return f"message:{identity}"


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


# -- reading beside the event loop -----------------------------------------------------------------------------


class Reading(Struct, frozen=True):
    """A message with all that depends on the whole of it, so that it can be read in another process."""

    message: ExecutionMessage
    reference: Reference | None
    """What its definition refers to; None if it carries one."""
    definition_digest: bytes
    names: tuple[str, ...]
    """Names of the context's values to which the definition may refer."""
    body_hash: str


def read_whole(body: bytes) -> Reading:
    """Read a message; raise `InvalidMessage`."""
    message = read_message(body)
    definition = message.workflow_definition
    names = names_in(bytes(definition), message.context)
    return Reading(message, reference_in(definition), digest_of(definition), names, sha256(body).hexdigest())


def names_in(definition: bytes, context: Mapping[str, Raw]) -> tuple[str, ...]:
    """Return the names of context values that a definition may refer to, without those that every context has."""
    keys = [found[1] for key in context if (found := _ROOT.fullmatch(key)) and key.encode() in definition]
    return tuple(sorted(name for name in keys if name not in RESERVED_IDS))


def digest_of(definition: bytes | Raw) -> bytes:
    return blake2b(bytes(definition), digest_size=16).digest()


def read_apart(body: bytes) -> dict[str, Any]:
    """Read a message and return plain values: its parts, or why it is refused."""
    try:
        read = read_whole(body)
    except InvalidMessage as refusal:
        return {"refused": (refusal.code, str(refusal))}
    message, named = read.message, read.reference
    plain = {field: getattr(message, field) for field in message.__struct_fields__}
    plain["workflow_definition"] = bytes(message.workflow_definition)
    plain["accumulated_context"] = {key: bytes(raw) for key, raw in message.context.items()}
    plain["lineage_stack"] = [msgspec.structs.astuple(frame) for frame in message.frames]
    reference = msgspec.structs.astuple(named) if named is not None else None
    return {"read": (plain, reference, read.definition_digest, read.names, read.body_hash)}


def reading_of(reply: Mapping[str, Any]) -> Reading:
    """Return what `read_apart` has read, or raise what it refused."""
    if "refused" in reply:
        code, text = reply["refused"]
        raise InvalidMessage(code, text)
    plain, reference, digest, names, body_hash = reply["read"]
    plain["workflow_definition"] = Raw(plain["workflow_definition"])
    plain["accumulated_context"] = {key: Raw(raw) for key, raw in plain["accumulated_context"].items()}
    plain["lineage_stack"] = tuple(Frame(*frame) for frame in plain["lineage_stack"])
    named = Reference(*reference) if reference is not None else None
    return Reading(ExecutionMessage(**plain), named, digest, tuple(names), body_hash)
