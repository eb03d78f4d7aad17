"""PostgresNeighbours: hints about timers, outbox entries and endings, sent to other processes over the listener.

PostgresWatch: the notifications of transactions that belong to no process of ours, where another broker brings work.
"""

from __future__ import annotations

from collections.abc import Callable

from dalsegno.adapters.neighbours import ChannelNeighbours, Message
from dalsegno.adapters.postgres.messaging.broker import PostgresBroker
from dalsegno.adapters.postgres.messaging.listener import Listener
from dalsegno.ports.ledger import Ledger


class PostgresNeighbours(ChannelNeighbours):
    """Receives the listener's messages; those about work go to the broker."""

    def __init__(self, ledger: Ledger, listener: Listener, broker: PostgresBroker) -> None:
        super().__init__(ledger, listener)
        self.broker = broker
        self.listener = listener
        listener.on_message = self._receive
        listener.on_connect, listener.on_disconnect = self._connected, broker.disconnected

    def _connected(self) -> None:
        self.connected()
        self.broker.connected()

    def _receive(self, message: Message) -> None:
        self.broker.handle(message)
        self.handle(message)


class PostgresWatch:
    """What starts inside the transaction of a caller is announced by that transaction, whichever broker there is."""

    def __init__(self, neighbours: PostgresNeighbours) -> None:
        self._neighbours = neighbours

    def on_commit(self, committed: Callable[[], None]) -> None:
        self._neighbours.broker.on_news.append(committed)

    def on_upkeep(self, due: Callable[[float], None], outbox: Callable[[], None]) -> None:
        """Register the callbacks, unless the neighbours have them already."""
        if not self._neighbours.has_upkeep:
            self._neighbours.on_upkeep(due, outbox, lambda: None)
