"""``client.definitions``: deployed workflows, their versions and aliases."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias
from urllib.parse import quote

from dalsegno.client.archive import ServerArchive
from dalsegno.client.group import CallGroup
from dalsegno.errors import NotFound
from dalsegno.model.definition import Definition, Version, no_such_version

Definitions: TypeAlias = list[Definition]


class ClientDefinitions(CallGroup):
    """Definitions of the server; ``client.deploy`` and ``client.deploy_script`` store them."""

    __slots__ = ()

    def list(self) -> Definitions:
        """Returns the current version of every workflow by name, without its stored form."""
        return self._call(self._list())

    async def alist(self) -> Definitions:
        return await self._acall(self._list())

    def get(self, name: str, version: Version = None) -> Definition:
        """Returns one version with its stored form: a number, an alias, or the current one. Raises NotFound if
        there is none."""
        return self._call(self._get(name, version))

    async def aget(self, name: str, version: Version = None) -> Definition:
        return await self._acall(self._get(name, version))

    def versions(self, name: str, limit: int | None = None) -> Definitions:
        """Returns versions, newest first, without their stored form; none if the name is unknown."""
        return self._call(self._archive().versions(name, limit))

    async def aversions(self, name: str, limit: int | None = None) -> Definitions:
        return await self._acall(self._archive().versions(name, limit))

    def aliases(self, name: str) -> dict[str, int]:
        """Returns the version of each alias."""
        return self._call(self._archive().aliases(name))

    async def aaliases(self, name: str) -> dict[str, int]:
        return await self._acall(self._archive().aliases(name))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Sets an alias to this version."""
        self._call(self._archive().set_alias(name, alias, version))

    async def aset_alias(self, name: str, alias: str, version: int) -> None:
        await self._acall(self._archive().set_alias(name, alias, version))

    def remove_alias(self, name: str, alias: str) -> None:
        """Removes an alias. Raises NotFound if there is none. Executions that were started with it continue."""
        self._call(self._remove_alias(name, alias))

    async def aremove_alias(self, name: str, alias: str) -> None:
        await self._acall(self._remove_alias(name, alias))

    # -- internal ---------------------------------------------------------------------------------------------

    async def _list(self) -> Definitions:
        return await self._archive().definitions(limit=sys.maxsize)

    async def _get(self, name: str, version: Version) -> Definition:
        found = await self._archive().definition(name, version)
        if found is None:
            raise NotFound(no_such_version(name, version))
        return found

    async def _remove_alias(self, name: str, alias: str) -> None:
        path = f"definitions/{quote(name, safe='')}/aliases/{quote(alias, safe='')}"
        await self._transport.send("DELETE", path, Any)

    def _archive(self) -> ServerArchive:
        return ServerArchive(self._transport)
