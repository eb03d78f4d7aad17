"""How executions ended of which only that is known: read from the store, together with all that are named meanwhile."""

from __future__ import annotations

import logging
from asyncio import Task
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeAlias

from dalsegno.engine.background import end, in_background, is_under_way
from dalsegno.errors import NotFound, Unavailable
from dalsegno.model.execution import Ending
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.endings")

READ_AT_ONCE = 50
"""Results may be large."""

Answer: TypeAlias = Ending | Exception
"""How an execution ended, or what whoever waits for that is to raise."""


class EndingReader:
    def __init__(
        self, archive: Archive, is_awaited: Callable[[str], bool], tell: Callable[[str, Answer], None]
    ) -> None:
        self.archive = archive
        self._is_awaited = is_awaited
        self._tell = tell
        self._unread: dict[str, None] = {}
        self._reading: Task[None] | None = None

    def ask(self, execution: str) -> None:
        """It is told soon, unless the store is away or it has not ended: whoever waits looks again."""
        if self._is_awaited(execution):
            self._unread[execution] = None
            if not is_under_way(self._reading):
                self._reading = in_background(self._read_all())

    async def close(self) -> None:
        await end(self._reading)

    async def _read_all(self) -> None:
        while self._unread:
            asked = list(islice(self._unread, READ_AT_ONCE))
            for execution in asked:
                del self._unread[execution]
            await self._read([execution for execution in asked if self._is_awaited(execution)])

    async def _read(self, asked: Sequence[str]) -> None:
        """What cannot be read is told those alone who wait for it."""
        try:
            answers = await self._answers(asked)
        except Unavailable as error:
            logger.debug("cannot read how executions ended (%s); whoever waits looks again, and tells", error)
        except Exception as error:  # noqa: BLE001 - whoever waits raises it
            if len(asked) == 1:
                self._tell(asked[0], error)
            else:
                middle = len(asked) // 2
                await self._read(asked[:middle])
                await self._read(asked[middle:])
        else:
            for execution, answer in answers.items():
                self._tell(execution, answer)

    async def _answers(self, asked: Sequence[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = dict(await self.archive.endings(asked)) if asked else {}
        if missing := [execution for execution in asked if execution not in answers]:
            known = await self.archive.states(missing)
            answers |= {execution: nothing(execution) for execution in missing if execution not in known}
        return answers


def nothing(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")
