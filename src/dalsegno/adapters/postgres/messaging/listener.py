"""The listener: one connection of its own for messages between the processes on one database.

- Messages are sent by NOTIFY in small transactions of their own, never inside a commit: PostgreSQL commits
  transactions with a NOTIFY one at a time. Messages that arrive while one is being sent go out with the next.
- Nothing depends on a message: a lost connection is opened again, with growing pauses, and waiting processes poll
  meanwhile.
- Messages without a connection are sent in short form when there is one, or as this process's last message: a
  program that starts one execution and ends may be gone before its listener is connected.
- A connection may die without an error: a host lost its power, an address moved. So after a silence the server is
  queried, and has to answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import asyncpg
import msgspec

from dalsegno.adapters.neighbours import Message, decode, encode, summary_of
from dalsegno.adapters.postgres.connections import connect, connect_alone, name_of, naming
from dalsegno.adapters.postgres.errors import UNREACHABLE

CHANNEL = "dalsegno"
LARGEST = 7900
"""Bytes; PostgreSQL takes fewer than 8000."""


NEWS = encode(Message("", news=True)).decode()
"""The message of a transaction that this process does not end."""


def texts_of(message: Message) -> list[str]:
    """Return one message, or several if a list in it is too long for one."""
    text = encode(message)
    if len(text) <= LARGEST:
        return [text.decode()]
    lists = {name: value for name in ("idle", "wake", "ended") if (value := getattr(message, name))}
    name = max(lists, key=lambda each: len(lists[each]))
    middle = len(lists[name]) // 2
    if not middle:
        logger.warning("a message of %d bytes is too long to be sent", len(text))
        return []
    halves = (lists[name][:middle], lists[name][middle:])
    return [text for part in halves for text in texts_of(msgspec.structs.replace(message, **{name: part}))]


logger = logging.getLogger("dalsegno.postgres")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
UNDELIVERED_PAUSE = 300.0
"""Longest time until a connection that brings no messages is tried again: at first it may only have been slow."""
ECHO_SECONDS = 2.0
"""Within this time a message to oneself must come back."""
LONGEST_SILENCE = 30.0
"""Seconds of silence after which the server is queried."""
ANSWER_SECONDS = 10.0
"""Within this time it has to answer."""
FINAL_SEND_SECONDS = 2.0
"""Within this time the last message must be sent: the end of the process is not delayed longer."""
NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, text) FROM unnest($2::text[]) AS text
"""
"""Nothing depends on a message, so the commit does not wait for the disk. Only in this transaction: a pooler gives
the session to others next.
"""
BROKEN = (asyncpg.PostgresError, *UNREACHABLE)
REMIND_AFTER = 60.0
"""Seconds between two warnings about the same loss."""


class ListenerOutage:
    """PostgreSQL out of the listener's reach.

    Logged when it begins, now and then while it lasts, and when it is over; not with every try. The engine reports
    the store separately. The store may be available all the while: a listener may have a URL of its own.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._logged_at = 0.0

    def failed(self, error: Exception) -> None:
        now = _clock()
        if self._since is None:
            self._since = now
            self._warn("the listener lost PostgreSQL", error)
        elif now - self._logged_at >= REMIND_AFTER:
            self._warn(f"the listener lost PostgreSQL {now - self._since:.0f} s ago", error)
        else:
            logger.debug("the listener does not reach PostgreSQL (%s); trying again", _described(error))

    def end(self) -> None:
        if self._since is not None:
            logger.info("PostgreSQL answers the listener again, after %.1f s", _clock() - self._since)
            self._since = None

    def _warn(self, what: str, error: Exception) -> None:
        self._logged_at = _clock()
        logger.warning("%s (%s); trying again", what, _described(error))


class Listener:
    """``working``: messages are known to arrive.

    ``on_message`` is called with every message of another process, ``on_connect`` and ``on_disconnect`` when the
    connection is made or lost.
    """

    def __init__(self, url: str, *, is_needed: bool = True) -> None:
        """``is_needed``: False if another server carries the messages, and only transactions of callers notify."""
        self.url = url
        self.name = token_hex(6)
        self.working = False
        self.on_message: Callable[[Message], None] = lambda message: None
        self.on_connect: Callable[[], None] = lambda: None
        self.on_disconnect: Callable[[], None] = lambda: None
        self.sent = 0
        self._unsent: list[Message] = []
        self._undelivered: Message | None = None
        """Messages that could not be sent."""
        self._has_messages = asyncio.Event()
        self._lost = asyncio.Event()
        self._echo: asyncio.Future[None] | None = None
        self._last_answer_at = 0.0
        self._pause = FIRST_PAUSE
        self._outage = ListenerOutage()
        self._is_needed = is_needed
        self._warned = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="listener")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            await self._send_unsent()

    def send(self, message: Message) -> None:
        """Send soon. Without a connection only messages that are useful later are kept."""
        if self.working:
            self._unsent.append(message)
            self._has_messages.set()
        else:
            self._keep([message])

    def _keep(self, messages: list[Message]) -> None:
        before = [self._undelivered] if self._undelivered is not None else []
        self._undelivered = summary_of(self.name, before + messages)

    async def _send_unsent(self) -> None:
        """Send the last messages over a separate connection: the listener's is closed, or was never opened."""
        if self._undelivered is None:
            return
        try:
            async with asyncio.timeout(FINAL_SEND_SECONDS):
                await self._send_once(self._undelivered, FINAL_SEND_SECONDS)
        except BROKEN as error:
            logger.debug("the last message was not sent (%s): %s", _described(error), self._undelivered)
        self._undelivered = None

    # -- the connection ---------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                if not await self._serve():
                    self._pause = min(self._pause * 4, UNDELIVERED_PAUSE)
            except BROKEN as error:
                self._outage.failed(error)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
            await asyncio.sleep(self._pause)

    async def _serve(self) -> bool:
        """Serve until the connection is lost. Return False at once if it brings no messages."""
        self._lost = asyncio.Event()
        connection = await connect_alone(self.url, name_of(self.url, "listener"), ANSWER_SECONDS)
        if connection is None:  # a subscription would stay behind in a session that others use next
            self._warn_undelivered()
            return False
        try:
            connection.add_termination_listener(lambda _connection: self._note_disconnected())
            await connection.add_listener(CHANNEL, self._receive)
            if not await self._receives_messages():
                self._warn_undelivered()
                return False
            self._outage.end()
            self.working, self._warned = True, False
            self._pause, self._last_answer_at = FIRST_PAUSE, _clock()
            self.send(Message(self.name, hello=True))
            if self._undelivered is not None:
                self.send(self._undelivered)
                self._undelivered = None
            self.on_connect()
            await self._send_messages(connection)
            return True
        finally:
            was_working, self.working = self.working, False
            self._keep(self._unsent)
            self._unsent = []
            connection.terminate()
            if was_working:
                self.on_disconnect()

    def _note_disconnected(self) -> None:
        self._lost.set()
        self._has_messages.set()

    async def _receives_messages(self) -> bool:
        """Return True if a message to itself arrives.

        Something between may accept the subscription and never deliver, such as an undetected pooler. The message
        is sent over a second connection: over the first, the reply to it would bring it along.
        """
        self._echo = asyncio.get_running_loop().create_future()
        await self._send_once(Message(self.name), ANSWER_SECONDS)
        await asyncio.wait([self._echo], timeout=ECHO_SECONDS)
        return self._echo.done()

    async def _send_once(self, message: Message, seconds: float) -> None:
        """Send over a connection of its own, within that time; several servers share it."""
        connection = await connect(
            self.url,
            server_settings=naming(name_of(self.url, "listener")),
            timeout=seconds,
            command_timeout=seconds,
            statement_cache_size=0,
        )
        try:
            await self._notify(connection, [message])
        finally:
            connection.terminate()

    def _warn_undelivered(self) -> None:
        """Log that the server itself answers but messages do not arrive."""
        self._outage.end()
        if self._is_needed and not self._warned:
            self._warned = True
            logger.warning(
                "PostgreSQL's notifications do not reach this process, as behind a pooler; it polls every second"
                " instead. Give a direct URL in DALSEGNO_LISTEN to receive them."
            )

    # -- messages ---------------------------------------------------------------------------------------------

    async def _send_messages(self, connection: Any) -> None:
        while not self._lost.is_set():
            await self._wait_for_messages(connection)
            self._has_messages.clear()
            if self._unsent and not self._lost.is_set():
                messages, self._unsent = self._unsent, []
                await self._notify_or_keep(connection, messages)
                self.sent += 1
                self._last_answer_at = _clock()

    async def _wait_for_messages(self, connection: Any) -> None:
        """Wait for messages. Raises if the connection died silently."""
        while not self._has_messages.is_set():
            try:
                async with asyncio.timeout_at(self._last_answer_at + LONGEST_SILENCE):
                    await self._has_messages.wait()
            except TimeoutError:
                if (
                    _clock() - self._last_answer_at >= LONGEST_SILENCE
                ):  # otherwise a message has arrived meanwhile
                    await connection.execute("SELECT 1")
                    self._last_answer_at = _clock()

    async def _notify_or_keep(self, connection: Any, messages: list[Message]) -> None:
        """Send, and keep the messages on failure. An interrupted one may have arrived: twice is better than never."""
        try:
            await self._notify(connection, messages)
        except BaseException:
            self._keep(messages)
            raise

    async def _notify(self, connection: Any, messages: list[Message]) -> None:
        """Send all in one transaction; PostgreSQL removes duplicates."""
        texts = [text for message in messages for text in texts_of(message)]
        await connection.execute(NOTIFY, CHANNEL, texts)

    def _receive(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        self._last_answer_at = _clock()
        try:
            message = decode(payload)
        except msgspec.MsgspecError:
            logger.warning("a message on the channel '%s' cannot be read and is ignored", CHANNEL)
            return
        if message.sender != self.name:
            self.on_message(message)
        elif self._echo is not None and not self._echo.done():
            self._echo.set_result(None)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error) or 'no answer'}"
