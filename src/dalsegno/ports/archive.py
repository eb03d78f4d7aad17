"""The archive port: definitions, finished executions, history and search."""

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
    """Only executions in which a node waits for a signal; the cost depends on their number alone."""
    created_since: float | None = None
    created_until: float | None = None
    """Before this moment."""
    ended_since: float | None = None
    ended_until: float | None = None
    text: str | None = None
    """Matched as :mod:`dalsegno.model.search` says; words of an error match soon after the failure."""


class Place(Struct, frozen=True, gc=False):
    """The position where a page ended, valid even after its execution is removed."""

    created_at: float
    id: str


class Archive(Protocol):
    """Definitions, executions and their history.

    * **A1 immutable**: a definition's name and version name one content for ever; the same content under the same
      name is the same version.
    * **A2 resumable history**: ``events`` returns consecutive events after any number, in order.
    * **A3 newest first**: ``executions`` pages through a stable order; no execution is listed twice or skipped
      because others were started meanwhile.
    * **A4 retention**: ``remove_ended`` and ``remove`` remove whole executions (history, outputs, blobs), and only
      ended ones. One whose ending is not delivered yet (its outbox entry ``ended``) stays until it is. One whose
      clean-up is unfinished (outbox entry or record ``cleanup``) stays, too, and so does the parent of such a one,
      or of a running one, with the relation ``cleanup``: its state may be needed. So does the parent of an
      unfinished one with the relation ``task``: it owns that task's input.
    * **A5 aliases**: an alias refers to one version of its workflow until it is set again or removed, whichever
      version is the current one; ``latest`` always refers to the current one.
    * **A6 guarded removal**: a definition is removed only if no unfinished execution runs it and no alias refers
      to it. Its version's number is never assigned again.
    """

    async def put_definition(self, name: str, hash: str, kind: str, source: bytes) -> Definition:
        """Store a version, or find the one with this hash; either way it becomes the current one."""

    async def definition(self, name: str, version: Version = None) -> Definition | None:
        """Return a version by its number or by an alias (``latest`` is the current one).

        Without either, the current one. A text that can be neither is InvalidInput.
        """

    async def definition_by_hash(self, hash: str) -> Definition | None: ...

    async def definitions(self, after: str = "", limit: int = 500) -> list[Definition]:
        """Return the current version of each name after this one, by name and without sources.

        A page costs the same however many names there are.
        """

    async def versions(
        self, name: str, limit: int | None = None, before: int | None = None
    ) -> list[Definition]:
        """Return versions of a name, newest first and without sources; large sources do not slow it down.

        ``before``: only earlier ones than this.
        """

    async def version_of(self, name: str, hash: str | None = None) -> int | None:
        """Return the number of the version with this content, or without ``hash`` of the current one.

        No source is read.
        """

    async def count_adopted(self, most: int) -> int:
        """Return how many definitions are stored that messages of other programs carried, counted up to ``most``."""

    async def set_alias(self, name: str, alias: str, version: int) -> None:
        """Point an alias to this version; it replaces an earlier target.

        A version that does not exist is NotFound; an invalid alias, ``latest`` among them, is InvalidInput.
        """

    async def remove_alias(self, name: str, alias: str) -> bool:
        """Remove an alias. Return True if there was one."""

    async def aliases(self, name: str) -> dict[str, int]:
        """Return the versions that a name's aliases point to, by alias; without ``latest``."""

    async def remove_definition(self, name: str, version: int | None = None) -> int:
        """Remove one version, or all of them with the scripts that are part of them; return how many were removed.

        A version still needed is a Conflict that names what needs it; one that does not exist is NotFound.
        """

    async def execution(self, execution: str) -> ExecutionView | None: ...

    async def outline(self, execution: str) -> ExecutionView | None:
        """Return the execution without ``input``, ``output`` and ``context``; their size does not affect the cost."""

    async def states(self, executions: Sequence[str]) -> dict[str, ExecutionState]:
        """Return the states of the named executions that exist. Cheap enough for polling."""

    async def endings(self, executions: Sequence[str]) -> dict[str, Ending]:
        """Return the endings of the named executions that have ended."""

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Return outlines, newest first; ``before`` is the last id of the previous page, or its place."""

    async def count_tagged(self, name: str, value: str, most: int) -> int:
        """Return how many stored executions have this tag, counted up to ``most``; the cost depends on that number."""

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]: ...

    async def newest_events(self, executions: Sequence[str]) -> dict[str, int]:
        """Return the newest event number of each named execution that exists. Cheap enough for polling."""

    async def is_told(self, execution: str) -> bool:
        """Return True if the execution has ended and its history is complete.

        If nodes were still to run when it ended, the history is complete once the sweep has recorded their end.
        """

    async def remove_ended(
        self, before: float, limit: int = 500, states: Sequence[ExecutionState] = ()
    ) -> int:
        """Remove executions that ended before this moment (in one of these states); return how many.

        The oldest endings come first.
        """

    async def remove(self, executions: Sequence[str]) -> list[str]:
        """Remove the named executions; return those that could be removed."""
