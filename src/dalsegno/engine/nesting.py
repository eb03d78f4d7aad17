"""Executions that wait for each other: how deep a child stands below its ancestors, and who is below an execution."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from dalsegno.core.orders import StartOrder
from dalsegno.errors import LimitExceeded
from dalsegno.model.execution import ExecutionState, ExecutionView
from dalsegno.ports.archive import Archive, ExecutionFilter

REMEMBERED = 10_000
MOST_BELOW = 50
"""Executions that a look at one includes, those of its children among them."""
DEEPEST_LOOK = 5
UNFINISHED: tuple[ExecutionState, ...] = ("PENDING", "RUNNING", "PAUSED")

Find = Callable[[ExecutionFilter], Awaitable[list[ExecutionView]]]


async def below(find: Find, execution: str, most: int = MOST_BELOW) -> list[ExecutionView]:
    """The unfinished executions that this one waits for, directly or through others: nearest first, as many as a look
    includes."""
    found: list[ExecutionView] = []
    parents = [execution]
    for _ in range(DEEPEST_LOOK):
        children: list[ExecutionView] = []
        for parent in parents:
            where = ExecutionFilter(None, UNFINISHED, parent=parent, relations=("child",))
            children += reversed(await find(where))
            if len(found) + len(children) >= most:
                return [*found, *children][:most]
        found += children
        parents = [child.id for child in children]
    return found


async def is_within(archive: Archive, execution: str, ancestor: str) -> bool:
    """Whether an execution is this one, or one that a look at it includes."""
    for _ in range(DEEPEST_LOOK + 1):
        if execution == ancestor:
            return True
        view = await archive.execution(execution)
        if view is None or view.parent is None:
            return False
        execution = view.parent
    return False


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
