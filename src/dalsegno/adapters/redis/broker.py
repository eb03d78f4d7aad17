"""RedisBroker: announcements on streams, one for each queue; the ledger decides what is ready.

- A process that announces more than its own waiting workers take, and knows of another that waits, adds the tokens to
  the queue's stream. The consumer group gives each entry to one waiting process, which leases the tokens by name.
- Workers with something to do claim from the ledger: by priority and age, as on every store. So a busy system sends
  nothing.
- Processes publish that they wait, and again now and then; what is announced meanwhile is remembered for a moment,
  because a report may still be on its way.
- An entry is a hint. It is not acknowledged but removed when it is read, the stream is trimmed, and a waiting worker
  looks into the ledger every few seconds, every second while Redis is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from secrets import token_hex
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from dalsegno.adapters.neighbours import Message, encode
from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.errors import BROKEN, end_tasks, is_missing_group
from dalsegno.adapters.redis.own_connection import OwnConnection
from dalsegno.core.settlement.claims import SUSPECT_LOSSES
from dalsegno.model.token import Lease
from dalsegno.model.transition import ReadyToken, Transition
from dalsegno.ports.ledger import Ledger

LOOK_EVERY = 10.0
"""Seconds between two claims of a worker without announcements."""
LOOK_ALONE = 1.0
"""The same while Redis is away."""
MESSAGE_DELAY = 0.1
"""Longest delay of a message in seconds."""
BUSY_AFTER = 0.1
"""Seconds of work after which a process reports that it does not wait any more."""
IDLE_LASTS = 2.5 * LOOK_EVERY
"""Seconds after which a process that has reported nothing more does not count as waiting."""
KNOWN_AFTER = 1.0
"""Seconds after connecting in which the others have reported whether they wait."""
OFFER_PAUSE = 0.15
"""Seconds for which a process that has offered tokens to others claims nothing: it would only get them again."""
MOST_NAMED = 100
"""Tokens in one entry. The worker that leases them claims the rest from the ledger."""
MOST_KEPT = 1000
"""Named tokens that are kept for workers of this process."""
ENTRIES_READ = 16
STREAM_LENGTH = 1000
"""Entries to which a stream is trimmed, about."""
STREAM_LASTS = 86_400
"""Seconds after which the stream of an unused queue is removed."""
RENEW_EVERY = 60.0
"""Seconds after which an announcement renews that time."""
READ_PAUSE = 0.5
GROUP, CONSUMER = "workers", "any"
"""Entries are not acknowledged, so that consumers need no names of their own."""
READ = (
    *("XREADGROUP", "GROUP", GROUP, CONSUMER, "COUNT", ENTRIES_READ),
    *("BLOCK", int(LOOK_EVERY * 1000), "NOACK", "STREAMS"),
)
PREFIX = "wf:ready:"

_encode_tokens = msgspec.json.Encoder().encode
_decode_tokens = msgspec.json.Decoder(list[tuple[str, str, int]]).decode


class RedisChannel:
    """Messages to all processes, by publication."""

    def __init__(self, connection: RedisConnection) -> None:
        self.connection = connection
        self.name = token_hex(6)

    @property
    def working(self) -> bool:
        return self.connection.working

    def send(self, message: Message) -> None:
        self.connection.publish(encode(message))


class _Waiter:
    __slots__ = ("changed", "limit", "queues")

    def __init__(self, queues: frozenset[str], limit: int, changed: asyncio.Event) -> None:
        self.queues = queues
        self.limit = limit
        self.changed = changed


class RedisBroker:
    def __init__(self, ledger: Ledger, connection: RedisConnection, channel: RedisChannel) -> None:
        self.ledger = ledger
        self.connection = connection
        self.channel = channel
        self._reader = StreamReader(connection, self._received)
        self._changed = asyncio.Event()
        self._waiters: dict[_Waiter, None] = {}
        self._named: dict[str, ReadyToken] = {}
        """Tokens announced by other processes that no worker here has asked for yet."""
        self._idle: dict[str, tuple[frozenset[str], float]] = {}
        """The queues for which other processes wait, and when they reported it."""
        self._reported: frozenset[str] = frozenset()
        """The queues for which the others know this process to wait."""
        self._reported_at = -math.inf
        self._announced: dict[str, float] = {}
        """When tokens of each queue that others might take were last announced."""
        self._left_here: dict[str, float] = {}
        """When tokens of each queue were last left to workers that wait here."""
        self._renewed: dict[str, float] = {}
        """When the stream of each queue was last given its time."""
        self._connected_at = -math.inf
        self._paused_until = -math.inf
        self._busy_soon: asyncio.TimerHandle | None = None
        self._exhausted: tuple[str, frozenset[str], asyncio.Event, float] | None = None
        """The worker that took less than it asked for, its queues, the event from before that claim, and its time."""
        connection.on_connect.append(self._connected)
        connection.on_disconnect.append(self._disconnected)
        if connection.working:
            self._connected()

    # -- the port ---------------------------------------------------------------------------------------------

    def committed(self, transition: Transition) -> None:
        """Do nothing: an announcement only names tokens."""

    async def announce(self, tokens: Sequence[ReadyToken]) -> None:
        if not tokens:
            return
        groups = {
            queue: list(group) for queue, group in groupby(sorted(tokens, key=_queue_of), key=_queue_of)
        }
        room = {queue: self._room(queue) for queue in groups}
        self._wake_all()
        if "" in groups:
            self.channel.send(Message(self.channel.name, news=True))
        for queue, group in groups.items():
            if len(group) > room[queue]:
                self._tell_others(queue, group[room[queue] :])
            else:
                self._left_here[queue] = _clock()

    async def offer(self, tokens: Sequence[ReadyToken]) -> None:
        """Wake all other processes: it is not known here which can run the tokens."""
        if tokens:
            self._paused_until = _clock() + OFFER_PAUSE
            self.channel.send(Message(self.channel.name, news=True))

    async def take(self, worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
        served = frozenset(queues)
        await self._wait_if_exhausted(worker, served, limit)
        while True:
            if self._paused_until > _clock():
                await asyncio.sleep(self._paused_until - _clock())
            # Taken before the claim: tokens that become ready during it set this event.
            changed, asked_at = self._changed, _clock()
            leases = await self._lease_named(worker, served, limit)
            if not leases:
                leases = await self.ledger.claim(worker, queues, limit)
                if leases and len(leases) < limit and not any(map(_is_suspect, leases)):
                    self._exhausted = (worker, served, changed, asked_at)
            if leases:
                self._is_at_work()
                return leases
            await self._wait(served, limit, changed, asked_at)

    def settled(self, lease: Lease) -> None:
        """Do nothing: an entry is removed when it is read."""

    async def close(self) -> None:
        """Leave what may not be taken here any more to the others, and send what is left."""
        self._wake_all()
        since = _clock() - MESSAGE_DELAY
        for queue, at in self._left_here.items():
            if at > since:
                self._add(queue, [])
        if self._reported:
            self.channel.send(Message(self.channel.name, busy=True))
        if self._busy_soon is not None:
            self._busy_soon.cancel()
        await self._reader.close()
        await self.connection.flush()

    # -- waiting ----------------------------------------------------------------------------------------------

    async def _wait_if_exhausted(self, worker: str, queues: frozenset[str], limit: int) -> None:
        """Wait if the last claim brought less than was asked for: it left nothing for the next one."""
        last, self._exhausted = self._exhausted, None
        if last is not None and last[:2] == (worker, queues) and not last[2].is_set():
            await self._wait(queues, limit, last[2], last[3])

    async def _wait(
        self, queues: frozenset[str], limit: int, changed: asyncio.Event, asked_at: float
    ) -> None:
        waiter = _Waiter(queues, limit, changed)
        self._waiters[waiter] = None
        try:
            self._report_idle(queues, asked_at)
            self._reader.want(frozenset().union(*(each.queues for each in self._waiters)))
            pause = LOOK_EVERY if self.connection.working else LOOK_ALONE
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.8, 1.2)):  # noqa: S311 - so that processes do not look in step
                    await changed.wait()
        finally:
            del self._waiters[waiter]
            if not self._waiters:
                self._reader.want(frozenset())

    def _room(self, queue: str) -> int:
        """Return how many tokens of the queue the workers that wait here would take. One that was woken already may
        have no room left."""
        return sum(
            waiter.limit for waiter in self._waiters if queue in waiter.queues and not waiter.changed.is_set()
        )

    def _wake_all(self) -> None:
        """Wake every worker that waits here; the next news set another event."""
        self._changed.set()
        self._changed = asyncio.Event()

    def look_again(self) -> None:
        """Look into the ledger: something may be ready that no process has announced."""
        self._wake_all()

    # -- announcements of other processes ---------------------------------------------------------------------

    async def _lease_named(self, worker: str, queues: frozenset[str], limit: int) -> list[Lease]:
        """Lease what other processes announced, if it leaves room for what nobody has announced; else the ledger
        decides what comes first among everything that is ready.
        """
        if not self._named:
            return []
        named = [each for each in self._named.values() if each.queue in queues]
        for token in named:
            del self._named[token.token]
        return await self.ledger.lease(worker, named) if 0 < len(named) < limit else []

    def _received(self, queue: str, tokens: Sequence[ReadyToken]) -> None:
        """Receive an entry. One that came when no worker waits here any more goes back, if another process waits."""
        wanted = sum(waiter.limit for waiter in self._waiters if queue in waiter.queues)
        if len(self._named) >= wanted and self._others(queue):
            self._add(queue, tokens)
            return
        for token in tokens:
            if len(self._named) < MOST_KEPT:
                self._named[token.token] = token
        self._wake_all()

    # -- other processes --------------------------------------------------------------------------------------

    def _tell_others(self, queue: str, tokens: Sequence[ReadyToken]) -> None:
        now = _clock()
        self._announced[queue] = now
        others = self._others(queue)
        if not others and now - self._connected_at > KNOWN_AFTER:
            return
        size = min(max(math.ceil(len(tokens) / max(others, 1)), 1), MOST_NAMED)
        for begin in range(0, min(len(tokens), size * max(others, 1)), size):
            self._add(queue, tokens[begin : begin + size])

    def _add(self, queue: str, tokens: Sequence[ReadyToken]) -> None:
        """Add an entry; one without tokens makes its reader look into the ledger."""
        body = _encode_tokens([(each.token, each.execution, each.priority) for each in tokens])
        key = PREFIX + queue
        self.connection.send("XADD", key, "MAXLEN", "~", STREAM_LENGTH, "*", "tokens", body)
        if _clock() - self._renewed.get(queue, -math.inf) >= RENEW_EVERY:
            self._renewed[queue] = _clock()
            self.connection.send("EXPIRE", key, STREAM_LASTS)

    def _others(self, queue: str) -> int:
        """Return how many other processes wait for tokens of the queue."""
        since = _clock() - IDLE_LASTS
        return sum(1 for queues, at in self._idle.values() if at > since and queue in queues)

    def _report_idle(self, queues: Collection[str], asked_at: float) -> None:
        if self._busy_soon is not None:
            self._busy_soon.cancel()
            self._busy_soon = None
        now = _clock()
        is_known = self._reported.issuperset(queues) and now - self._reported_at < LOOK_EVERY / 2
        if self.connection.working and not is_known:
            self._reported, self._reported_at = self._reported.union(queues), now
            self._send_idle(now - asked_at)

    def _send_idle(self, since: float) -> None:
        self.channel.send(Message(self.channel.name, idle=tuple(sorted(self._reported)), since=since))

    def _is_at_work(self) -> None:
        if self._reported and self._busy_soon is None and not self._waiters:
            loop = asyncio.get_running_loop()
            self._busy_soon = loop.call_later(BUSY_AFTER, self._report_busy)

    def _report_busy(self) -> None:
        self._busy_soon = None
        if not self._waiters and self._reported:
            self._reported = frozenset()
            self.channel.send(Message(self.channel.name, busy=True))

    def handle(self, message: Message) -> None:
        """Handle a message of another process about work."""
        if message.idle:
            self._idle[message.sender] = (frozenset(message.idle), _clock())
            self._repeat_missed(message)
        if message.busy:
            self._idle.pop(message.sender, None)
        if message.hello and self._reported:
            self._send_idle(MESSAGE_DELAY)
        if message.news:
            self._wake_all()

    def _repeat_missed(self, message: Message) -> None:
        """Announce again what was announced after the claim of a process that has just reported that it waits."""
        asked_at = _clock() - message.since - MESSAGE_DELAY
        for queue in message.idle:
            if self._announced.get(queue, -math.inf) > asked_at:
                del self._announced[queue]
                self._add(queue, [])

    def _connected(self) -> None:
        """Handle a new connection: announcements may have been missed on both sides."""
        self._connected_at = _clock()
        self._renewed.clear()
        self._reported = frozenset()
        self.channel.send(Message(self.channel.name, hello=True))
        self._wake_all()

    def _disconnected(self) -> None:
        self._idle.clear()
        self._reported = frozenset()
        self._wake_all()


class StreamReader:
    """Reads entries of the queues that workers of this process wait for, over a connection of its own."""

    def __init__(
        self, connection: RedisConnection, received: Callable[[str, Sequence[ReadyToken]], None]
    ) -> None:
        self._connection = connection
        self._own = OwnConnection(connection.address)
        self._received = received
        self._wanted: frozenset[str] = frozenset()
        self._read: frozenset[str] = frozenset()
        """The queues of the read under way."""
        self._is_wanted = asyncio.Event()
        self._reading: asyncio.Task[Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def want(self, queues: frozenset[str]) -> None:
        """Read these queues from now on. A read under way goes on, unless it lacks one of them."""
        self._wanted = queues
        if not queues:
            self._is_wanted.clear()
            return
        self._is_wanted.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="redis reader")
        elif self._reading is not None and not queues <= self._read:
            self._reading.cancel()

    async def close(self) -> None:
        task, self._task = self._task, None
        await end_tasks(*(each for each in (task, self._reading) if each is not None))
        await self._own.close()

    async def _run(self) -> None:
        while True:
            await self._is_wanted.wait()
            if not self._connection.working:
                await asyncio.sleep(READ_PAUSE)
                continue
            self._read = self._wanted
            self._reading = asyncio.ensure_future(self._read_once(sorted(self._read)))
            await asyncio.wait([self._reading])
            if not self._reading.cancelled() and (error := self._reading.exception()) is not None:
                await self._recover(error)

    async def _read_once(self, queues: Sequence[str]) -> None:
        keys = [PREFIX + queue for queue in queues]
        [found] = await self._own.call([(*READ, *keys, *(">" for _ in keys))], blocking=LOOK_EVERY)
        if isinstance(found, ResponseError):
            raise found
        for key, entries in found or ():
            name = key.decode()
            self._connection.send_later("XDEL", name, *(entry for entry, _ in entries))
            for _, fields in entries:
                self._received(name.removeprefix(PREFIX), _tokens_of(name.removeprefix(PREFIX), fields))

    async def _recover(self, error: BaseException) -> None:
        """Make the groups that are missing, at first or since the database was emptied; else wait a moment."""
        if not isinstance(error, BROKEN):
            raise error
        if not isinstance(error, ResponseError) or not is_missing_group(error):
            await asyncio.sleep(READ_PAUSE)
            return
        try:
            for queue in sorted(self._read):
                await self._make_group(PREFIX + queue)
        except BROKEN:
            await asyncio.sleep(READ_PAUSE)

    async def _make_group(self, key: str) -> None:
        made, expires = await self._own.call(
            [("XGROUP", "CREATE", key, GROUP, "0", "MKSTREAM"), ("EXPIRE", key, STREAM_LASTS)]
        )
        if isinstance(made, ResponseError) and not str(made).startswith("BUSYGROUP"):
            raise made
        if isinstance(expires, ResponseError):
            raise expires


def _tokens_of(queue: str, fields: Sequence[bytes]) -> list[ReadyToken]:
    """Return the tokens of an entry, names and values in turn. One that cannot be read only makes its reader look into
    the ledger."""
    try:
        values = dict(zip(fields[::2], fields[1::2], strict=True))
        found: Iterable[tuple[str, str, int]] = _decode_tokens(values.get(b"tokens", b"[]"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [ReadyToken(token, execution, queue, priority) for token, execution, priority in found if token]


def _is_suspect(lease: Lease) -> bool:
    return lease.losses >= SUSPECT_LOSSES


def _queue_of(token: ReadyToken) -> str:
    return token.queue


def _clock() -> float:
    return asyncio.get_running_loop().time()
