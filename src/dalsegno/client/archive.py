"""The archive's interface to a server: definitions, versions and aliases of its store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from dalsegno.client.problems import Place
from dalsegno.client.schemas import DefinitionPage, DefinitionReply, ProgramReply
from dalsegno.client.transport import Transport
from dalsegno.errors import Finding, InvalidDefinition, NotFound
from dalsegno.model.definition import Definition, Version

LARGEST_PAGE = 500

Source = str | bytes | Mapping[str, Any]


class Checked(Struct):
    """The result of a validation. Nothing was stored."""

    valid: bool
    name: str | None = None
    kind: str | None = None
    findings: list[Place] = []


class ServerArchive:
    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._programs: dict[str, Definition] = {}

    # -- changes ----------------------------------------------------------------------------------------------

    async def validate(self, source: Source, name: str | None = None, *, script: bool = False) -> Checked:
        body = _body(source, name, script=script)
        return await self.transport.send("POST", "definitions/validate", Checked, body, repeatable=True)

    async def deploy(self, source: Source, name: str | None = None, *, script: bool = False) -> Definition:
        """Deploy a source. The same content is the same version, so the request can be repeated."""
        body = _body(source, name, script=script)
        reply = await self.transport.send("POST", "definitions", DefinitionReply, body, repeatable=True)
        return reply.definition()

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        path = f"{_path(name)}/aliases/{quote(alias, safe='')}"
        await self.transport.send("PUT", path, Any, {"version": version}, repeatable=True)

    async def remove_alias(self, name: str, alias: str) -> bool:
        """Remove an alias; return whether it existed."""
        try:
            await self.transport.send("DELETE", f"{_path(name)}/aliases/{quote(alias, safe='')}", Any)
        except NotFound:
            return False
        return True

    # -- lookups ----------------------------------------------------------------------------------------------

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        """Return a version with its stored form; None if there is none."""
        query = {"version": str(version) if version is not None else None}
        try:
            reply = await self.transport.get(_path(name), DefinitionReply, query)
        except NotFound:
            return None
        return await self.definition_by_hash(reply.hash, reply)

    async def definition_by_hash(self, hash: str, named: DefinitionReply | None = None) -> Definition | None:
        """Return a definition by its content hash. ``named``: the one that is meant if several have this content."""
        known = self._programs.get(hash)
        if known is None:
            try:
                reply = await self.transport.get(f"programs/{quote(hash, safe='')}", ProgramReply)
            except NotFound:
                return None
            known = self._programs[hash] = reply.definition()
        return known if named is None else named.definition(known.source)

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]:
        """Return definitions by name, without their stored form. Reads from the first name on, because a server's
        cursors are opaque."""
        found: list[Definition] = []
        cursor: str | None = None
        while len(found) < limit:
            query = {"limit": LARGEST_PAGE, "cursor": cursor}
            page = await self.transport.get("definitions", DefinitionPage, query)
            found += [each.definition() for each in page.items if each.name > after]
            cursor = page.next
            if cursor is None:
                break
        return found[:limit]

    async def versions(
        self, name: str, limit: int | None = None, before: int | None = None
    ) -> list[Definition]:
        """Return versions, newest first, without their stored form; none if the name is unknown."""
        return [each.definition() for each in await self._versions(name, limit, before)]

    async def aliases(self, name: str) -> dict[str, int]:
        found = await self._versions(name)
        return dict(sorted((alias, each.version) for each in found for alias in each.aliases))

    async def _versions(
        self, name: str, limit: int | None = None, before: int | None = None
    ) -> list[DefinitionReply]:
        found: list[DefinitionReply] = []
        while limit is None or len(found) < limit:
            wanted = LARGEST_PAGE if limit is None else min(LARGEST_PAGE, limit - len(found))
            query = {"limit": wanted, "before": before}
            try:
                page = await self.transport.get(f"{_path(name)}/versions", list[DefinitionReply], query)
            except NotFound:
                break
            found += page
            if len(page) < wanted:
                break
            before = page[-1].version
        return found


def _path(name: str) -> str:
    return f"definitions/{quote(name, safe='')}"


def _body(source: Source, name: str | None, *, script: bool) -> dict[str, Any]:
    named = {} if name is None else {"name": name}
    if isinstance(source, Mapping):
        return {"document": dict(source), **named}
    try:
        text = source if isinstance(source, str) else bytes(source).decode()
    except UnicodeDecodeError as error:
        raise InvalidDefinition([Finding("", "encoding", f"The document is not UTF-8: {error}.")]) from None
    return {"source": text, "kind": "script" if script else "graph", **named}
