"""Hints between the processes of one store, for every adapter that can send a message to all of them.

The same rules apply to each channel: notifications of PostgreSQL and pub/sub of Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

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


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the process ``sender``. Unused fields are empty."""

    sender: str
    hello: bool = False
    """It has just connected: idle processes report again."""
    idle: tuple[str, ...] = ()
    """Queues for which it waits; ``since``: for how many seconds, at least."""
    since: float = 0.0
    wake: tuple[str, ...] = ()
    """Processes that should poll for work."""
    due: float | None = None
    owed: bool = False
    tended: bool = False
    """It has polled for overdue work of others: another poll is not needed at once."""
    watches: bool = False
    """It asks for endings and answers."""
    ended: tuple[str, ...] = ()
    answered: tuple[str, ...] = ()
    """Executions that answered a request."""
    news: bool = False
    """Something is ready, and it is not known for which process: all that wait look."""
    busy: bool = False
    """It waits for nothing any more."""


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode


def summary_of(sender: str, messages: Iterable[Message]) -> Message | None:
    """Return the unsent messages that are still useful; None if there are none. Endings are not: a process that
    waits for one polls soon.
    """
    message_list = list(messages)
    news = any(message.news or message.wake for message in message_list)
    owed = any(message.owed for message in message_list)
    due = min((message.due for message in message_list if message.due is not None), default=None)
    return Message(sender, news=news, owed=owed, due=due) if news or owed or due is not None else None


class Channel(Protocol):
    """``working``: messages are known to arrive."""

    name: str
    """The sender of this process's messages."""

    @property
    def working(self) -> bool: ...

    def send(self, message: Message) -> None: ...


class ChannelNeighbours:
    """Sends hints over the channel, and passes those of others on. Its owner calls ``handle`` with each message."""

    def __init__(self, ledger: Ledger, channel: Channel) -> None:
        self.ledger = ledger
        self.channel = channel
        self._on_due: Callable[[float], None] | None = None
        self._on_outbox: Callable[[], None] | None = None
        self._on_round: Callable[[], None] | None = None
        self._ended: Callable[[str], None] | None = None
        self._sent_due: float | None = None
        self._watchers: dict[str, float] = {}
        """The time until which each of the other processes needs endings."""
        self._watch_sent_at = -WATCHED
        self._answered: Callable[[str], None] | None = None
        self._endings: list[str] = []
        self._answers: dict[str, None] = {}
        self._has_outbox_entries = False

    def look_every(self) -> float:
        return LOOK_EVERY if self.channel.working else LOOK_ALONE

    # -- sending ------------------------------------------------------------------------------------------------

    def announce_due(self, at: float) -> None:
        """Send only what is due before everything sent and still pending: the process that fires that finds this."""
        now = self.ledger.now()
        if self._on_due is not None or at > now + SENT_AHEAD:
            return
        if self._sent_due is None or at < self._sent_due or self._sent_due < now:
            self._sent_due = at
            self.channel.send(Message(self.channel.name, due=at))

    def announce_outbox(self) -> None:
        if self._on_outbox is None and not self._has_outbox_entries:
            self._has_outbox_entries = True
            asyncio.get_running_loop().call_soon(self._send_outbox)

    def _send_outbox(self) -> None:
        self._has_outbox_entries = False
        self.channel.send(Message(self.channel.name, owed=True))

    def announce_ended(self, execution: str) -> None:
        if self._watchers:
            self._send_soon()
            self._endings.append(execution)

    def announce_answered(self, execution: str) -> None:
        if self._watchers:
            self._send_soon()
            self._answers[execution] = None

    def _send_soon(self) -> None:
        if not self._endings and not self._answers:
            asyncio.get_running_loop().call_soon(self._send_endings)

    def _send_endings(self) -> None:
        """Send the endings and answers of one batch together, if any process still needs them."""
        ended, self._endings = tuple(self._endings), []
        answered, self._answers = tuple(self._answers), {}
        now = _clock()
        self._watchers = {name: until for name, until in self._watchers.items() if until > now}
        if self._watchers:
            self.channel.send(Message(self.channel.name, ended=ended, answered=answered))

    def announce_round(self) -> None:
        self.channel.send(Message(self.channel.name, tended=True))

    def watch_endings(self) -> None:
        now = _clock()
        if self.channel.working and now - self._watch_sent_at > WATCHED / 2:
            self._watch_sent_at = now
            self.channel.send(Message(self.channel.name, watches=True))

    # -- receiving ----------------------------------------------------------------------------------------------

    def on_upkeep(
        self, due: Callable[[float], None], outbox: Callable[[], None], round: Callable[[], None]
    ) -> None:
        self._on_due, self._on_outbox, self._on_round = due, outbox, round

    @property
    def has_upkeep(self) -> bool:
        """Whether a process's timers and deliveries listen here."""
        return self._on_due is not None

    def on_ending(self, ended: Callable[[str], None]) -> None:
        self._ended = ended

    def on_answer(self, answered: Callable[[str], None]) -> None:
        self._answered = answered

    def connected(self) -> None:
        """Handle a new connection of the channel: a request for endings may not have arrived."""
        self._watch_sent_at = -WATCHED

    def handle(self, message: Message) -> None:
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
        if self._answered is not None:
            for execution in message.answered:
                self._answered(execution)


def _clock() -> float:
    return asyncio.get_running_loop().time()
