"""The listener: one connection of its own, over which the processes on one database tell each other what is new.

Messages are sent by NOTIFY in tiny transactions of their own, never inside a commit: of transactions with a NOTIFY,
PostgreSQL lets one commit at a time. What gathers while one is on its way goes out with the next. Nothing depends on a
message: a lost connection is opened again, with growing pauses, and whoever waits meanwhile looks by himself.

A connection may also die without a sign: a host lost its power, an address moved. So when nothing was heard for a while
the server is asked, and has to answer.
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
from dalsegno.adapters.postgres.naming import name_of
from dalsegno.adapters.postgres.servers import connect
from dalsegno.adapters.postgres.ways import connect_alone, naming

logger = logging.getLogger("dalsegno.postgres")

CHANNEL = "dalsegno"
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
DEAF_PAUSE = 300.0
"""Until a connection that brings no messages is tried again, at most: at first it may only have been slow."""
ECHO_SECONDS = 2.0
"""In which a message to oneself must come back."""
LONGEST_SILENCE = 30.0
"""After so many seconds in which nothing was heard the server is asked whether it is still there."""
ANSWER_SECONDS = 10.0
"""In which it has to answer whatever it is asked."""
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, text) FROM unnest($2::text[]) AS text
"""
"""Nothing depends on a message, so the disk is not waited for: in this transaction alone, for a pooler gives the
session to others next."""
BROKEN = (asyncpg.PostgresError, *UNREACHABLE)
REMIND_AFTER = 60.0
"""Seconds between two warnings about the same loss."""


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


class Loss:
    """PostgreSQL out of the listener's reach: told of when it begins, now and then while it lasts, and when it is over;
    not with every try. The engine tells of the store by itself. That may be there all the while: a listener may have
    a URL of its own."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told_at = 0.0

    def failed(self, error: Exception) -> None:
        now = _clock()
        if self._since is None:
            self._since = now
            self._warn("the listener lost PostgreSQL", error)
        elif now - self._told_at >= REMIND_AFTER:
            self._warn(f"the listener lost PostgreSQL {now - self._since:.0f} s ago", error)
        else:
            logger.debug("the listener does not reach PostgreSQL (%s); trying again", _told(error))

    def end(self) -> None:
        if self._since is not None:
            logger.info("PostgreSQL answers the listener again, after %.1f s", _clock() - self._since)
            self._since = None

    def _warn(self, what: str, error: Exception) -> None:
        self._told_at = _clock()
        logger.warning("%s (%s); trying again", what, _told(error))


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
        self._heard_at = 0.0
        self._pause = FIRST_PAUSE
        self._loss = Loss()
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
        while True:
            try:
                if not await self._serve():
                    self._pause = min(self._pause * 4, DEAF_PAUSE)
            except BROKEN as error:
                self._loss.failed(error)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(self._pause)

    async def _serve(self) -> bool:
        """Until the connection is lost. False at once where it brings no messages."""
        self._lost = asyncio.Event()
        connection = await connect_alone(self.url, name_of(self.url, "listener"), ANSWER_SECONDS)
        if connection is None:  # a subscription would stay behind in a session that others use next
            self._warn_deaf()
            return False
        try:
            connection.add_termination_listener(lambda _connection: self._hang_up())
            await connection.add_listener(CHANNEL, self._receive)
            if not await self._hears_itself():
                self._warn_deaf()
                return False
            self._loss.end()
            self.working, self._warned = True, False
            self._pause, self._heard_at = FIRST_PAUSE, _clock()
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

    def _hang_up(self) -> None:
        self._lost.set()
        self._news.set()

    async def _hears_itself(self) -> bool:
        """Something between may take the subscription and never deliver, as a pooler that is not known for one. So the
        message is sent over a second connection: over the first, the answer to it would bring it along."""
        self._echo = asyncio.get_running_loop().create_future()
        mouth = await connect(
            self.url,
            server_settings=naming(name_of(self.url, "listener")),
            timeout=ANSWER_SECONDS,
            command_timeout=ANSWER_SECONDS,
            statement_cache_size=0,
        )
        try:
            await self._notify(mouth, [Message(self.name)])
        finally:
            mouth.terminate()
        await asyncio.wait([self._echo], timeout=ECHO_SECONDS)
        return self._echo.done()

    def _warn_deaf(self) -> None:
        """The server itself has answered."""
        self._loss.end()
        if not self._warned:
            self._warned = True
            logger.warning(
                "PostgreSQL's wake-ups do not reach this process, as through a pooler; it looks for work every second"
                " instead. Give a direct URL in DALSEGNO_LISTEN to have them."
            )

    # -- messages ---------------------------------------------------------------------------------------------

    async def _speak(self, connection: Any) -> None:
        while not self._lost.is_set():
            await self._wait_for_news(connection)
            self._news.clear()
            messages, self._unsent = self._unsent, []
            if messages and not self._lost.is_set():
                await self._notify(connection, messages)
                self.sent += 1
                self._heard_at = _clock()

    async def _wait_for_news(self, connection: Any) -> None:
        """Raises if the server is gone without having said so."""
        while not self._news.is_set():
            try:
                async with asyncio.timeout_at(self._heard_at + LONGEST_SILENCE):
                    await self._news.wait()
            except TimeoutError:
                if _clock() - self._heard_at >= LONGEST_SILENCE:  # else somebody spoke meanwhile
                    await connection.execute("SELECT 1")
                    self._heard_at = _clock()

    async def _notify(self, connection: Any, messages: list[Message]) -> None:
        """All in one transaction; PostgreSQL leaves out what is said twice."""
        texts = [text for message in messages for text in _texts(message)]
        await connection.execute(NOTIFY, CHANNEL, texts)

    def _receive(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._heard_at = _clock()
        try:
            message = _decode(payload)
        except msgspec.MsgspecError:
            logger.warning("a message on the channel '%s' is not understood and passed over", CHANNEL)
            return
        if message.sender != self.name:
            self.heard(message)
        elif self._echo is not None and not self._echo.done():
            self._echo.set_result(None)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error) or 'no answer'}"


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
