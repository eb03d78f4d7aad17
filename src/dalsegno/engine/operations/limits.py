"""Limits by key in one process: waking tokens when a rate permits them, and the operators' interface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dalsegno.errors import BadConfiguration, InvalidInput
from dalsegno.model.limits import LONGEST_KEY, Allowance, LimitView, parse_rate
from dalsegno.model.transition import ReadyToken
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.limits import Limits
from dalsegno.ports.stack import Stack

MOST = 1_000_000
NO_TOKEN = ReadyToken("", "", "", 0)
"""An announcement is only a hint; claims find the ready tokens."""


def follow_openings(stack: Stack, timers: Callable[[float], None] | None) -> None:
    """Wake tokens held back by a rate when it permits them. ``timers`` receives the time of each opening; without
    timers in this process an alarm does this.
    """
    if stack.limits is not None:
        stack.limits.on_opening(timers or Alarm(stack.ledger, stack.broker).set)


class Alarm:
    """A timer that wakes this process's worker at the earliest of the requested times."""

    def __init__(self, ledger: Ledger, broker: Broker) -> None:
        self._ledger = ledger
        self._broker = broker
        self._at: float | None = None
        self._running: set[asyncio.Task[None]] = set()

    def set(self, at: float) -> None:
        if self._at is not None and self._at <= at:
            return
        self._at = at
        run = asyncio.get_running_loop().create_task(self._fire(at))
        self._running.add(run)
        run.add_done_callback(self._running.discard)

    async def _fire(self, at: float) -> None:
        await asyncio.sleep(max(at - self._ledger.now(), 0))
        if self._at == at:
            self._at = None
        await self._broker.announce([NO_TOKEN])


class OperatorLimits:
    """The limits as operators read and set them. Invalid requests are refused with the reason."""

    def __init__(self, stack: Stack) -> None:
        if stack.limits is None:
            raise BadConfiguration(
                f"the store {stack.url} does not support limits, since its adapter has none; use SQLite, "
                "PostgreSQL or memory, or implement the port `Limits` and pass it to the `Stack`"
            )
        self._limits: Limits = stack.limits
        self._broker = stack.broker

    async def set(self, key: str, concurrency: int | None = None, rate: str | None = None) -> LimitView:
        """Set the limit of a key. A value that is not given falls back to the definitions."""
        await self._limits.set(check_key(key), allowance(concurrency, rate))
        await self._broker.announce([NO_TOKEN])
        return await self.get(key)

    async def remove(self, key: str) -> bool:
        existed = await self._limits.remove(check_key(key))
        await self._broker.announce([NO_TOKEN])
        return existed

    async def get(self, key: str) -> LimitView:
        return await self._limits.get(check_key(key))

    async def page(self, after: str = "", limit: int = 100) -> list[LimitView]:
        return await self._limits.page(after, limit)


def check_key(key: str) -> str:
    if not key or len(key) > LONGEST_KEY:
        raise InvalidInput(f"a limit's key has 1 to {LONGEST_KEY} characters, not {len(key):,}")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidInput("a limit's key contains a character that is not valid Unicode") from None
    return key


def allowance(concurrency: int | None, rate: str | None) -> Allowance:
    if concurrency is None and rate is None:
        raise InvalidInput("give a concurrency, a rate or both; to delete a limit, remove it")
    if concurrency is not None and not 0 <= concurrency <= MOST:
        raise InvalidInput(f"the concurrency must be from 0 (nothing starts) to {MOST:,}")
    try:
        return Allowance(concurrency, parse_rate(rate) if rate is not None else None)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
