"""What processes on one database say to each other, as the listener sends it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

logger = logging.getLogger("dalsegno.postgres")

CHANNEL = "dalsegno"
LARGEST = 7900
"""Bytes; PostgreSQL takes fewer than 8000."""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """``sender`` is the process that speaks. What is not said is empty."""

    sender: str
    hello: bool = False
    """It has just come: whoever is idle says so again."""
    idle: tuple[str, ...] = ()
    """Queues for which it waits; ``since``: for how many seconds, at least."""
    since: float = 0.0
    wake: tuple[str, ...] = ()
    """Processes that should look for work."""
    due: float | None = None
    owed: bool = False
    tended: bool = False
    """It has looked for what others left behind: nobody need do so again at once."""
    watches: bool = False
    """It wants to be told of endings."""
    ended: tuple[str, ...] = ()
    news: bool = False
    """Something is ready, nobody knows for whom: whoever waits looks."""


def in_short(sender: str, messages: Iterable[Message]) -> Message | None:
    """What is worth saying later of messages that nobody has heard; nothing, if it is of no use any more. Endings are
    not: whoever waits for one looks soon."""
    said = list(messages)
    news = any(message.news or message.wake for message in said)
    owed = any(message.owed for message in said)
    due = min((message.due for message in said if message.due is not None), default=None)
    return Message(sender, news=news, owed=owed, due=due) if news or owed or due is not None else None


_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Message).decode
NEWS = _encode(Message("", news=True)).decode()
"""What a transaction says that is not this process's to end."""


def texts_of(message: Message) -> list[str]:
    """One message, or several where a list in it is too long for one."""
    text = _encode(message)
    if len(text) <= LARGEST:
        return [text.decode()]
    lists = {name: value for name in ("idle", "wake", "ended") if (value := getattr(message, name))}
    name = max(lists, key=lambda each: len(lists[each]))
    middle = len(lists[name]) // 2
    if not middle:
        logger.warning("a message of %d bytes is too long to be sent", len(text))
        return []
    halves = (lists[name][:middle], lists[name][middle:])
    return [text for half in halves for text in texts_of(msgspec.structs.replace(message, **{name: half}))]
