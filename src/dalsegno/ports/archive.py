"""Definitions, finished executions, history and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dalsegno.model.definition import Definition
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionState, ExecutionView


class ExecutionFilter(Struct, frozen=True):
    workflow: str | None = None
    states: tuple[ExecutionState, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    parent: str | None = None


class Archive(Protocol):
    """
    * **A1 immutable**: a definition's name and version name one content for ever; the same content under the same
      name is the same version.
    * **A2 resumable history**: ``events`` returns consecutive events after any number, in order.
    * **A3 newest first**: ``executions`` pages through a stable order; no execution is listed twice or passed over
      because others were started meanwhile.
    * **A4 retention**: ``remove_ended`` removes whole executions (history, outputs, blobs), and only ended ones.
    """

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        """Stores a version, or finds the one with this hash; either way it becomes the current one."""

    async def definition(self, name: str, version: int | None = None) -> Definition | None:
        """That version, or the current one."""

    async def definition_by_hash(self, hash: str) -> Definition | None: ...

    async def definitions(self) -> list[Definition]:
        """The current version of every name, by name."""

    async def execution(self, execution: str) -> ExecutionView | None: ...

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        """The states of those of the named executions that exist: cheap to ask again and again."""

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Newest first; ``before`` is the last id of the previous page."""

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def remove_ended(self, before: float, limit: int = 500) -> int: ...
