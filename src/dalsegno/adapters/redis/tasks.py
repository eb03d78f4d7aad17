"""Tasks for workers of other programs on Redis.

- A queue has three streams, read in this order: ``tasks:<queue>:high``, ``tasks:<queue>``, ``tasks:<queue>:low``. Their
  consumer group is ``workers``, and a worker reads under the name of its ``worker:<id>``.
- A hash per queue notes in which entry each copy lies, so that what became of it is found without reading tasks.
- Results arrive in ``wf:stream:results``. One is acknowledged, and removed together with the copy of its task, after
  its step is committed. What another orchestrator took and did not take in is claimed after 30 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from secrets import token_hex
from typing import Any

import msgspec
from msgspec import Raw
from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from dalsegno.adapters.redis.connection import RedisConnection
from dalsegno.adapters.redis.dead_letters import RedisDeadLetters
from dalsegno.adapters.redis.errors import (
    BROKEN,
    described,
    end_tasks,
    expect_not_cancelled,
    is_missing_group,
)
from dalsegno.adapters.redis.own_connection import Command
from dalsegno.adapters.redis.presence import WorkersOfOthers
from dalsegno.ports.messages import DeadMessage
from dalsegno.ports.stack import Measured
from dalsegno.ports.task_transport import (
    ForeignResult,
    ForeignWorker,
    HandedOut,
    QueueReport,
    Settle,
    Settlement,
    TaskCopy,
)

logger = logging.getLogger("dalsegno.redis")

RESULTS, ORCHESTRATORS, WORKERS = "wf:stream:results", "orchestrators", "workers"
BANDS = ("", ":high", ":low")
"""The streams of a queue, by the number that the notes give."""
NORMAL, HIGH, LOW = 1, 2, 3
AT_ONCE = 100
"""Results that are settled concurrently."""
BLOCK = 5000
"""Milliseconds that a read waits for results."""
STALE = 30_000
"""Milliseconds after which a result that another process took is taken over."""
TAKE_OVER_EVERY = 15.0
PAUSE = 1.0
MOST_PENDING = 10_000
FORGOTTEN = 60_000
"""Milliseconds after which an orchestrator that has nothing pending is removed from the group."""


def _script(name: str) -> str:
    return (files("dalsegno.adapters.redis") / "scripts" / f"{name}.lua").read_text(encoding="utf-8")


def stream_of(queue: str, priority: int) -> tuple[int, str]:
    """Return the stream for a priority, with its number."""
    number = HIGH if priority > 0 else LOW if priority < 0 else NORMAL
    return number, streams_of(queue)[number - 1]


def streams_of(queue: str) -> list[str]:
    return [f"tasks:{queue}{band}" for band in BANDS]


def places_of(queue: str) -> str:
    return f"wf:tasks:{queue}"


class RedisTasks:
    """The port of task transports."""

    name = "Redis"
    lists_copies = True
    brings_announcements = False

    def __init__(self, connection: RedisConnection, dead_letters: RedisDeadLetters) -> None:
        self.connection = connection
        self._dead_letters = dead_letters
        self._hand_out: AsyncScript = connection.client.register_script(_script("hand_out_task"))
        self._remove: AsyncScript = connection.client.register_script(_script("remove_tasks"))
        self._workers = WorkersOfOthers(connection)
        self._consumer = token_hex(8)
        self._drained = False
        self._task: asyncio.Task[None] | None = None
        self._queues: set[str] = set()
        """Queues that this process has handed out."""
        connection.measures.append(self._measure)
        dead_letters.requeue_to(RESULTS, sent_again)

    async def _measure(self) -> Measured:
        backlog_of = self.connection.backlog_of
        tasks = [await backlog_of(f"tasks:{name}", "tasks", streams_of(name)) for name in self._queues]
        return Measured([await backlog_of(RESULTS, "results", [RESULTS]), *tasks])

    async def workers(self, queues: Sequence[str]) -> Sequence[ForeignWorker] | None:
        try:
            return await self._workers.living()
        except BROKEN as error:
            expect_not_cancelled()
            logger.debug("the workers in Redis cannot be read: %s", described(error))
            return None

    async def announced(self, queue: str, seconds: float) -> None:
        """Never asked for: announcements go to the stack's broker."""

    # -- handing out ----------------------------------------------------------------------------------------------

    async def hand_out(self, tasks: Sequence[TaskCopy]) -> Sequence[str]:
        try:
            replies = await self._send(tasks)
        except BROKEN as error:
            expect_not_cancelled()
            logger.info("tasks cannot be handed out over Redis: %s", described(error))
            return ()
        for reply in replies:
            if isinstance(reply, Exception):
                logger.warning("Redis refused a task: %s", described(reply))
                break
        pairs = zip(tasks, replies, strict=True)
        return [task.id for task, reply in pairs if not isinstance(reply, Exception)]

    async def _send(self, tasks: Sequence[TaskCopy]) -> list[Any]:
        async with self.connection.client.pipeline(transaction=False) as pipeline:
            for task in tasks:
                number, stream = stream_of(task.queue, task.priority)
                deadline = "" if task.deadline is None else repr(task.deadline)
                await self._hand_out(
                    keys=[stream, places_of(task.queue)],
                    args=[task.body, _name(task.id, task.fence), number, deadline],
                    client=pipeline,
                )
            return await pipeline.execute(raise_on_error=False)

    async def withdraw(self, queue: str, copies: Sequence[tuple[str, int]]) -> None:
        if not copies:
            return
        try:
            await self._remove(
                keys=[places_of(queue), *streams_of(queue)], args=[_name(*copy) for copy in copies]
            )
        except BROKEN as error:
            expect_not_cancelled()
            logger.info("copies of tasks stay in Redis until the next look: %s", described(error))

    # -- what became of the copies --------------------------------------------------------------------------------

    async def report(self, queue: str) -> QueueReport | None:
        self._queues.add(queue)
        try:
            return QueueReport(await self._copies(queue))
        except BROKEN as error:
            expect_not_cancelled()
            logger.debug("the tasks in Redis cannot be read: %s", described(error))
            return None

    async def _copies(self, queue: str) -> list[HandedOut]:
        async with self.connection.client.pipeline(transaction=True) as pipeline:
            pipeline.hgetall(places_of(queue))
            for key in streams_of(queue):
                pipeline.xlen(key)
                pipeline.xpending_range(key, WORKERS, "-", "+", MOST_PENDING)
                pipeline.xinfo_groups(key)
            places, *found = await pipeline.execute(raise_on_error=False)
        if isinstance(places, Exception):
            raise places
        streams = [
            _Stream(stream, *found[3 * at : 3 * at + 3]) for at, stream in enumerate(streams_of(queue))
        ]
        notes = [_Place(name, note) for name, note in places.items()]
        copies = []
        for number, stream in enumerate(streams, 1):
            await self._repair_group(stream)
            there = [place for place in notes if place.number == number]
            if len(there) > stream.length:
                there = await self._that_exist(stream, there)
            copies += [stream.copy(place) for place in there]
        return copies

    async def _repair_group(self, stream: _Stream) -> None:
        """Workers cannot read a stream whose group is gone."""
        if stream.length and not stream.has_group:
            await self._make_group(stream.key, WORKERS)

    async def _that_exist(self, stream: _Stream, places: Sequence[_Place]) -> list[_Place]:
        """Return the places whose entry exists: the stream is shorter than what was noted."""
        if not stream.length:
            return []
        async with self.connection.client.pipeline(transaction=False) as pipeline:
            for place in places:
                pipeline.xrange(stream.key, place.entry, place.entry)
            found = await pipeline.execute()
        return [place for place, entries in zip(places, found, strict=True) if entries]

    async def _make_group(self, stream: str, group: str) -> None:
        try:
            await self.connection.client.xgroup_create(stream, group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    # -- results --------------------------------------------------------------------------------------------------

    def start(self, settle: Settle) -> None:
        if self._task is None:
            self._drained = False
            self._task = asyncio.get_running_loop().create_task(
                self._receive(settle), name="results in Redis"
            )

    def is_drained(self) -> bool:
        return self._drained and self.connection.working

    async def stop(self) -> None:
        task, self._task = self._task, None
        self._drained = False
        if task is not None:
            await end_tasks(task)

    async def _receive(self, settle: Settle) -> None:
        while True:
            try:
                await self._make_group(RESULTS, ORCHESTRATORS)
                await self._serve(settle)
            except BROKEN as error:
                expect_not_cancelled()
                if not (isinstance(error, ResponseError) and is_missing_group(error)):
                    logger.debug("results cannot be read from Redis: %s", described(error))
                    await asyncio.sleep(PAUSE)
            except Exception:
                logger.exception("receiving results from Redis failed; trying again")
                await asyncio.sleep(PAUSE)

    async def _serve(self, settle: Settle) -> None:
        """Take over what earlier orchestrators left, then read on."""
        client, clock = self.connection.client, asyncio.get_running_loop().time
        await self._take_over(settle, 0)
        looked = clock()
        while True:
            expect_not_cancelled()
            if clock() - looked >= TAKE_OVER_EVERY:
                await self._take_over(settle, STALE)
                await self._forget_consumers()
                looked = clock()
            found = await client.xreadgroup(
                ORCHESTRATORS,
                self._consumer,
                {RESULTS: ">"},
                count=AT_ONCE,
                block=BLOCK if self._drained else None,
            )
            entries = _entries(found)
            if entries:
                await self._settle_all(settle, entries)
            else:
                self._drained = True

    async def _take_over(self, settle: Settle, idle: int) -> None:
        start: Any = "0-0"
        while True:
            found = await self.connection.client.xautoclaim(
                RESULTS, ORCHESTRATORS, self._consumer, idle, start, count=AT_ONCE
            )
            start, entries = found[0], [entry for entry in found[1] if entry[0] is not None and entry[1]]
            if entries:
                await self._settle_all(settle, entries)
            if start in (b"0-0", "0-0"):
                return

    async def _forget_consumers(self) -> None:
        """Remove the names of orchestrators that have gone."""
        client = self.connection.client
        for consumer in await client.xinfo_consumers(RESULTS, ORCHESTRATORS):
            if not consumer["pending"] and consumer["idle"] > FORGOTTEN:
                await client.xgroup_delconsumer(RESULTS, ORCHESTRATORS, consumer["name"])

    async def _settle_all(
        self, settle: Settle, entries: Sequence[tuple[bytes, Mapping[bytes, bytes]]]
    ) -> None:
        found = await asyncio.gather(*(self._settled(settle, fields) for _, fields in entries))
        async with self.connection.client.pipeline(transaction=True) as pipeline:
            for (entry, fields), settlement in zip(entries, found, strict=True):
                if settlement.verdict == "unknown":
                    body = msgspec.json.encode(_texts(fields))
                    letter = self._dead_letters.entry(RESULTS, body, settlement.reason, settlement.code)
                    pipeline.execute_command(*letter)
                pipeline.xack(RESULTS, ORCHESTRATORS, entry)
                pipeline.xdel(RESULTS, entry)
                if settlement.queue:
                    keys = [places_of(settlement.queue), *streams_of(settlement.queue)]
                    name = _name(settlement.id, settlement.fence)
                    await self._remove(keys=keys, args=[name], client=pipeline)
            await pipeline.execute()

    async def _settled(self, settle: Settle, fields: Mapping[bytes, bytes]) -> Settlement:
        try:
            body = result_body(fields)
        except ValueError as error:
            return Settlement("unknown", str(error), "BAD_RESULT")
        return await settle(ForeignResult(body, RESULTS))


class _Place:
    """Where a copy lies, as it was noted when it was handed out."""

    def __init__(self, name: bytes, note: bytes) -> None:
        task, _, fence = name.decode().rpartition("/")
        number, entry, deadline = note.decode().split(" ")
        self.task, self.fence = task, int(fence)
        self.number, self.entry = int(number), entry
        self.deadline = float(deadline) if deadline else None


class _Stream:
    """A stream of a queue, as Redis reports it. One that does not exist is empty."""

    def __init__(self, key: str, length: Any, pending: Any, groups: Any) -> None:
        self.key = key
        self.length = length if isinstance(length, int) else 0
        self.pending = (
            {} if isinstance(pending, Exception) else {each["message_id"]: each for each in pending}
        )
        named = {} if isinstance(groups, Exception) else {each["name"]: each for each in groups}
        group = named.get(WORKERS.encode())
        self.has_group = group is not None
        self.delivered = _number(group["last-delivered-id"]) if group is not None else (0, 0)

    def copy(self, place: _Place) -> HandedOut:
        pending = self.pending.get(place.entry.encode())
        if pending is not None:
            consumer, seconds = pending["consumer"].decode(), pending["time_since_delivered"] / 1000
            return HandedOut(place.task, place.fence, "running", consumer, seconds, place.deadline)
        if _number(place.entry) > self.delivered:
            return HandedOut(place.task, place.fence, "waiting", deadline=place.deadline)
        return HandedOut(place.task, place.fence, "acknowledged", deadline=place.deadline)


def result_body(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the JSON object of a result whose fields are texts; output and error are JSON in a text.

    Raises ValueError with what is wrong.
    """
    texts = _texts(fields)
    found: dict[str, Any] = dict(texts)
    for name in ("output", "error"):
        if name in texts:
            found[name] = _json(name, texts[name])
    if "success" in texts:
        if texts["success"] not in ("true", "false"):
            raise ValueError(f"the field 'success' is {texts['success']!r}; write true or false")
        found["success"] = texts["success"] == "true"
    if "fence" in texts:
        if not texts["fence"].isdecimal():
            raise ValueError(f"the field 'fence' is {texts['fence']!r}; send the number that was handed out")
        found["fence"] = int(texts["fence"])
    return msgspec.json.encode(found)


def _json(name: str, text: str) -> Any:
    if name == "error" and not text.lstrip().startswith(("{", '"', "null")):
        return text  # the older form writes a message
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"the field '{name}' is not JSON: {error}") from error
    return Raw(text.encode())


def sent_again(letter: DeadMessage) -> Sequence[Command]:
    """Return the command that puts a dead result back into its stream."""
    fields = msgspec.json.decode(letter.body, type=dict[str, str])
    return [("XADD", RESULTS, "*", *(each for field in fields.items() for each in field))]


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}


def _entries(found: Any) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
    """Return the entries of a read, in either form of the protocol."""
    streams: Iterable[Any] = found.values() if isinstance(found, dict) else (each[1] for each in found or ())
    entries: list[tuple[bytes, Mapping[bytes, bytes]]] = []
    for stream in streams:
        # The third version of the protocol wraps the entries of a stream in another list.
        nested = stream[0] if stream and isinstance(stream[0], list) else stream
        entries += [(entry, fields) for entry, fields in nested if fields]
    return entries


def _name(task: str, fence: int) -> str:
    return f"{task}/{fence}"


def _number(entry: str | bytes) -> tuple[int, int]:
    text = entry.decode() if isinstance(entry, bytes) else entry
    milliseconds, _, turn = text.partition("-")
    return int(milliseconds), int(turn or 0)
