"""Definitions that messages carry: checked beside the event loop, and stored apart from deployed ones.

Small ones are compiled in a thread, larger ones and those with costly patterns in a process with limits of time and
memory, as the server does with definitions of its callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.values import decode_value
from dalsegno.core.wire.execution_message import InvalidMessage
from dalsegno.engine.definitions import Definitions, parts_of
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import light_limits
from dalsegno.engine.subprocesses.examination import examined, type_spec, value_of
from dalsegno.engine.subprocesses.job_pool import Offload, Requester, requester
from dalsegno.errors import Finding, InvalidDefinition, UsageError
from dalsegno.graph.build import PROVIDED, Compiled, content_of, load_graph, provided_by
from dalsegno.graph.catalog import Catalog
from dalsegno.graph.documents.document import DocumentLimits, read_document
from dalsegno.lang import compile as compile_script
from dalsegno.lang.runtime.limits import Heavy, Meter
from dalsegno.model.definition import ADOPTED, PART_KIND, adopted_name, part_hash, part_name
from dalsegno.ports.archive import Archive

SMALL = 4_096
"""Bytes of a definition that is compiled in a thread, which shares the interpreter with the event loop."""
OUT_OF_REACH = ("reference-not-before", "reference-out-of-scope")
"""Findings about references to nodes that need not have run if the context brings what they left."""


class Carried(Struct, frozen=True):
    """A definition in the form in which it is stored."""

    name: str
    hash: str
    source: bytes
    deployed_hash: str
    """The hash under which the same definition would have been deployed."""
    parts: list[tuple[str, str, bytes]] = []
    """Scripts inside it: (name, hash, program)."""


def compile_carried(
    raw: bytes, names: Sequence[str], catalog: Catalog, limits: DocumentLimits, meter: Meter | None = None
) -> Carried:
    """Check and compile a definition; raise InvalidDefinition. A light ``meter`` raises Heavy.

    ``names``: values of the message's context; what they stand for need not have run here.
    """
    compiled = _compiled(read_document(raw, limits), names, catalog, meter)
    name = adopted_name(compiled.plan.name)
    source = compiled.definition_source
    brought = provided_by(decode_value(source))
    variant = f"-{sha256(','.join(brought).encode()).hexdigest()[:16]}" if brought else ""
    own = ADOPTED + content_of(source, limits) + variant
    return Carried(name, own, source, compiled.hash, _parts(compiled, name))


def _compiled(
    document: Mapping[str, Any], names: Sequence[str], catalog: Catalog, meter: Meter | None
) -> Compiled:
    nodes = _node_ids(document)
    try:
        return _loaded(document, [name for name in names if name not in nodes], catalog, meter)
    except InvalidDefinition as error:
        if not names or all(found.rule not in OUT_OF_REACH for found in error.findings):
            raise
    return _loaded(document, names, catalog, meter)


def _loaded(
    document: Mapping[str, Any], provided: Sequence[str], catalog: Catalog, meter: Meter | None
) -> Compiled:
    marked = {key: value for key, value in document.items() if key != PROVIDED}
    if provided:
        marked[PROVIDED] = sorted(provided)
    return load_graph(marked, catalog, provided=provided, meter=meter)


def _node_ids(document: Mapping[str, Any]) -> set[str]:
    holder = document.get("dag") if isinstance(document.get("dag"), dict) else document
    nodes = holder.get("nodes") if isinstance(holder, dict) else None
    return {str(node.get("id")) for node in nodes or () if isinstance(node, dict)}


def _parts(compiled: Compiled, name: str) -> list[tuple[str, str, bytes]]:
    found = []
    for _, node, source in parts_of(compiled.plan):
        part = part_name(name, node.id)
        found.append((part, part_hash(part, source), compile_script(source, part).dump()))
    return found


class CarriedDefinitions:
    def __init__(self, definitions: Definitions, limits: EngineLimits, offload: Offload) -> None:
        self.definitions = definitions
        self.limits = limits
        self.offload = offload

    async def compile(self, raw: Raw, names: Sequence[str]) -> Carried:
        """Check and compile a definition; raise InvalidDefinition, or InvalidMessage where a limit is exceeded."""
        source, limits, types = bytes(raw), self.limits.document, self.definitions.types
        requester.set(Requester("definitions"))
        try:
            if len(source) <= SMALL:
                meter = Meter(light_limits(self.limits.expressions))
                try:
                    return await self.offload.small(compile_carried, source, names, types, limits, meter)
                except Heavy:
                    pass
            given = {
                "is_script": False,
                "content": source,
                "max_bytes": limits.max_bytes,
                "max_depth": limits.max_depth,
                "provided": list(names),
            }
            specs = [type_spec(types.get(name).spec) for name in types.types()]
            found: Any = await examined(self.offload, types, specs, "carry", given)
            return msgspec.convert(found, Carried)
        except InvalidDefinition:
            raise
        except UsageError as error:
            raise InvalidMessage.at("/workflow_definition", "INVALID_DEFINITION", str(error)) from None

    async def content(self, source: bytes) -> str:
        """Return the content hash of a definition; raise InvalidMessage if it cannot be read."""
        limits = self.limits.document
        requester.set(Requester("definitions"))
        try:
            if len(source) <= SMALL:
                return content_of(source, limits)
            reply = await self.offload.large("content", source, limits.max_bytes, limits.max_depth)
            return str(value_of(reply))
        except InvalidDefinition as error:
            found = [below("/workflow_definition", each) for each in error.findings]
            raise InvalidMessage("INVALID_DEFINITION", "The definition does not validate.", found) from None
        except UsageError as error:
            raise InvalidMessage.at("/workflow_definition", "INVALID_DEFINITION", str(error)) from None

    async def store(self, archive: Archive, carried: Carried) -> None:
        """Store a definition after the scripts inside it, so that no stored graph lacks one; raise InvalidMessage if
        it is new and the store has as many as it may.
        """
        most = self.limits.adopted_definitions
        is_new = await archive.version_of(carried.name, carried.hash) is None
        if is_new and await archive.count_adopted(most) >= most:
            what = (
                f"the store has {most:,} definitions of messages, which is the limit adopted_definitions: remove some "
                "(DELETE /v1/definitions/NAME), deploy this one and name it in the message, or raise the limit"
            )
            raise InvalidMessage.at("/workflow_definition", "TOO_MANY_DEFINITIONS", what)
        for name, content, program in carried.parts:
            await archive.put_definition(name, content, PART_KIND, program)
        await archive.put_definition(carried.name, carried.hash, "graph", carried.source)


def below(pointer: str, found: Finding) -> Finding:
    return Finding(pointer + found.pointer, found.rule, found.message, found.severity)
