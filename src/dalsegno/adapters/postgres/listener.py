"""The listener: one connection of its own, over which the processes on one database tell each other what is new.

Messages are sent by NOTIFY in tiny transactions of their own, never inside a commit: of transactions with a NOTIFY,
PostgreSQL lets one commit at a time. What gathers while one is on its way goes out with the next. Nothing depends on a
message: a lost connection is opened again, with growing pauses, and whoever waits meanwhile looks by himself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import asyncpg
import msgspec

from dalsegno.adapters.postgres.errors import UNREACHABLE

logger = logging.getLogger("dalsegno.postgres")

CHANNEL = "dalsegno"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
DEAF_PAUSE = 300.0
"""Until a connection that brings no messages is tried again, at most: at first it may only have been slow."""
ECHO_SECONDS = 2.0
"""In which a message to oneself must come back."""
SESSION = {"application_name": "dalsegno listener"}
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, text) FROM unnest($2::text[]) AS text
"""
"""Nothing depends on a message, so the disk is not waited for: in this transaction alone, for a pooler gives the
session to others next."""
BROKEN = (asyncpg.PostgresError, *UNREACHABLE)


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


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode
NEWS = _encode(Message("", news=True)).decode()
"""What a transaction says that is not this process's to end."""
LARGEST = 7900
"""Bytes; PostgreSQL takes fewer than 8000."""


class Listener:
    """``working``: messages are known to arrive. ``heard`` is called with every message of another process, ``came``
    whenever the connection is there (again)."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = token_hex(6)
        self.working = False
        self.heard: Callable[[Message], None] = lambda message: None
        self.came: Callable[[], None] = lambda: None
        self.gone: Callable[[], None] = lambda: None
        self.sent = 0
        self._unsent: list[Message] = []
        self._news = asyncio.Event()
        self._lost = asyncio.Event()
        self._echo: asyncio.Future[None] | None = None
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def send(self, message: Message) -> None:
        """Soon. While nobody can be reached it is forgotten."""
        if self.working:
            self._unsent.append(message)
            self._news.set()

    # -- the connection ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                hears = await self._serve()
                pause = FIRST_PAUSE if hears else min(pause * 4, DEAF_PAUSE)
            except BROKEN as error:
                logger.warning(
                    "the listener lost PostgreSQL (%s: %s); trying again", type(error).__name__, error
                )
                pause = min(pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _serve(self) -> bool:
        """Until the connection is lost. False at once where it brings no messages."""
        self._lost = asyncio.Event()
        connection = await self._connect()
        try:
            connection.add_termination_listener(lambda _connection: self._hang_up())
            await connection.add_listener(CHANNEL, self._receive)
            if not await self._hears_itself():
                self._warn_deaf()
                return False
            self.working, self._warned = True, False
            self.send(Message(self.name, hello=True))
            self.came()
            await self._speak(connection)
            return True
        finally:
            was_working, self.working = self.working, False
            self._unsent.clear()
            connection.terminate()
            if was_working:
                self.gone()

    async def _connect(self) -> Any:
        return await asyncpg.connect(
            self.url, server_settings=SESSION, timeout=10, command_timeout=30, statement_cache_size=0
        )

    def _hang_up(self) -> None:
        self._lost.set()
        self._news.set()

    async def _hears_itself(self) -> bool:
        """A pooler that gives each transaction another connection takes the subscription and never delivers. So the
        message is sent over a second connection: over the first, the answer to it would bring it along."""
        self._echo = asyncio.get_running_loop().create_future()
        mouth = await self._connect()
        try:
            await self._notify(mouth, [Message(self.name)])
            async with asyncio.timeout(ECHO_SECONDS):
                await self._echo
        except TimeoutError:
            return False
        finally:
            mouth.terminate()
        return True

    def _warn_deaf(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "PostgreSQL's wake-ups do not reach this process, as through a pooler in transaction mode; it looks for"
                " work every second instead. Give a direct URL in DALSEGNO_LISTEN to have them."
            )

    # -- messages ---------------------------------------------------------------------------------------------

    async def _speak(self, connection: Any) -> None:
        while not self._lost.is_set():
            await self._news.wait()
            self._news.clear()
            messages, self._unsent = self._unsent, []
            if messages and not self._lost.is_set():
                await self._notify(connection, messages)
                self.sent += 1

    async def _notify(self, connection: Any, messages: list[Message]) -> None:
        """All in one transaction; PostgreSQL leaves out what is said twice."""
        texts = [text for message in messages for text in _texts(message)]
        await connection.execute(NOTIFY, CHANNEL, texts)

    def _receive(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        try:
            message = _decode(payload)
        except msgspec.MsgspecError:
            logger.warning("a message on the channel '%s' is not understood and passed over", CHANNEL)
            return
        if message.sender != self.name:
            self.heard(message)
        elif self._echo is not None and not self._echo.done():
            self._echo.set_result(None)


def _texts(message: Message) -> list[str]:
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
    return [text for half in halves for text in _texts(msgspec.structs.replace(message, **{name: half}))]
