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
SENT_AHEAD = 30.0
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
        self._on_due: Callable[[float], None] | None = None
        self._on_outbox: Callable[[], None] | None = None
        self._on_round: Callable[[], None] | None = None
        self._ended: Callable[[str], None] | None = None
        self._sent_due: float | None = None
        self._watchers: dict[str, float] = {}
        """The time until which each of the other processes needs endings."""
        self._watch_sent_at = -WATCHED
        self._endings: list[str] = []
        self._has_outbox_entries = False
        listener.on_message = self._handle
        listener.on_connect, listener.on_disconnect = self._connected, broker.disconnected

    def look_every(self) -> float:
        return LOOK_EVERY if self.listener.working else LOOK_ALONE

    # -- sending ------------------------------------------------------------------------------------------------

    def announce_due(self, at: float) -> None:
        """Send only what is due before everything sent and still pending: the process that fires that finds this."""
        now = self.ledger.now()
        if self._on_due is not None or at > now + SENT_AHEAD:
            return
        if self._sent_due is None or at < self._sent_due or self._sent_due < now:
            self._sent_due = at
            self.listener.send(Message(self.listener.name, due=at))

    def announce_outbox(self) -> None:
        if self._on_outbox is None and not self._has_outbox_entries:
            self._has_outbox_entries = True
            asyncio.get_running_loop().call_soon(self._send_outbox)

    def _send_outbox(self) -> None:
        self._has_outbox_entries = False
        self.listener.send(Message(self.listener.name, owed=True))

    def announce_ended(self, execution: str) -> None:
        if not self._watchers:
            return
        if not self._endings:
            asyncio.get_running_loop().call_soon(self._send_endings)
        self._endings.append(execution)

    def _send_endings(self) -> None:
        """Send the endings of one batch together, if any process still needs them."""
        ended, self._endings = tuple(self._endings), []
        now = _clock()
        self._watchers = {name: until for name, until in self._watchers.items() if until > now}
        if self._watchers:
            self.listener.send(Message(self.listener.name, ended=ended))

    def announce_round(self) -> None:
        self.listener.send(Message(self.listener.name, tended=True))

    def watch_endings(self) -> None:
        now = _clock()
        if self.listener.working and now - self._watch_sent_at > WATCHED / 2:
            self._watch_sent_at = now
            self.listener.send(Message(self.listener.name, watches=True))

    # -- receiving ----------------------------------------------------------------------------------------------

    def on_upkeep(
        self, due: Callable[[float], None], outbox: Callable[[], None], round: Callable[[], None]
    ) -> None:
        self._on_due, self._on_outbox, self._on_round = due, outbox, round

    def on_ending(self, ended: Callable[[str], None]) -> None:
        self._ended = ended

    def _connected(self) -> None:
        self._watch_sent_at = -WATCHED
        self.broker.connected()

    def _handle(self, message: Message) -> None:
        self.broker.handle(message)
        if message.watches:
            self._watchers[message.sender] = _clock() + WATCHED
        if message.hello:
            self._watch_sent_at = -WATCHED
        if message.due is not None and self._on_due is not None:
            self._on_due(message.due)
        if message.owed and self._on_outbox is not None:
            self._on_outbox()
        if message.tended and self._on_round is not None:
            self._on_round()
        if self._ended is not None:
            for execution in message.ended:
                self._ended(execution)


def _clock() -> float:
    return asyncio.get_running_loop().time()
