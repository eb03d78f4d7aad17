"""Shares of a scarce resource of a process, such as threads: no workflow may hold all of it."""

from __future__ import annotations

import asyncio
from collections import deque


def share_of(capacity: int, share: float) -> int:
    """Return how many of ``capacity`` one workflow may hold.

    At least 1. The rest, kept for the others, may be 0.
    """
    held_back = int(capacity * (1 - share) + 1e-9)
    return max(capacity - held_back, 1)


class FairSlots:
    """``capacity`` slots, of which one workflow may hold a share.

    Waiters are served in turns by workflow, within a workflow in their order. For one event loop.
    """

    def __init__(self, capacity: int, share: float) -> None:
        self.capacity = capacity
        self.most = share_of(capacity, share)
        self._held: dict[str, int] = {}
        self._total = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def held(self, workflow: str) -> int:
        return self._held.get(workflow, 0)

    async def acquire(self, workflow: str) -> None:
        if self._has_room(workflow) and workflow not in self._waiting:
            self._take(workflow)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(workflow, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(workflow)
            raise

    def release(self, workflow: str) -> None:
        self._total -= 1
        left = self._held[workflow] - 1
        if left:
            self._held[workflow] = left
        else:
            del self._held[workflow]
        if self._waiting:
            self._serve()

    def _has_room(self, workflow: str) -> bool:
        return self._total < self.capacity and self.held(workflow) < self.most

    def _take(self, workflow: str) -> None:
        self._total += 1
        self._held[workflow] = self.held(workflow) + 1

    def _serve(self) -> None:
        for workflow in list(self._waiting):
            line = self._waiting[workflow]
            while line and line[0].done():
                line.popleft()  # it was cancelled
            if line and self._has_room(workflow):
                line.popleft().set_result(None)
                self._take(workflow)
                if line:  # behind the others
                    self._waiting[workflow] = self._waiting.pop(workflow)
            if not line:
                del self._waiting[workflow]
            if self._total >= self.capacity:
                break
