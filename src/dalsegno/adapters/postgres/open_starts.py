"""Starts that callers make in transactions of their own, as the commits of this process see them.

Until such a caller has ended its transaction nobody knows whether the execution exists, and an insert of the same id
would wait for as long as the caller likes, with everything else of its batch. So the caller holds a lock named after
the id. A commit does not wait for it: the start that meets one is put off, and the others go without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic

from dalsegno.adapters.postgres.store import PostgresStore
from dalsegno.errors import Unavailable
from dalsegno.model.effect import CreateExecution
from dalsegno.model.transition import Transition

PAUSE = 0.05
"""Seconds between two looks where there is nothing else to commit."""
LONGEST_WAIT = 5.0
"""Seconds after which a start that waits for a caller is told so instead."""


class OpenStarts:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._since: dict[str, float] = {}
        """Executions that were found to be started elsewhere, and when first."""

    def waits(self, step: Transition) -> bool:
        """Whether its execution was found to be started elsewhere."""
        return step.execution in self._since

    async def still_among(self, batch: Sequence[Transition]) -> set[str]:
        """Of those that were found before, the ones that are so still. Nothing is asked where there are none."""
        return await self._look([step.execution for step in batch if step.execution in self._since])

    async def among(self, batch: Sequence[Transition]) -> set[str]:
        return await self._look([step.execution for step in batch if creates(step)])

    async def _look(self, executions: list[str]) -> set[str]:
        if not executions:
            return set()
        found = {execution for (execution,) in await self._store.fetch("write.open_starts", executions)}
        for execution in executions:
            if execution in found:
                self._since.setdefault(execution, monotonic())
            else:
                self._since.pop(execution, None)
        return found

    async def wait(self, batch: Sequence[Transition]) -> None:
        """A moment, if nothing else is in the batch: it would come again at once. Not for ever: a caller's transaction
        may stay open for hours."""
        if not all(step.execution in self._since for step in batch):
            return
        now = monotonic()
        late = [step.execution for step in batch if now - self._since[step.execution] > LONGEST_WAIT]
        if late:
            for execution in late:
                self._since.pop(execution, None)
            raise Unavailable(
                f"a transaction that is still open starts execution '{late[0]}', too: the start can be sent again"
                " once that has ended"
            )
        await asyncio.sleep(PAUSE)


def created_by(transition: Transition) -> CreateExecution | None:
    first = transition.effects[0] if transition.effects else None
    return first if isinstance(first, CreateExecution) else None


def creates(transition: Transition) -> bool:
    return created_by(transition) is not None
