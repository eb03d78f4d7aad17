"""Shares of a scarce resource of a process, such as threads: no workflow may hold all of it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


def share_of(capacity: int, share: float) -> int:
    """Return how many of ``capacity`` one workflow may hold.

    At least 1. The rest, kept for the others, may be 0.
    """
    held_back = int(capacity * (1 - share) + 1e-9)
    return max(capacity - held_back, 1)


class FairQueue(Generic[T]):
    """What waits for one of ``capacity`` slots, of which one workflow may hold a share.

    Workflows take turns, within a workflow it goes in order. The queue only decides: it has no lock.
    """

    def __init__(self, capacity: int, share: float) -> None:
        self.capacity = capacity
        self.most = share_of(capacity, share)
        self.total = 0
        """Slots in use."""
        self._held: dict[str, int] = {}
        self._waiting: dict[str, deque[T]] = {}

    def held(self, workflow: str) -> int:
        return self._held.get(workflow, 0)

    def enter(self, workflow: str, item: T) -> bool:
        """Take a slot if one is free for the workflow and nothing of it waits; otherwise add the item to the queue.
        Return True if the slot was taken.
        """
        if self._has_room(workflow) and workflow not in self._waiting:
            self._take(workflow)
            return True
        self._waiting.setdefault(workflow, deque()).append(item)
        return False

    def leave(self, workflow: str) -> None:
        """Return a slot."""
        self.total -= 1
        left = self._held[workflow] - 1
        if left:
            self._held[workflow] = left
        else:
            del self._held[workflow]

    def next(self) -> T | None:
        """Take a slot for the item that may go next, and return it."""
        if not self._waiting:
            return None
        workflow = next(filter(self._has_room, self._waiting), None)
        if workflow is None:
            return None
        line = self._waiting.pop(workflow)
        item = line.popleft()
        if line:
            self._waiting[workflow] = line  # behind the others
        self._take(workflow)
        return item

    def clear(self) -> list[T]:
        """Return all that waits, and forget it."""
        items = [item for line in self._waiting.values() for item in line]
        self._waiting.clear()
        return items

    def _has_room(self, workflow: str) -> bool:
        return self.total < self.capacity and self._held.get(workflow, 0) < self.most

    def _take(self, workflow: str) -> None:
        self.total += 1
        self._held[workflow] = self._held.get(workflow, 0) + 1


class FairSlots:
    """Slots for one event loop, by the rules of `FairQueue`."""

    def __init__(self, capacity: int, share: float) -> None:
        self._queue: FairQueue[tuple[str, asyncio.Future[None]]] = FairQueue(capacity, share)

    def held(self, workflow: str) -> int:
        return self._queue.held(workflow)

    async def acquire(self, workflow: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        if self._queue.enter(workflow, (workflow, turn)):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(workflow)
            raise

    def release(self, workflow: str) -> None:
        self._queue.leave(workflow)
        while (following := self._queue.next()) is not None:
            waiting, turn = following
            if turn.done():
                self._queue.leave(waiting)  # it was cancelled
            else:
                turn.set_result(None)
