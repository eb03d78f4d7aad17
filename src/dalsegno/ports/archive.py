"""Definitions, finished executions, history and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from dalsegno.model.definition import Definition, Version
from dalsegno.model.event import Event
from dalsegno.model.execution import Ending, ExecutionKind, ExecutionState, ExecutionView


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
    created_since: float | None = None
    created_until: float | None = None
    """Before this moment."""
    ended_since: float | None = None
    ended_until: float | None = None
    text: str | None = None
    """Found as :mod:`dalsegno.model.search` says; by the words of its error soon after it failed."""


class Place(Struct, frozen=True, gc=False):
    """Where a page ended, whether or not the execution there still exists."""

    created_at: float
    id: str


class Archive(Protocol):
    """
    * **A1 immutable**: a definition's name and version name one content for ever; the same content under the same
      name is the same version.
    * **A2 resumable history**: ``events`` returns consecutive events after any number, in order.
    * **A3 newest first**: ``executions`` pages through a stable order; no execution is listed twice or passed over
      because others were started meanwhile.
    * **A4 retention**: ``remove_ended`` and ``remove`` remove whole executions (history, outputs, blobs), and only
      ended ones. One whose ending is still to be told (its outbox entry ``ended`` is not delivered) stays until it was.
    * **A5 aliases**: an alias means one version of its workflow until it is set again or removed, whichever version is
      the current one; ``latest`` always means the current one.
    * **A6 guarded removal**: a definition goes only when no unfinished execution runs it and no alias means it. Its
      version's number is never given again.
    """

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        """Stores a version, or finds the one with this hash; either way it becomes the current one."""

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        """That version: by its number, by an alias (``latest`` is the current one), or without either the current one.
        A text that can be neither is InvalidInput."""

    async def definition_by_hash(self, hash: str) -> Definition | None: ...

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]:
        """The current version of each name that comes after this one, by name and without their sources. A page costs
        the same however many names there are."""

    async def versions(self, name: str) -> list[Definition]:
        """All versions of a name, newest first."""

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        """Lets an alias mean this version from now on, whatever it meant before. A version that does not exist is
        NotFound; an alias that cannot be one, ``latest`` among them, is InvalidInput."""

    async def remove_alias(self, name: str, alias: str) -> bool:
        """Whether there was one."""

    async def aliases(self, name: str) -> dict[str, int]:
        """The versions that the aliases of a name mean, by alias; without ``latest``."""

    async def remove_definition(self, name: str, version: int | None = None) -> int:
        """Removes one version, or all of them with the scripts that are part of them; how many versions went. What
        still needs it is named in a Conflict; one that does not exist is NotFound."""

    async def execution(self, execution: str) -> ExecutionView | None: ...

    async def outline(self, execution: str) -> ExecutionView | None:
        """The same without ``input``, ``output`` and ``context``: as cheap for an output of 64 MiB as for none."""

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        """The states of those of the named executions that exist: cheap to ask again and again."""

    async def endings(self, executions: Sequence[str]) -> dict[str, Ending]:
        """How those of the named executions ended that have."""

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Outlines, newest first; ``before`` is the last id of the previous page, or its place."""

    async def count_tagged(self, name: str, value: str, most: int) -> int:
        """How many stored executions have this tag, counted up to ``most``: as cheap as they are few."""

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def newest_events(self, executions: Sequence[str]) -> dict[str, int]:
        """Number of the newest event of those of the named executions that exist: cheap to ask again and again."""

    async def is_told(self, execution: str) -> bool:
        """Whether it has ended and nothing will be added to its history any more. An execution that ends with nodes
        still to run is told when the sweep has recorded what became of them."""

    async def remove_ended(
        self, before: float, limit: int = 500, states: Sequence[ExecutionState] = ()
    ) -> int:
        """Those that ended before this moment (in one of these states), oldest ending first; how many went."""

    async def remove(self, executions: Sequence[str]) -> list[str]:
        """Those of the named ones that could be removed."""
