"""PostgresNeighbours: hints about timers, outbox entries and endings, sent to other processes over the listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dalsegno.adapters.postgres.messaging.broker import PostgresBroker
from dalsegno.adapters.postgres.messaging.listener import Listener, Message
from dalsegno.ports.ledger import Ledger

LOOK_EVERY = 20.0
"""Seconds between two polls of a timer or outbox loop, unless it hears that another process has polled. A little
more than the distance of two reconciler rounds, which include a poll: so mostly theirs are the only ones.
"""
TOLD_AHEAD = 30.0
"""Only timers due sooner are sent: later ones are found by a poll."""
LOOK_ALONE = 5.0
"""The poll interval if messages do not arrive."""
WATCHED = 15.0
"""Seconds for which a process that waits for endings gets them; it repeats its request after half of that."""


class PostgresNeighbours:
    """Receives the listener's messages; those about work go to the broker."""

    def __init__(self, ledger: Ledger, listener: Listener, broker: PostgresBroker) -> None:
        self.ledger = ledger
        self.listener = listener
        self.broker = broker
        self._due: Callable[[float], None] | None = None
        self._owed: Callable[[], None] | None = None
        self._tended: Callable[[], None] | None = None
        self._ended: Callable[[str], None] | None = None
        self._told_due: float | None = None
        self._watchers: dict[str, float] = {}
        """Until when each of the other processes wants endings."""
        self._said_watching = -WATCHED
        self._endings: list[str] = []
        self._owes = False
        listener.heard, listener.came, listener.gone = self._hear, self._come, broker.gone

    def look_every(self) -> float:
        return LOOK_EVERY if self.listener.working else LOOK_ALONE

    # -- sending ------------------------------------------------------------------------------------------------

    def tell_due(self, at: float) -> None:
        """Send only what is due before everything sent and still pending: the process that fires that finds this."""
        now = self.ledger.now()
        if self._due is not None or at > now + TOLD_AHEAD:
            return
        if self._told_due is None or at < self._told_due or self._told_due < now:
            self._told_due = at
            self.listener.send(Message(self.listener.name, due=at))

    def tell_owed(self) -> None:
        if self._owed is None and not self._owes:
            self._owes = True
            asyncio.get_running_loop().call_soon(self._send_owed)

    def _send_owed(self) -> None:
        self._owes = False
        self.listener.send(Message(self.listener.name, owed=True))

    def tell_ended(self, execution: str) -> None:
        if not self._watchers:
            return
        if not self._endings:
            asyncio.get_running_loop().call_soon(self._send_endings)
        self._endings.append(execution)

    def _send_endings(self) -> None:
        """Send the endings of one batch together, if any process still wants them."""
        ended, self._endings = tuple(self._endings), []
        now = _clock()
        self._watchers = {name: until for name, until in self._watchers.items() if until > now}
        if self._watchers:
            self.listener.send(Message(self.listener.name, ended=ended))

    def tell_tended(self) -> None:
        self.listener.send(Message(self.listener.name, tended=True))

    def watch_endings(self) -> None:
        now = _clock()
        if self.listener.working and now - self._said_watching > WATCHED / 2:
            self._said_watching = now
            self.listener.send(Message(self.listener.name, watches=True))

    # -- receiving ----------------------------------------------------------------------------------------------

    def hear_schedules(
        self, due: Callable[[float], None], owed: Callable[[], None], tended: Callable[[], None]
    ) -> None:
        self._due, self._owed, self._tended = due, owed, tended

    def hear_endings(self, ended: Callable[[str], None]) -> None:
        self._ended = ended

    def _come(self) -> None:
        self._said_watching = -WATCHED
        self.broker.came()

    def _hear(self, message: Message) -> None:
        self.broker.hear(message)
        if message.watches:
            self._watchers[message.sender] = _clock() + WATCHED
        if message.hello:
            self._said_watching = -WATCHED
        if message.due is not None and self._due is not None:
            self._due(message.due)
        if message.owed and self._owed is not None:
            self._owed()
        if message.tended and self._tended is not None:
            self._tended()
        if self._ended is not None:
            for execution in message.ended:
                self._ended(execution)


def _clock() -> float:
    return asyncio.get_running_loop().time()
