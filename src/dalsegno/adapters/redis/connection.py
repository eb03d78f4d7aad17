"""The connection to Redis: commands, messages between processes, and its state as health checks see it.

- One subscription stays open. Its end shows at once that Redis is away; a silence is broken by a ping that must be
  answered. It is opened again with growing pauses.
- What is sent without waiting (messages, announcements) is gathered while a round trip is under way, and sent
  together with the next. Nothing depends on it: while Redis is away it is dropped.
- A server that cannot be used (older than 6.2, part of a Cluster, a wrong password) is refused when the stack is
  opened if it answers at once; else it is reported as a problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from dalsegno.adapters.redis.address import ANSWER_SECONDS, close_client, read_address
from dalsegno.adapters.redis.errors import (
    BROKEN,
    described,
    driver_errors,
    end_tasks,
    expect_not_cancelled,
    is_refusal,
)
from dalsegno.adapters.redis.own_connection import Command, OwnConnection
from dalsegno.adapters.urls import shown_url
from dalsegno.errors import BadConfiguration
from dalsegno.ports.stack import Backlog, Kind, Measured

logger = logging.getLogger("dalsegno.redis")

OLDEST = (6, 2)
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 3.0
OPENING_SECONDS = 3.0
"""Seconds for which opening a stack waits for Redis; then it is opened without it."""
LONGEST_SILENCE = 20.0
"""Seconds of silence after which the server is queried."""
LAST_SECONDS = 2.0
"""Within this time the last commands must be sent: the end of the process is not delayed longer."""
REMIND_AFTER = 60.0
"""Seconds between two warnings about the same loss."""
MOST_UNSENT = 10_000
"""Commands that are kept while a round trip is under way; beyond that the oldest are dropped."""
LATER = 0.05
"""Seconds for which a command that is not urgent waits for others."""
CHANNEL = "wf:messages"


class RedisConnection:
    """Redis as a server of the stack.

    ``on_connect``, ``on_disconnect`` and ``on_message`` hold callbacks of the parts that use it.
    """

    def __init__(self, url: str, name: str = "Redis") -> None:
        self.name = name
        self.address = read_address(url)
        self.url = shown_url(url)
        self.client: Redis = self.address.client()
        self._sending = OwnConnection(self.address)
        self.channel = f"{CHANNEL}:{self.address.database}"
        """Channels belong to all databases of a server: the number keeps them apart."""
        self.working = False
        self.on_connect: list[Callable[[], None]] = []
        self.on_disconnect: list[Callable[[], None]] = []
        self.on_message: list[Callable[[bytes], None]] = []
        self.measures: list[Callable[[], Awaitable[Measured]]] = []
        """Return figures for ``/metrics``, by name."""
        self._problem = f"Redis at {self.url} has not answered yet"
        self._tried = asyncio.Event()
        self._refusal: BadConfiguration | None = None
        self._unsent: list[Command] = []
        self._has_unsent = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None
        """Sends what is not urgent."""
        self._tasks: list[asyncio.Task[None]] = []
        self._away_since: float | None = None
        self._warned_at = 0.0

    # -- the port Server ------------------------------------------------------------------------------------------

    def connected(self) -> bool:
        return self.working

    def problem(self) -> str:
        return "" if self.working else self._problem

    async def examine(self) -> Sequence[str]:
        """Return what an operator should know about the server's settings."""
        try:
            await self._check(self.client)
            found = await self.client.info()
        except (*BROKEN, BadConfiguration) as error:
            if self.working and is_refusal(error):
                return ["the user may not run INFO, so the server's settings were not checked"]
            return [f"Redis at {self.url} cannot be used: {described(error)}"]
        return [*filter(None, [self.address.risk()]), *_advice(found)]

    async def measure(self) -> Measured:
        """Return the figures of all parts that use this server."""
        with driver_errors(self.url):
            parts = [await measure() for measure in self.measures]
        figures = {name: value for part in parts for name, value in part.figures.items()}
        return Measured([each for part in parts for each in part.backlogs], figures)

    async def backlog_of(self, place: str, kind: Kind, streams: Sequence[str]) -> Backlog:
        """Return how many entries the streams have, and the age of the oldest one."""
        async with self.client.pipeline(transaction=False) as pipeline:
            pipeline.time()
            for stream in streams:
                pipeline.xlen(stream)
                pipeline.xrange(stream, count=1)
            (seconds, micros), *found = await pipeline.execute()
        first = [_milliseconds(entries[0][0]) for entries in found[1::2] if entries]
        now = seconds * 1000 + micros // 1000
        return Backlog(place, kind, sum(found[::2]), max(now - min(first), 0) / 1000 if first else 0.0)

    # -- opening and closing --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect in the background; wait a moment for the first try. Raises if the server refuses for good."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._run(), name="redis"),
            loop.create_task(self._send_commands(), name="redis sender"),
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPENING_SECONDS):
                await self._tried.wait()
        if self._refusal is not None:
            await self.close()
            raise self._refusal

    async def close(self) -> None:
        """Send what is left, within a short time, and close the connections."""
        tasks, self._tasks = self._tasks, []
        await end_tasks(*tasks)
        await self.flush()
        if self._later is not None:
            self._later.cancel()
        self.working = False
        await self._sending.close()
        await close_client(self.client)

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, *command: Any) -> None:
        """Send a command soon, without its reply. It is dropped while Redis is away."""
        if self.working:
            self._unsent.append(command)
            self._has_unsent.set()

    def send_later(self, *command: Any) -> None:
        """Send a command with the next one, or after a moment: a round trip costs more than a command."""
        if self.working:
            self._unsent.append(command)
            if self._later is None:
                self._later = asyncio.get_running_loop().call_later(LATER, self._has_unsent.set)

    async def transaction(self, *commands: Command) -> list[Any]:
        """Run commands as one transaction; return their replies."""
        with driver_errors(self.url):
            async with self.client.pipeline(transaction=True) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute()

    async def flush(self) -> None:
        """Send what is left, within a short time."""
        if self.working and self._unsent:
            with contextlib.suppress(*BROKEN):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._send_unsent()

    def publish(self, message: bytes) -> None:
        """Send a message to the other processes."""
        self.send("PUBLISH", self.channel, message)

    async def _send_commands(self) -> None:
        while True:
            await self._has_unsent.wait()
            try:
                await self._send_unsent()
            except BROKEN as error:
                expect_not_cancelled()
                logger.debug("commands to Redis are lost (%s)", described(error))

    async def _send_unsent(self) -> None:
        self._has_unsent.clear()
        if self._later is not None:
            self._later.cancel()
            self._later = None
        commands, self._unsent = self._unsent[-MOST_UNSENT:], []
        if not commands:
            return
        for reply in await self._sending.call(commands):
            if isinstance(reply, ResponseError):
                self.warn("Redis refused a command: %s", described(reply))
                return

    # -- the subscription -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._serve()
            except BadConfiguration as error:
                self._lose(error)
            except BROKEN as error:
                expect_not_cancelled()
                if is_refusal(error):
                    self._refusal = BadConfiguration(
                        f"Redis at {self.url} refuses this user: {described(error)}"
                    )
                pause = FIRST_PAUSE if self.working else pause
                self._lose(error)
            self._tried.set()
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311 - processes do not come back in step
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _serve(self) -> None:
        """Subscribe, and receive messages until the connection is lost."""
        async with self.client.pubsub() as subscription:
            await self._check(self.client)
            await subscription.subscribe(self.channel)
            self._connected()
            asked = False
            while True:
                found = await subscription.get_message(timeout=ANSWER_SECONDS if asked else LONGEST_SILENCE)
                if found is None:
                    if asked:
                        raise RedisConnectionError("the server does not answer any more")
                    await subscription.ping()
                asked = found is None
                if found is None:
                    continue
                if found["type"] == "message":
                    for receive in self.on_message:
                        receive(found["data"])

    async def _check(self, client: Redis) -> None:
        """Refuse servers that lack what is used here, and those that take no writes."""
        try:
            found = await cast("Any", client).execute_command("HELLO")
        except ResponseError as error:
            if is_refusal(error):
                raise
            raise self._refuse("it is older than Redis 6.2") from None
        fields = dict(zip(map(_text, found[::2]), found[1::2], strict=False))
        version = _text(fields.get("version", b""))
        if _numbers(version) < OLDEST:
            raise self._refuse(f"it is version {version}; 6.2 or newer is needed")
        if _text(fields.get("mode", b"")) == "cluster":
            raise self._refuse(
                "it is part of a Cluster, and there is no state here that needs one; give one Redis or a Sentinel"
            )
        if _text(fields.get("mode", b"")) == "sentinel":
            raise self._refuse("it is a Sentinel; write redis+sentinel://host1,host2/NAME")
        if _text(fields.get("role", b"master")) != "master":
            raise RedisConnectionError("it is a replica, which takes no writes")
        self._refusal = None

    def _refuse(self, why: str) -> BadConfiguration:
        self._refusal = BadConfiguration(f"Redis at {self.url} cannot be used: {why}")
        return self._refusal

    def _connected(self) -> None:
        if self._away_since is not None:
            logger.info("Redis answers again, after %.1f s", _clock() - self._away_since)
            self._away_since = None
        self.working = True
        self._tried.set()
        for notice in self.on_connect:
            notice()

    def _lose(self, error: BaseException) -> None:
        was_working, self.working = self.working, False
        self._unsent.clear()
        self._problem = (
            described(error)
            if isinstance(error, BadConfiguration)
            else (f"Redis at {self.url} cannot be reached: {described(error)}")
        )
        now = _clock()
        if self._away_since is None:
            self._away_since = now
            self._warned_at = 0.0
        self.warn("%s; work is found in the store meanwhile, trying again", self._problem)
        if was_working:
            for notice in self.on_disconnect:
                notice()

    def warn(self, text: str, *values: object) -> None:
        """Log at most once in a while: a loss is reported when it begins, and now and then while it lasts."""
        now = _clock()
        if not self._warned_at or now - self._warned_at >= REMIND_AFTER:
            self._warned_at = now
            logger.warning(text, *values)


def _advice(found: Mapping[str, Any]) -> list[str]:
    advice = []
    policy = str(found.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction" and int(found.get("maxmemory", 0)):
        advice.append(
            f"Redis removes keys when its memory is full (maxmemory-policy {policy}): planted timers and tasks of"
            " other programs may be lost; set maxmemory-policy noeviction"
        )
    if not int(found.get("aof_enabled", 0)):
        advice.append(
            "Redis keeps no append-only file: timers that other programs planted are lost when it restarts; set"
            " appendonly yes if there are any"
        )
    return advice


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _milliseconds(entry: bytes) -> int:
    """Return when an entry was added, by the server's clock: its id says so."""
    return int(entry.partition(b"-")[0])
