"""Looking at an execution again and again at little cost: every event is read once, and the store is asked rarely while
nothing happens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from dalsegno.cli.desk import Desk
from dalsegno.model.event import Event

PAGE = 1000
PAGES = 20
"""Read by one look; what a very wide split adds beyond that is read by the next."""
QUIET = 0.5
"""Other processes may move the execution, too: it is looked at this often even if nothing happens here."""


class NewEvents:
    """The history of one execution, a part at a time: what came since it was last asked for."""

    def __init__(self, client: Desk, execution: str) -> None:
        self._client = client
        self._execution = execution
        self._seq = 0

    async def pages(self, *, complete: bool) -> AsyncIterator[list[Event]]:
        """``complete`` reads all there is, however long that takes."""
        read = 0
        while complete or read < PAGES:
            page = await self._client.events(self._execution, self._seq, PAGE)
            if page:
                self._seq = page[-1].seq
                yield page
            if len(page) < PAGE:
                return
            read += 1


class Quiet:
    """Whether what was seen last may still be shown: nothing was committed here since, and it is not old."""

    def __init__(self, client: Desk) -> None:
        self._client = client
        self._commits = -1
        self._at = 0.0

    def over(self) -> bool:
        now, commits = self._client.stack.clock.now(), self._client.committer.transitions
        if commits == self._commits and now - self._at < QUIET:
            return False
        self._commits, self._at = commits, now
        return True
