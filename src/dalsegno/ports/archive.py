"""Definitions, finished executions, history and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dalsegno.model.definition import Definition, Version
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionKind, ExecutionState, ExecutionView


class ExecutionFilter(Struct, frozen=True):
    workflow: str | None = None
    states: tuple[ExecutionState, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    parent: str | None = None
    kinds: tuple[ExecutionKind, ...] = ()
    """Empty: all but schedules."""
    relations: tuple[str, ...] = ()
    awaits_signal: bool = False
    """Only those of which a node waits for a signal; as cheap as they are few."""


class Archive(Protocol):
    """
    * **A1 immutable**: a definition's name and version name one content for ever; the same content under the same
      name is the same version.
    * **A2 resumable history**: ``events`` returns consecutive events after any number, in order.
    * **A3 newest first**: ``executions`` pages through a stable order; no execution is listed twice or passed over
      because others were started meanwhile.
    * **A4 retention**: ``remove_ended`` removes whole executions (history, outputs, blobs), and only ended ones. One
      whose ending is still to be told (its outbox entry ``ended`` is not delivered) stays until it was.
    * **A5 aliases**: an alias means one version of its workflow until it is set again or removed, whichever version is
      the current one; ``latest`` always means the current one.
    """

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        """Stores a version, or finds the one with this hash; either way it becomes the current one."""

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        """That version: by its number, by an alias (``latest`` is the current one), or without either the current one.
        A text that can be neither is InvalidInput."""

    async def definition_by_hash(self, hash: str) -> Definition | None: ...

    async def definitions(self) -> list[Definition]:
        """The current version of every name, by name."""

    async def versions(self, name: str) -> list[Definition]:
        """All versions of a name, newest first."""

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        """Lets an alias mean this version from now on, whatever it meant before. A version that does not exist is
        NotFound; an alias that cannot be one, ``latest`` among them, is InvalidInput."""

    async def remove_alias(self, name: str, alias: str) -> bool:
        """Whether there was one."""

    async def aliases(self, name: str) -> dict[str, int]:
        """The versions that the aliases of a name mean, by alias; without ``latest``."""

    async def execution(self, execution: str) -> ExecutionView | None: ...

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        """The states of those of the named executions that exist: cheap to ask again and again."""

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Newest first; ``before`` is the last id of the previous page."""

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def remove_ended(self, before: float, limit: int = 500) -> int: ...
