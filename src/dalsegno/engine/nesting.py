"""How deep a child stands below the execution that began it all: everybody above waits for it."""

from __future__ import annotations

from collections import OrderedDict

from dalsegno.core.orders import StartOrder
from dalsegno.errors import LimitExceeded
from dalsegno.ports.archive import Archive

REMEMBERED = 10_000


class Nesting:
    """An execution's parent never changes, so it is looked up once."""

    def __init__(self, archive: Archive, most: int) -> None:
        self._archive = archive
        self._most = most
        self._parents: OrderedDict[str, str | None] = OrderedDict()

    async def above(self, order: StartOrder) -> list[str]:
        """Who waits for the ordered execution, directly or through others, nearest first. One that was merely started
        has nobody above it."""
        line: list[str] = []
        parent = order.parent if order.relation == "child" else None
        while parent is not None and len(line) <= self._most:
            line.append(parent)
            parent = await self._parent_of(parent)
        return line

    def check(self, order: StartOrder, above: list[str]) -> None:
        if len(above) > self._most:
            raise LimitExceeded(
                f"'{order.workflow}' was not started: child workflows that wait for each other are more than "
                f"{self._most} deep (limit child_depth); if it calls itself without end, mend that, "
                "else go through the work in a loop, or start the next one without waiting for it"
            )

    async def _parent_of(self, execution: str) -> str | None:
        if execution in self._parents:
            return self._parents[execution]
        view = await self._archive.execution(execution)
        if view is None:
            return None
        parent = self._parents[execution] = view.parent if view.relation == "child" else None
        if len(self._parents) > REMEMBERED:
            self._parents.popitem(last=False)
        return parent
