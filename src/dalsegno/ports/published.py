"""The port of what executions show while they run: published values, and streams of chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dalsegno.model.published import (
    ChunkWrite,
    Mark,
    PublishedValue,
    Refusal,
    StreamPart,
    StreamView,
    Usage,
    ValueWrite,
)

PARTS = 200
"""Parts of a stream that one call returns at most."""


class PublishedData(Protocol):
    """Published values and streams. Turns write them with their commits (the effects ``PublishValues`` and
    ``AppendChunks``), running tasks by ``publish`` and ``append``.

    * **P1 newest**: of each key there is one value, that of the write applied last; its version grows with every
      write.
    * **P2 with its commit**: what a transition publishes and appends is visible once it is applied, once, and never
      without it.
    * **P3 fenced**: a write of a run that no longer holds its token's lease changes nothing, and is ``lost``.
    * **P4 in order**: the chunks of a stream are numbered 0, 1, 2 … without gaps, in the order in which they were
      appended, and never change. They are read from any offset on.
    * **P5 bounded**: a write beyond the limits of `dalsegno.model.published` changes nothing, and its refusal says
      which limit it met; writes beside it are made.
    * **P6 kept**: values and streams stay after the end of their execution, except ``passing`` values, and are
      removed with it.
    * **P7 runs told apart**: the first chunks that a later run of a task appends after an earlier one say so.
    """

    async def values(self, execution: str) -> list[PublishedValue]:
        """Return the published values, by key."""

    async def marks(self, executions: Sequence[str]) -> dict[str, Mark]:
        """Return a mark for each named execution that has values. Cheap enough for polling."""

    async def publish(self, writes: Sequence[ValueWrite]) -> list[Refusal]:
        """Write values of running tasks, each on its own; return one refusal per write."""

    async def usage(self, execution: str) -> Usage: ...

    async def append(self, writes: Sequence[ChunkWrite], most_stored: int | None = None) -> list[Refusal]:
        """Append chunks of running tasks, each write on its own; return one refusal per write.

        ``most_stored``: the limit of an execution's stored bytes, to which its streams count.
        """

    async def streams(self, execution: str) -> list[StreamView]:
        """Return the streams of an execution, by name."""

    async def lengths(self, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], StreamView]:
        """Return the streams of this list of executions and names that exist. Cheap enough for polling."""

    async def parts(
        self, execution: str, stream: str, offset: int = 0, limit: int = PARTS
    ) -> list[StreamPart]:
        """Return the parts from the one that holds this offset on, in order."""
